"""The trainers' own buffer tests with our buffers swapped in.

    python tests/adapters/trainers_own.py DIRECTORY ...

No trainer ships its tests in its package, so give checkouts of Stable-Baselines3, sb3-contrib or
SBX. Their own `tests/` run with FrugalReplayBuffer (everything admitted) wherever an algorithm
would make a ReplayBuffer, DictReplayBuffer or NStepReplayBuffer; what fails unexpectedly is listed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What our buffer does not do, by a word in the name of a test's file or function, and why.
EXPECTED_REFUSALS = {
    "her": "hindsight reads the transitions after another one, which admission may have dropped",
    "n_step": "their tests write and read `rewards`, `dones` and `timeouts` by row and environment",
    "buffers.py": "they read `observations` and the like by row and environment",
    "performance": "they count the bytes of a buffer whose whole capacity is allocated at once",
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
for module in modules:
    for name in ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer"):
        setattr(module, name, Swapped)
'''


def run_checkout(directory: Path) -> list[str]:
    """Run a checkout's tests with the buffers swapped; returns the lines of unexpected failures."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, "frugal_swap.py").write_text(_SWAP, encoding="utf-8")
        search = os.pathsep.join([work, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "frugal_swap"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", str(directory / "tests")],
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
    name = line.split(" ")[1].rpartition("tests/")[2]
    return any(word in name.lower() for word in EXPECTED_REFUSALS)


def main(arguments: list[str]) -> int:
    """Run what is asked for; returns 1 if anything fails that should not."""
    unexpected: list[str] = []
    for directory in arguments:
        unexpected += run_checkout(Path(directory).resolve())
    for word, reason in EXPECTED_REFUSALS.items():
        print(f"expected: tests named *{word}*: {reason}")
    for line in unexpected:
        print(f"unexpected: {line}")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
