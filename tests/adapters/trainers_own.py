"""The trainers' own tests with our buffer swapped in.

    pip download --no-binary :all: --no-deps stable_baselines3 sb3_contrib sbx-rl
    python tests/adapters/trainers_own.py DIRECTORY ... [-- ARGUMENTS OF PYTEST]

No trainer installs its tests, but the source distributions of these three carry them: unpack those,
or give checkouts. Their own `tests` run with FrugalReplayBuffer (everything admitted) wherever an
algorithm or a test would make a ReplayBuffer, DictReplayBuffer or NStepReplayBuffer; what fails
twice and is no refusal that we expect is listed. Stable-Baselines3's need ale-py. Everything takes
long; `-- tests -k "SAC or TD3 or DDPG or DQN or TQC or CrossQ or uffer or nstep"` takes less.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What our buffer does not do, by the test that asks for it, and why.
_BY_ROW = "by row and environment, which are not all kept"
EXPECTED_REFUSALS = {
    "test_buffers.py::test_buffer_dtypes": f"reads `observations` {_BY_ROW}",
    "test_save_load.py::test_save_load_replay_buffer": f"reads `observations` {_BY_ROW}",
    "test_sde.py::test_state_dependent_noise": f"reads `actions` {_BY_ROW}",
    "test_n_step_replay.py::test_nstep_no_terminations": "draws a step before the n - 1 after it "
    "are known, and writes to `dones` by row and environment",
    "test_save_load.py::test_warn_buffer": "waits for the warning that optimize_memory_usage cuts "
    "an episode off when `learn` is called again; ours has no need to",
}

_SWAP = '''
"""Puts FrugalReplayBuffer in the place of the plain buffers, before any test is imported."""

import frugalrl
import stable_baselines3.common.buffers as buffers
import stable_baselines3.common.off_policy_algorithm as algorithm
from frugalrl.adapters.sb3 import FrugalReplayBuffer

NAMES = ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer")
plain = {name: getattr(buffers, name) for name in NAMES}


class IsPlain(type(FrugalReplayBuffer)):
    """Lets any buffer of Stable-Baselines3 pass where a loaded one is looked at."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, plain["ReplayBuffer"])


class Swapped(FrugalReplayBuffer, metaclass=IsPlain):
    def __init__(self, *positional, **named):
        named.setdefault("admission", frugalrl.AdmitAll())
        super().__init__(*positional, **named)


modules = [buffers, algorithm]
try:
    import sbx.common.off_policy_algorithm as sbx_algorithm
except ImportError:
    pass
else:
    modules.append(sbx_algorithm)
for module in modules:
    for name in NAMES:
        setattr(module, name, Swapped)


def pytest_collection_finish():
    """Give Stable-Baselines3's buffers back to HerReplayBuffer, when the tests have ours."""
    for name in NAMES:
        setattr(buffers, name, plain[name])
'''


def run_checkout(directory: Path, arguments: list[str]) -> list[str]:
    """Run a checkout's tests with the buffers swapped; returns the tests that failed."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, "frugal_swap.py").write_text(_SWAP, encoding="utf-8")
        search = os.pathsep.join([work, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "frugal_swap"]
        process = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *(arguments or ["tests"])],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": search},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.wait() not in (0, 1):
        return [f"pytest ended with {process.returncode} in {directory}"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return [line.partition(" ")[2].partition(" - ")[0] for line in failed]


def function_of(test: str) -> str:
    """Give a test's file and name, without its folder and parameters."""
    return test.partition("[")[0].rpartition("/")[2]


def main(arguments: list[str]) -> int:
    """Run what is asked for; returns 1 if anything fails that should not."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    refused: set[str] = set()
    unexpected: list[str] = []
    for directory in map(Path, arguments[:split]):
        failed = run_checkout(directory.resolve(), arguments[split + 1 :])
        refused |= {function_of(test) for test in failed} & EXPECTED_REFUSALS.keys()
        failed = [test for test in failed if function_of(test) not in refused]
        # Some of their tests draw without a seed and fail now and then, with any buffer.
        unexpected += run_checkout(directory.resolve(), failed) if failed else []
    for name in sorted(refused):
        print(f"expected: {name} {EXPECTED_REFUSALS[name]}")
    for test in unexpected:
        print(f"unexpected, twice: {test}")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
