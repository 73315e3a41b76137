"""A real grid, a few thousand steps in all: run, killed, resumed, reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from frugalrl.bench.calibrate import measure_speed
from frugalrl.bench.errors import BenchError
from frugalrl.bench.grid import steps_done
from frugalrl.bench.results import read_results
from frugalrl.bench.runs import expand
from frugalrl.bench.suites import load_suite, with_settings
from frugalrl.files import read_json

# In one process, so that the grid is run once.
pytestmark = pytest.mark.xdist_group("end to end")

SETTINGS = (
    "net_arch=[8, 8]",
    "batch_size=16",
    "learning_starts=100",
    "log_every=100",
    "checkpoint_every=400",
    "eval_episodes=1",
    "final_episodes=2",
    "fac_warmup_steps=300",
)


def command(out: Path, methods: str) -> list[str]:
    words = ["compare", "Pendulum-v1", "--algo", "td3", "--methods", methods, "--seeds", "1"]
    words += ["--steps", "4000", "--evaluations", "4", "--jobs", "2", "--out", str(out)]
    return [sys.executable, "-m", "frugalrl.cli", *words, "--set", *SETTINGS]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grid") / "results"
    done = subprocess.run(
        command(out, "baseline,fac,fac-paper,small,random-slot,random-drop"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_run_is_measured(results: Path) -> None:
    found = read_results(results)
    assert found.problems == ()
    runs = {result.run.method: result for result in found.runs}
    baseline, fac = runs["baseline"], runs["fac"]
    assert baseline.number("size") == 4_000
    assert 300 <= fac.number("size") < 4_000
    assert fac.number("replaced") > 0
    for key in ("reward", "control_cost", "train_seconds", "peak_memory_bytes", "buffer_bytes"):
        assert baseline.number(key) == baseline.number(key), key  # measured: not NaN
    assert -2_000 < baseline.number("random_reward") < -500
    steps, rewards = baseline.curve
    assert steps.tolist() == [1_000, 2_000, 3_000, 4_000]
    assert rewards.size == 4
    # No trace of what is large and no longer needed.
    assert not list(results.glob("runs/**/*.safetensors.tmp"))
    assert not list(results.glob("runs/**/buffer.safetensors"))


def test_controls_follow_fac(results: Path) -> None:
    runs = {result.run.method: result for result in read_results(results).runs}
    size = runs["fac"].number("size")
    assert runs["small"].number("size") == size
    assert runs["small"].done["derived"] == {"buffer_size": size}
    for control, source in (("random-slot", "fac"), ("random-drop", "fac-paper")):
        sizes = [runs[name].metrics["buffer_size"] for name in (control, source)]
        np.testing.assert_array_equal(*sizes)  # the same size at every recorded step
        assert sizes[0][-1] < 4_000
    assert runs["random-slot"].number("dropped") == 0
    assert runs["random-drop"].number("replaced") == 0


def test_the_theorems_are_measured_on_the_real_buffers(results: Path) -> None:
    runs = {result.run.method: result for result in read_results(results).runs}
    for name in ("baseline", "fac"):
        buffer = runs[name].buffer
        measures, minibatch = buffer["measures"], buffer["minibatch"]
        assert measures["size"] == runs[name].number("size")
        assert 0.0 < measures["entropy"] <= measures["entropy_limit"]
        assert measures["gap"] == pytest.approx(measures["entropy_limit"] - measures["entropy"])
        assert minibatch["batch_size"] == 16
        assert min(minibatch["factor"], minibatch["pair_factor"]) >= 1.0
        assert (buffer["observations"], buffer["actions"]) == (3, 1)
        assert buffer["important_dimensions"] == 1
    # All are judged by the same cells, whether a buffer still holds its warm-up or not.
    assert max(result.buffer["cells"] for result in runs.values()) <= 50
    gaps = {name: runs[name].buffer["measures"]["gap"] for name in ("baseline", "fac")}
    assert gaps["fac"] < gaps["baseline"]
    kept = runs["baseline"].buffer["map"]
    assert sum(map(sum, kept["visited"])) == 4_000
    assert 300 <= sum(map(sum, kept["stored"])) < 4_000


def test_the_report_tells_of_it(results: Path) -> None:
    text = (results / "report.html").read_text("utf-8")
    assert "Pendulum-v1 with TD3" in text
    assert "only 1 seed" in text
    assert "frugalrl compare Pendulum-v1 --algo td3" in text
    assert "states stored" in text


def test_killed_and_started_again_it_ends_with_the_same_bits(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    run = out / "runs/Pendulum-v1/td3/baseline/seed-0/run"
    grid = subprocess.Popen(
        command(out, "baseline"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 900
    while steps_done(run / "metrics.csv") < 500 and time.monotonic() < deadline:
        assert grid.poll() is None
        time.sleep(0.02)
    os.kill(grid.pid, signal.SIGKILL)
    grid.wait()
    assert not (run / "final.json").exists()
    done = subprocess.run(command(out, "baseline"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed  Pendulum-v1 td3 baseline seed 0" in done.stdout
    assert "resuming from" in (run / "run.log").read_text("utf-8")
    whole = results / "runs/Pendulum-v1/td3/baseline/seed-0/run/final.json"
    fingerprints = [read_json(path) for path in (whole, run / "final.json")]
    assert fingerprints[0] is not None
    assert fingerprints[1] is not None
    assert fingerprints[0]["fingerprint"] == fingerprints[1]["fingerprint"]


def test_a_third_start_has_nothing_to_do(results: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in results.glob("runs/**/done.json")}
    done = subprocess.run(
        command(results, "baseline,fac,fac-paper,small,random-slot,random-drop"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "6 runs, 6 done before"
    assert before == {p: p.stat().st_mtime_ns for p in results.glob("runs/**/done.json")}


def test_a_changed_setting_is_refused(results: Path) -> None:
    words = [word.replace("batch_size=16", "batch_size=17") for word in command(results, "fac")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "batch_size was 16, is 17" in done.stderr


def test_a_crash_inside_a_run_is_shown_and_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class Broken(PendulumEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Broken.steps += 1\n"
        "        if Broken.steps > 150:\n"
        "            raise OverflowError('the pole <i>fell</i> off')\n"
        "        return super().step(action)\n"
        "gymnasium.register('Broken-v0', entry_point=Broken, max_episode_steps=100)\n",
        "utf-8",
    )
    out = tmp_path / "results"
    words = command(out, "baseline")
    words[words.index("Pendulum-v1")] = "broken:Broken-v0"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "OverflowError: the pole <i>fell</i> off" in done.stdout
    text = (out / "report.html").read_text("utf-8")
    assert "None of the 1 runs" in text
    assert "the pole &lt;i&gt;fell&lt;/i&gt; off" in text


def test_calibration_times_a_real_run() -> None:
    suite = with_settings(load_suite("smoke"), ["net_arch=[8, 8]", "batch_size=16"])
    run = next(run for run in expand(suite) if (run.method, run.algo) == ("fac", "td3"))
    speed = measure_speed(run)
    assert 1e-5 < speed.step < 1.0
    assert 1e-6 < speed.evaluation_step < 0.1
    assert speed.episode_steps == 200


def test_a_run_that_cannot_be_timed_says_why() -> None:
    run = expand(load_suite("smoke"))[0]
    broken = type(run).from_json({**run.to_json(), "env": "Nowhere-v0"})
    with pytest.raises(BenchError, match="cannot be timed"):
        measure_speed(broken)
