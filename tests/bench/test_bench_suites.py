"""Suites as data: those that come along, those of a user, and what can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from frugalrl.agents.settings import NetArch
from frugalrl.bench import suites
from frugalrl.bench.errors import BenchError
from frugalrl.bench.methods import METHODS, PARAMETERS
from frugalrl.bench.runs import checked_runs, expand
from frugalrl.bench.worker import train_config
from frugalrl.training.config import resolve

MINE = """
name = "mine"
methods = ["baseline", "gentle"]
algorithms = ["sac"]
seeds = [3, 4]
evaluations = 7

[settings]
batch_size = 32

[frugal]
fac_warmup_steps = 100

[method.gentle]
based_on = "fac"
label = "Gentle FAC"
fac_density_threshold = 0.9

[[tasks]]
env = "Pendulum-v1"
steps = 500
settings = { learning_starts = 10 }
"""


def test_the_suites_that_come_along() -> None:
    paper = suites.load_suite("paper")
    assert len({task.env for task in paper.tasks}) == 9
    assert {task.algo for task in paper.tasks} == {"sac", "td3"}
    assert {"baseline", "fac", "fac-paper", "laber", "random-slot", "small"} <= set(paper.methods)
    steps = {(task.env, task.algo): task.steps for task in paper.tasks}
    assert steps["MountainCarContinuous-v0", "td3"] == 100_000
    assert steps["Humanoid-v4", "sac"] == 2_000_000
    ant = next(task for task in paper.tasks if task.env == "Ant-v5")
    assert ant.settings["env_kwargs"] == {"include_cfrc_ext_in_observation": False}
    assert len({task.env for task in suites.load_suite("classic").tasks}) == 3
    assert set(suites.load_suite("smoke").methods) == set(METHODS)
    assert set(suites.load_suite("ablation").sweeps) == set(PARAMETERS)


def test_only_the_actor_gets_smaller() -> None:
    suite = suites.load_suite("small-actor")
    configs = {
        run.method: resolve(train_config(run, {}, None)).config
        for run in expand(suite)
        if run.env == "Hopper-v5" and run.seed == 0
    }
    assert configs["baseline"].net_arch == configs["fac"].net_arch == (256, 256)
    for name in ("baseline-16", "fac-16"):
        arch = configs[name].net_arch
        assert isinstance(arch, NetArch)
        assert (arch.pi, arch.qf) == ((16, 16), (256, 256))
    assert configs["fac-16"].admission == "fac"


def test_the_first_environment_that_is_installed_is_taken() -> None:
    text = MINE.replace('env = "Pendulum-v1"', 'env = ["Pendulum-v0", "Pendulum-v1", "Ant-v5"]')
    assert suites.parse_suite(text, "mine.toml").tasks[0].env == "Pendulum-v1"
    text = MINE.replace('env = "Pendulum-v1"', 'env = ["Pendulum-v0", "Pendulum-v00"]')
    assert suites.parse_suite(text, "mine.toml").tasks[0].env == "Pendulum-v00"


def test_the_papers_ant_has_27_observations() -> None:
    from frugalrl.training.environments import find_environment

    ant = next(t for t in suites.load_suite("paper").tasks if t.env == "Ant-v5")
    environment = find_environment(ant.env, dict(ant.settings["env_kwargs"])).make()
    assert environment.observation_space.shape == (27,)
    environment.close()


def test_a_suite_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    suite = suites.load_suite(str(path))
    assert suite.seeds == (3, 4)
    assert suite.evaluations == 7
    method = suite.method("gentle")
    assert method.label == "Gentle FAC"
    assert method.settings == {"admission": "fac", "fac_density_threshold": 0.9}
    assert suite.tasks[0].settings == {"learning_starts": 10}


def test_a_printed_suite_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "paper.toml"
    path.write_text(suites.suite_text("paper"), encoding="utf-8")
    assert suites.load_suite(str(path)) == suites.load_suite("paper")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("methods = [", "methods = 3 # ["), "methods must be a list"),
        (('"gentle"]', '"gentel"]'), "method='gentel' is unknown; did you mean 'gentle'"),
        (("batch_size", "batch_sise"), "did you mean 'batch_size'"),
        (("seeds = [3, 4]", "seeds = []"), "no seeds"),
        (("seeds = [3, 4]", "seeds = [3, 3]"), "must be different"),
        (("seeds = [3, 4]", "seeds = 0"), "no seeds"),
        (("seeds = [3, 4]", 'seeds = "many"'), "neither a number of seeds nor a list"),
        (("steps = 500", "steps = -1"), "steps=-1 is out of range; use an integer from 1"),
        (("steps = 500", 'steps = "x"'), "steps='x' is no integer; use one from 1"),
        (("evaluations = 7", "evaluations = 0"), "evaluations=0 is out of range"),
        (("evaluations = 7", "evaluations = 2.5"), "evaluations=2.5 is no integer"),
        (("fac_warmup_steps = 100", "fac_warmup_steps = 'x'"), "fac_warmup_steps='x' is no int"),
        (("fac_density_threshold = 0.9", "fac_bins = -3"), "gentle: a --fac setting .*bins=-3"),
        (("[[tasks]]", "[[task]]"), "did you mean 'tasks'"),
        (('env = "Pendulum-v1"', "name = 1"), "needs env"),
        (('env = "Pendulum-v1"', "env = 1"), "needs env"),
        (('algorithms = ["sac"]', 'algorithms = ["sacc"]'), "did you mean 'sac'"),
        (("[method.gentle]", "[method.fac]"), "cannot be called 'fac'|is unknown"),
        (("[settings]", "[sweep.epsilonn]\nvalues = [1]\n[settings]"), "did you mean 'epsilon'"),
        (("[settings]", "[sweep.epsilon]\n[settings]"), "needs values"),
        (("[settings]", "[settings"), "not valid TOML"),
        (("batch_size = 32", "seed = 1"), "setting='seed' is unknown"),
        (("batch_size = 32", 'admission = "fac"'), "what methods differ in"),
        (("steps = 500", "steps = 500\nsac = 5"), "sac of Pendulum-v1 must be a table"),
        (('name = "mine"', "sweep = 3"), r"must be tables \[sweep.NAME\]"),
    ],
)
def test_mistakes_are_named(change: tuple[str, str], message: str) -> None:
    text = MINE.replace(*change)
    assert text != MINE
    with pytest.raises(BenchError, match=message):
        checked_runs(suites.parse_suite(text, "mine.toml"))


def test_a_setting_of_a_filter_that_a_method_has_not_is_refused() -> None:
    text = MINE.replace('based_on = "fac"', "").replace("fac_density_threshold", "fac_half_width")
    with pytest.raises(BenchError, match=r"gentle: fac_half_width=0\.9 has no effect"):
        checked_runs(suites.parse_suite(text, "mine.toml"))


def test_missing_tasks_and_files_are_named() -> None:
    with pytest.raises(BenchError, match=r"has no \[\[tasks\]\]"):
        suites.parse_suite('methods = ["fac"]', "mine.toml")
    with pytest.raises(BenchError, match=r"cannot read the suite nowhere\.toml"):
        suites.load_suite("nowhere.toml")
    with pytest.raises(BenchError, match="suite='papr' is unknown; did you mean 'paper'"):
        suites.load_suite("papr")


def test_only_keeps_what_is_named() -> None:
    paper = suites.load_suite("paper")
    hopper = suites.choose(paper, ["hopper", "sac"])
    assert [(task.env, task.algo) for task in hopper.tasks] == [("Hopper-v5", "sac")]
    two = suites.choose(paper, ["hopper", "walker", "fac"])
    assert {task.env for task in two.tasks} == {"Hopper-v5", "Walker2d-v5"}
    assert two.methods == ("fac",)
    with pytest.raises(BenchError, match="did you mean 'Hopper-v5'"):
        suites.choose(paper, ["hoper-v5"])


def test_a_sweep_compares_values_with_the_filter_as_it_is() -> None:
    ablation = suites.load_suite("ablation")
    assert suites.with_sweep(ablation, "epsilon").methods == (
        "fac",
        "fac@epsilon=0.1",
        "fac@epsilon=0.3",
        "fac@epsilon=0.5",
    )
    assert suites.with_sweep(ablation, "mu", [70]).methods == ("fac", "fac@mu=70")
    # From the command line values come as text: another spelling of the default is no other value.
    values = ["1e5", "100000", "5e4"]
    assert suites.with_sweep(ablation, "eta", values).methods == ("fac", "fac@eta=50000")
    with pytest.raises(BenchError, match="parameter='epsilom' is unknown; did you mean 'epsilon'"):
        suites.with_sweep(ablation, "epsilom")
    with pytest.raises(BenchError, match="has no values for mu"):
        suites.with_sweep(suites.load_suite("smoke"), "mu")


def test_controls_bring_with_them_what_they_match() -> None:
    from dataclasses import replace

    methods = ("baseline", "small", "random-slot", "random-drop", "small@of=fac@mu=70")
    suite = replace(suites.load_suite("smoke"), methods=methods)
    added, notes = suites.with_required_methods(suite)
    assert added.methods == ("fac", "fac-paper", "fac@mu=70", *methods)
    assert notes == [
        "fac is added: the size of small and random-slot comes from its runs",
        "fac-paper is added: the size of random-drop comes from its runs",
        "fac@mu=70 is added: the size of small@of=fac@mu=70 comes from its runs",
    ]
    assert suites.with_required_methods(added) == (added, [])


def test_values_are_toml_or_text() -> None:
    assert suites.parse_value("0.5") == 0.5
    assert suites.parse_value("[64, 64]") == [64, 64]
    assert suites.parse_value("lin_7.3e-4") == "lin_7.3e-4"
