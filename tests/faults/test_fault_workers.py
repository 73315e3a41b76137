"""What an environment may do wrong, here and in a worker, and what is said about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from frugalrl.training.environments import find_environment
from frugalrl.training.errors import BrokenEnvironmentError
from frugalrl.training.vector import AsyncGroup, SyncGroup

WRONG = {
    "scalar": r"observation of shape \(\); its space says \(2,\)",
    "row": r"observation of shape \(1, 2\)",
    "long": r"observation of shape \(3,\)",
    "rewards": r"the reward array\(\[",
    "old reset": r"a ndarray from reset\(\), not \(observation, info\)",
    "old step": r"a tuple of 4 from step\(\)",
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_shapes_are_never_broadcast(wrong, count):
    group = SyncGroup(find_environment("FrugalWrong-v0", {"wrong": wrong}), count, "fields")
    with pytest.raises(BrokenEnvironmentError, match=WRONG[wrong]):  # noqa: PT012
        group.reset(list(range(count)))
        group.step(np.zeros((count, 1), np.float32))


def test_wrong_shapes_in_a_worker():
    group = AsyncGroup(find_environment("FrugalWrong-v0", {"wrong": "row"}), 2, "fields")
    with pytest.raises(BrokenEnvironmentError, match=r"worker \d raised(.|\n)*shape \(1, 2\)"):
        group.reset([1, 2])


def test_a_constructor_that_hangs_in_a_worker_is_timed_out():
    factory = find_environment("FrugalLazy-v0", {"parent": os.getpid()})
    group = AsyncGroup(factory, 2, "fields", timeout=8.0)
    with pytest.raises(BrokenEnvironmentError, match=r"no answer within 8 s(.|\n)*__init__"):
        group.reset([1, 2])
    assert not any(process.is_alive() for process in group.processes)


HANGING = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
import training_worlds
training_worlds.register()
from frugalrl.training.environments import find_environment
from frugalrl.training.vector import AsyncGroup

if __name__ == "__main__":
    factory = find_environment(
        "training_worlds:FrugalFaulty-v0", {{"fault": "hang", "at": 1}}
    )
    group = AsyncGroup(factory, 2, "fields")
    group.reset([1, 2])
    print(*(process.pid for process in group.processes), flush=True)
    group.step(np.zeros((2, 1), np.float32))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_hanging_worker_ends_with_its_parent_and_leaves_no_file(tmp_path):
    script = tmp_path / "script.py"
    tests = str(Path(__file__).parent.parent / "training")
    script.write_text(HANGING.format(tests=tests))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    workers = list(map(int, parent.stdout.readline().split()))
    assert len(workers) == 2
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(_lives, workers)):
        time.sleep(0.1)
    assert not any(map(_lives, workers))
    assert list(tmp_path.iterdir()) == [script]


def test_a_script_that_its_workers_cannot_import_is_told_why(tmp_path):
    script = tmp_path / "script.py"
    unguarded = HANGING.replace('if __name__ == "__main__":', "if True:")
    script.write_text(unguarded.format(tests=str(Path(__file__).parent.parent / "training")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 1
    assert "worker died while starting" in done.stderr.splitlines()[-1]
    assert "under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
