"""The command line, as a user meets it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import imageio.v3
import numpy as np
import pytest

from frugalrl import cli
from frugalrl.commands.arguments import parse
from frugalrl.commands.train import Arguments

TINY = [
    *("--steps", "300", "--learning-starts", "50", "--batch-size", "16", "--net-arch", "8", "8"),
    *("--eval-every", "100", "--eval-episodes", "1", "--final-episodes", "2"),
    *("--log-every", "100", "--checkpoint-every", "100", "--no-tensorboard", "--preset", "none"),
]


def test_help_lists_every_command_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from frugalrl.cli import main\n"
        "code = main(['--help'])\n"
        "print([m for m in ('numpy', 'tyro', 'jax', 'gymnasium') if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in cli.COMMANDS:
        assert f"  {name} " in done.stdout
    assert done.stdout.endswith("[] 0\n")


def test_mistakes_are_usage_errors(capsys):
    assert cli.main([]) == 2
    assert cli.main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("frugalrl ")
    assert cli.main(["train", "Pendulm-v1", "--steps", "5"]) == 2
    assert "did you mean Pendulum-v1?" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "Pendulum-v1", "--stepz", "5"])
    assert stop.value.code == 2
    assert cli.main(["eval", "nowhere"]) == 2
    assert cli.main(["inspect", "nowhere"]) == 2
    assert cli.main(["train", "--resume", "nowhere"]) == 2
    assert capsys.readouterr().err.count("there is no run") == 3


def test_a_damaged_configuration_is_told_without_a_traceback(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{")
    for command in (["train", "--resume"], ["eval"]):
        assert cli.main([*command, str(tmp_path)]) == 2
        assert "config.json cannot be read" in capsys.readouterr().err


def test_switches_of_the_preset_stand_alone_or_with_a_value(tmp_path, capsys):
    used = str(tmp_path / "file")
    Path(used).write_text("")
    # The wrong directory is found last, so whatever stands before it was accepted.
    for words in (["--use-sde"], ["--no-use-sde"], ["--use-sde", "False", "--seed", "3"]):
        assert cli.main(["train", "Pendulum-v1", *words, "--out", used]) == 2
        assert "is a file" in capsys.readouterr().err
    assert cli.main(["train", "Pendulum-v1", "--algo", "td3", "--use-sde"]) == 2
    assert "use_sde=True is for algo='sac'" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: frugalrl {command}" in capsys.readouterr().out


def test_the_help_of_train_shows_the_real_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    told = " ".join(re.sub("[│|]", " ", capsys.readouterr().out).split())
    assert "default: None" not in told
    assert "preset, else 0.0003 (sac), 0.001 (td3, ddpg)" in told
    assert "(default: preset, else 256)" in told
    assert "Kernel of the reward density. (default: epanechnikov)" in told


def test_presets_are_listed(capsys):
    assert cli.main(["presets"]) == 0
    table = capsys.readouterr().out
    assert "MountainCarContinuous  sac  steps 50000" in table
    others = {line.split()[2]: line for line in table.splitlines() if line.startswith("any other")}
    assert [algo for algo, line in others.items() if "ent_coef" in line] == ["sac"]
    assert [algo for algo, line in others.items() if "policy_delay" in line] == ["td3"]
    assert cli.main(["presets", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Hopper/td3"]["learning_rate"] == 3e-4


def test_train_eval_inspect(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--admission", "fac", "--fac-warmup-steps", "100", "--fac-bins", "20", "--envs", "2"]
    assert cli.main(["train", "Pendulum-v1", *TINY, *flags]) == 0
    out = capsys.readouterr().out
    run = Path("runs/Pendulum-v1-sac-fac-seed0")
    assert "fac_bins 20" in out
    assert "final policy: reward" in out
    assert out.rstrip().endswith(f"files: {run}")
    stored = json.loads((run / "config.json").read_text())["config"]
    assert (stored["net_arch"], stored["fac_bins"], stored["envs"]) == ([8, 8], 20, 2)

    assert cli.main(["train", "Pendulum-v1", *TINY, *flags]) == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert "finished already" in capsys.readouterr().out
    assert cli.main(["train", "--resume", str(run), "--seed=3"]) == 2
    assert "--seed does not go with --resume" in capsys.readouterr().err
    assert cli.main(["report", str(run)]) == 2
    assert f"frugalrl inspect {run}" in capsys.readouterr().err

    assert cli.main(["eval", str(run), "--episodes", "2", "--json", "episodes.json"]) == 0
    assert "over 2 episodes" in capsys.readouterr().out
    final = json.loads((run / "final.json").read_text())["final"]
    assert json.loads(Path("episodes.json").read_text())["rewards"] == final["rewards"]

    assert cli.main(["inspect", str(run)]) == 0
    assert "cells" in capsys.readouterr().out
    assert cli.main(["inspect", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stats"]["offered"] == 300

    assert cli.main(["eval", str(run), "--episodes", "0"]) == 2
    assert cli.main(["eval", str(run), "--seed", "-1"]) == 2
    assert cli.main(["eval", str(run), "--json", "nowhere/episodes.json"]) == 2
    assert cli.main(["eval", str(run), "--json", str(tmp_path)]) == 2
    assert "is a directory; name a file" in capsys.readouterr().err
    assert cli.main(["eval", str(run), "--video", "film.avi"]) == 2
    assert cli.main(["eval", str(run), "--video", "nowhere/film.gif"]) == 2
    assert cli.main(["eval", str(run), "--episodes", "1", "--video", "film.gif"]) == 0
    assert Path("film.gif").stat().st_size > 10_000


def test_mistakes_of_the_train_command_are_told(tmp_path, capsys):
    assert cli.main(["train"]) == 2
    assert "which environment?" in capsys.readouterr().err
    assert cli.main(["train", "Pendulum-v1", "--resume", str(tmp_path)]) == 2
    assert "leave Pendulum-v1 out" in capsys.readouterr().err


def test_numbers_may_be_short_and_only_numbers(capsys):
    read = parse(Arguments, ["1e3", "--steps", "2.5e3", "--out", "1e5"], "train")
    assert (read.env, read.steps, read.out) == ("1e3", 2500, Path("1e5"))
    for word in ("1.5", "1e400", "nan", "many"):
        with pytest.raises(SystemExit):
            parse(Arguments, ["Pendulum-v1", "--steps", word], "train")
        assert "--steps" in capsys.readouterr().err


def test_a_run_is_prolonged_and_numbers_may_be_short(tmp_path, capsys):
    run = tmp_path / "1e5"
    words = ["train", "Pendulum-v1", *TINY, "--steps", "2e2", "--eval-every=1e3", "--out", str(run)]
    assert cli.main(words) == 0
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert "prolong it with" in capsys.readouterr().out
    assert cli.main(["train", "--resume", str(run), "--steps", "2.5e2"]) == 0
    final = json.loads((run / "final.json").read_text())
    assert final["env_steps"] == 250
    assert cli.main(["eval", str(run), "--episodes", "1", "--stochastic"]) == 0


def test_a_film_shows_the_episodes_that_were_measured_and_ends(tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert cli.main(["train", "Pendulum-v1", *TINY, "--quiet", "--out", str(run)]) == 0
    monkeypatch.setattr("frugalrl.training.evaluation.LONGEST", 9)
    monkeypatch.setattr("frugalrl.training.environments.EnvironmentFactory.time_limit", None)
    films = []
    for episodes in ("1", "3"):
        film = tmp_path / f"{episodes}.gif"
        words = ["--stochastic", "--episodes", episodes, "--video", str(film)]
        assert cli.main(["eval", str(run), *words]) == 0
        films.append(np.array(imageio.v3.imread(film)))
    assert 2 <= len(films[0]) <= 10  # its beginning and nine steps, less frames that are alike
    np.testing.assert_array_equal(*films)


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "frugalrl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("frugalrl ")


def test_adapters_are_found_without_importing_them():
    code = "import sys, frugalrl; frugalrl.adapters; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_training_extra_names_the_command(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "frugalrl.commands.train", raising=False)
    assert cli.main(["train", "Pendulum-v1"]) == 1
    assert 'pip install "frugalrl[train]"' in capsys.readouterr().err


def test_a_training_failure_is_told_without_a_traceback(tmp_path, monkeypatch, capsys):
    from frugalrl.training import run_directory

    def full(path, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_directory, "save_state", full)
    assert cli.main(["train", "Pendulum-v1", *TINY, "--out", str(tmp_path / "run")]) == 1
    captured = capsys.readouterr()
    assert "is the disk full?" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resuming_ends_with_the_same_bits(number, tmp_path):
    command = [sys.executable, "-m", "frugalrl.cli", "train"]
    settings = [*TINY, "--steps", "100000", "--checkpoint-every", "0", "--quiet"]
    run = tmp_path / "run"
    process = subprocess.Popen(
        [*command, "Pendulum-v1", *settings, "--out", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and _lines(run / "metrics.csv") < 3:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "saving the run" in err
    assert out == ""
    (saved,) = (run / "checkpoints").iterdir()
    stopped_at = int(saved.stem.removeprefix("step-"))
    assert 0 < stopped_at < 100_000
    # Short of 100,000 steps: the run ends soon after, for this process and for a fresh one.
    _shorten(run, stopped_at + 150)
    assert cli.main(["train", "--resume", str(run), "--quiet"]) == 0
    whole = tmp_path / "whole"
    steps = ["--steps", str(stopped_at + 150), "--out", str(whole)]
    assert cli.main(["train", "Pendulum-v1", *settings, *steps]) == 0
    prints = [json.loads((p / "final.json").read_text())["fingerprint"] for p in (run, whole)]
    assert prints[0] == prints[1]


def test_a_killed_run_ends_with_the_same_bits(tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    settings = [*TINY, "--steps", "100000", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "frugalrl.cli", "train", "Pendulum-v1", *settings, "--out", str(run)]
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and _lines(run / "metrics.csv") < 4:
        time.sleep(0.05)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    steps = max(int(path.stem.removeprefix("step-")) for path in _checkpoints(run)) + 150
    _shorten(run, steps)
    assert cli.main(["train", "--resume", str(run), "--quiet"]) == 0
    arguments = ["Pendulum-v1", *settings, "--steps", str(steps), "--out", str(whole)]
    assert cli.main(["train", *arguments]) == 0
    prints = [json.loads((p / "final.json").read_text())["fingerprint"] for p in (run, whole)]
    assert prints[0] == prints[1]
    columns = [[row.split(",")[2:-1] for row in _rows(p)] for p in (run, whole)]
    assert columns[0] == columns[1]


def _checkpoints(run: Path) -> list[Path]:
    return list((run / "checkpoints").glob("step-*.safetensors"))


def _rows(run: Path) -> list[str]:
    return (run / "metrics.csv").read_text().splitlines()


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.is_file() else 0


def _shorten(run: Path, steps: int) -> None:
    content = json.loads((run / "config.json").read_text())
    content["config"]["steps"] = steps
    (run / "config.json").write_text(json.dumps(content))
