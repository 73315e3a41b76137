"""The trainers' own tests with our buffer swapped in.

    pip download --no-binary :all: --no-deps stable_baselines3 sb3_contrib sbx-rl
    python tests/adapters/trainers_own.py DIRECTORY ... [-- ARGUMENTS OF PYTEST]

No trainer installs its tests, but the source distributions of these three carry them: unpack those,
or give checkouts. Their own `tests` run with FrugalReplayBuffer (everything admitted) wherever an
algorithm or a test would make a ReplayBuffer, DictReplayBuffer or NStepReplayBuffer; what fails
unexpectedly is listed. Everything takes long; `-- tests/test_buffers.py -k "not PPO"` takes less.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What our buffer does not do, by the name of the test that asks for it, and why.
_BY_ROW = "reads `observations` by row and environment, which are not all kept"
EXPECTED_REFUSALS = {
    "test_buffer_dtypes": _BY_ROW,
    "test_save_load_replay_buffer": _BY_ROW,
    "test_nstep_no_terminations": "draws a step before the n - 1 after it are known, and writes to "
    "`dones` by row and environment",
    "test_warn_buffer": "waits for the warning that optimize_memory_usage cuts an episode off when "
    "`learn` is called again; ours has no need to",
}

_SWAP = '''
"""Puts FrugalReplayBuffer in the place of the plain buffers, before any test is imported."""

import frugalrl
import stable_baselines3.common.buffers as buffers
import stable_baselines3.common.off_policy_algorithm as algorithm
from frugalrl.adapters.sb3 import FrugalReplayBuffer


class Swapped(FrugalReplayBuffer):
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
NAMES = ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer")
plain = {name: getattr(buffers, name) for name in NAMES}
for module in modules:
    for name in NAMES:
        setattr(module, name, Swapped)


def pytest_collection_finish():
    """Give Stable-Baselines3's buffers back to HerReplayBuffer, when the tests have ours."""
    for name in NAMES:
        setattr(buffers, name, plain[name])
'''


def run_checkout(directory: Path, arguments: list[str]) -> list[str]:
    """Run a checkout's tests with the buffers swapped; returns the lines of unexpected failures."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, "frugal_swap.py").write_text(_SWAP, encoding="utf-8")
        search = os.pathsep.join([work, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "frugal_swap"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *(arguments or ["tests"])],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = (done.stdout + done.stderr).splitlines()
    print("\n".join(lines[-1:]))
    if done.returncode not in (0, 1):
        return [f"pytest ended with {done.returncode} in {directory}"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return [line for line in failed if not is_expected(line)]


def is_expected(line: str) -> bool:
    """Tell whether a failed test is among the refusals that have a reason."""
    name = line.split(" ")[1].rpartition("::")[2]
    return name.partition("[")[0] in EXPECTED_REFUSALS


def main(arguments: list[str]) -> int:
    """Run what is asked for; returns 1 if anything fails that should not."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    unexpected: list[str] = []
    for directory in arguments[:split]:
        unexpected += run_checkout(Path(directory).resolve(), arguments[split + 1 :])
    for name, reason in EXPECTED_REFUSALS.items():
        print(f"expected: {name} {reason}")
    for line in unexpected:
        print(f"unexpected: {line}")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
