"""The commands: what they refuse, list and print, without training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from frugalrl.bench import suites
from frugalrl.bench.calibrate import Speed, estimate_seconds
from frugalrl.bench.runs import checked_runs, expand
from frugalrl.bench.suites import load_suite, parse_suite, with_sweep
from frugalrl.cli import main
from frugalrl.training.errors import ConfigError

MakeResults = Callable[..., Path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "papper"], "suite='papper' is unknown; did you mean 'paper'?"),
        (["bench", "smoke", "--methods", "bassline"], "did you mean 'baseline'?"),
        (["bench", "smoke", "--seeds", "0"], "no seeds"),
        (["bench", "smoke", "--seeds", "some"], "neither a number of seeds"),
        (["bench", "smoke", "--scale", "7"], "scale=7.0 must be above 0"),
        (["bench", "smoke", "--jobs", "0"], "jobs=0 must be at least 1"),
        (
            ["bench", "smoke", "--only", "hoper"],
            "algorithm or method='hoper' is unknown",
        ),
        (["bench", "smoke", "--set", "batch"], "is no name=value"),
        (["bench", "smoke", "--set", "batchsize=3"], "did you mean 'batch_size'?"),
        (["bench", "smoke", "--set", "learning_starts=9999"], "leaves nothing to learn from"),
        (["bench", "ablation"], "say what to vary: --parameter epsilon|"),
        (["bench", "ablation", "--parameter", "epsilom"], "did you mean 'epsilon'?"),
        (["bench", "smoke", "--values", "1"], "say what to vary"),
        (["bench", "smoke", "--algo", "sacc"], "did you mean 'sac'?"),
        (["compare", "Pendulum-v1", "--algo", "td33"], "did you mean 'td3'?"),
        (["compare", "Pendulun-v1", "--steps", "500"], "did you mean Pendulum-v1?"),
        (["compare", "Pendulun-v1"], "did you mean Pendulum-v1?"),
        (["compare", "Pendulum-v1", "--methods", ","], "no methods: ask for at least one of"),
        (
            ["compare", "Pendulum-v1", "--evaluations", "0"],
            "evaluations=0 is out of range",
        ),
        (
            ["compare", "Pendulum-v1", "--steps", "0"],
            "steps=0 is out of range; use an integer from 1",
        ),
        (["compare", "Pendulum-v1", "--set", "sampler=prioritized"], "what methods differ in"),
        (["compare", "CartPole-v1", "--steps", "500"], "action space"),
        (["compare", "Pusher-v5"], "its length is unknown: set steps, or pass --steps"),
        (["compare", "Pendulum-v1", "--methods", "fac@mu"], "is no parameter=value"),
        (["report", "nowhere"], "there is no results directory nowhere"),
    ],
)
def test_mistakes_are_named_and_nothing_is_created(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_way_of_the_report_is_named_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables.md").write_text("mine", "utf-8")
    assert main(["bench", "smoke", "--out", str(tmp_path)]) == 2
    assert "tables.md is in the way: no report wrote it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tables.md"]


def test_a_suite_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "paper", "--print"]) == 0
    assert parse_suite(capsys.readouterr().out, "paper") == load_suite("paper")


def test_a_dry_run_lists_runs_and_time_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frugalrl.bench.calibrate.measure_speed", lambda _: Speed(0.01, 0.001, 100))
    words = ["bench", "smoke", "--dry-run", "--only", "sac", "--methods", "fac,laber,small"]
    assert main([*words, "--seeds", "0,4", "--jobs", "2"]) == 0
    out = capsys.readouterr().out
    assert "after fac (its size)" in out
    assert "seeds 0, 4" in out
    assert "timing Pendulum-v1 with sac, large_batch batches" in out
    # Each: 2000 steps of 10 ms, 10 * 3 + 20 episodes of 100 steps of 1 ms, 8 s: 33 s; 6 of them.
    assert "6 runs, 12,000 steps: about 1m39s with 2 at a time" in out
    assert list(tmp_path.iterdir()) == []


def test_only_may_name_a_method_whose_parameters_hold_commas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frugalrl.bench.calibrate.measure_speed", lambda _: Speed(0.01, 0.001, 100))
    half = "small@share=0.2,dtype=float16"
    assert main(["bench", "budget", "--dry-run", "--only", f"swimmer, {half}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines if half in line] == [["Swimmer-v5", "sac", half]]
    assert "5 runs, " in lines[-1]


def test_an_estimate_by_hand() -> None:
    suite = load_suite("smoke")
    run = expand(suite)[0]
    # 2000 * 0.002 + (10 * 3 + 20) * 50 * 0.001 + 8.
    assert estimate_seconds(run, Speed(0.002, 0.001, 50)) == pytest.approx(14.5)
    unwatched = expand(suites.with_settings(suite, ["eval_every=0"]))[0]
    # 2000 * 0.002 + 20 * 50 * 0.001 + 8.
    assert estimate_seconds(unwatched, Speed(0.002, 0.001, 50)) == pytest.approx(13.0)


def test_fac_is_added_for_a_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frugalrl.bench.calibrate.measure_speed", lambda _: Speed(0.01, 0.001, 100))
    words = ["compare", "Pendulum-v1", "--methods", "baseline,small", "--dry-run"]
    assert main(words) == 0
    assert "note: fac is added: the size of small comes from its runs" in capsys.readouterr().out


def test_another_algorithm_keeps_the_environments_arguments() -> None:
    suite = suites.with_tasks(load_suite("ablation"), ["Ant-v5", "Hopper-v5"], "td3")
    assert [(task.env, task.algo) for task in suite.tasks] == [
        ("Ant-v5", "td3"),
        ("Hopper-v5", "td3"),
    ]
    kept = {"env_kwargs": {"include_cfrc_ext_in_observation": False}}
    assert [dict(task.settings) for task in suite.tasks] == [kept, {}]


def test_a_copied_suite_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "frugalrl.commands.grids.run_grid", lambda _, suite, out, *__, **___: asked.append(out) or 0
    )
    assert main(["bench", "ablation", "--print"]) == 0
    mine = tmp_path / "mine.toml"
    mine.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["bench", str(mine)]) == 2
    assert "say what to vary" in capsys.readouterr().err
    assert main(["bench", str(mine), "--parameter", "nu"]) == 0
    assert main(["bench", "ablation", "--parameter", "nu"]) == 0
    assert asked == [Path("results/mine"), Path("results/ablation")]


def test_an_ablation_of_another_environment() -> None:
    suite = suites.with_tasks(with_sweep(load_suite("ablation"), "mu"), ["Pendulum-v1"], None)
    runs = checked_runs(suite)
    assert {run.method for run in runs} == {"fac", "fac@mu=30", "fac@mu=70", "fac@mu=100"}
    assert {run.steps for run in runs} == {20_000}
    assert suite.tasks[0].algo == "sac"
    other = suites.with_tasks(load_suite("paper"), [], "td3")
    assert {task.algo for task in other.tasks} == {"td3"}


def test_settings_of_the_command_line_outrank_the_suite() -> None:
    pairs = ["net-arch=[8, 8]", "fac_bins=70", "fac_warmup_steps=300"]
    runs = {run.method: run for run in expand(suites.with_settings(load_suite("smoke"), pairs))}
    assert runs["baseline"].settings["net_arch"] == [8, 8]
    assert runs["fac"].settings["fac_bins"] == 70
    assert {run.warmup_steps for run in runs.values()} == {300}
    # Settings of a filter go to the methods that have it.
    for name, run in runs.items():
        assert ("fac_bins" in run.settings) == name.startswith("fac"), name


def test_environments_are_tried_with_their_arguments_and_wrappers() -> None:
    suite = replace(load_suite("smoke"), methods=("baseline",), seeds=(0,))
    pairs = ['env_kwargs={"g": 9.81}', 'wrappers=["gymnasium.wrappers:FlattenObservation"]']
    assert len(checked_runs(suites.with_settings(suite, pairs))) == len(suite.tasks)
    with pytest.raises(ConfigError, match="no_such_argument"):
        checked_runs(suites.with_settings(suite, ["env_kwargs={no_such_argument = 1}"]))
    with pytest.raises(ConfigError, match="NoSuchWrapper"):
        checked_runs(suites.with_settings(suite, ['wrappers=["gymnasium.wrappers:NoSuchWrapper"]']))


def test_names_and_seeds_are_split() -> None:
    assert suites.method_names("baseline, fac@epsilon=0.1,mu=70,laber,laber") == (
        "baseline",
        "fac@epsilon=0.1,mu=70",
        "laber",
    )
    assert suites.parse_seeds("2") == (0, 1)
    assert suites.parse_seeds("3,") == (3,)
    assert suites.parse_seeds("0,2") == (0, 2)


def test_a_report_can_be_written_elsewhere_and_opened(
    make_results: MakeResults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address))
    root = make_results()
    out = tmp_path / "elsewhere"
    assert main(["report", str(root), "--out", str(out), "--open"]) == 0
    assert (out / "report.html").is_file()
    assert not (root / "report.html").exists()
    assert opened == [(out / "report.html").as_uri()]
    assert f"report: {out / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ('{"suite": "smoke"}', "lists no runs"),
        ('{"runs": [{"env": "Pendulum-v1"}]}', "without all of its settings"),
        ('{"runs": [{"env"', "no readable grid.json"),
    ],
)
def test_a_damaged_grid_is_refused(
    grid: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grid.json").write_text(grid, encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_report_whose_runs_are_gone_stays(
    make_results: MakeResults, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_results()
    assert main(["report", str(root)]) == 0
    before = (root / "report.html").read_bytes()
    (root / "runs").rename(root.parent / "elsewhere")
    assert main(["report", str(root)]) == 2
    assert "not the runs it was made from" in capsys.readouterr().err
    assert (root / "report.html").read_bytes() == before


def test_an_empty_results_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no results" in capsys.readouterr().err
