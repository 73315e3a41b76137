"""Compiled code gives the same bits in the process that compiles it and in all later ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import hashlib
from agent_cases import learner_state, make, make_batch

digest = hashlib.sha256()
for case in ("sac", "sac-sde", "sac-large", "td3"):
    agent = make(case, net_arch=(64, 64), batch_size=64)
    for seed in range(3):
        agent.update(make_batch(agent, updates=2, seed=seed))
    for value in learner_state(agent).values():
        digest.update(value.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_whether_code_is_compiled_or_loaded_makes_no_difference(tmp_path):
    search = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    surroundings = os.environ | {"FRUGALRL_CACHE_DIR": str(tmp_path), "PYTHONPATH": search}
    surroundings.pop("FRUGALRL_FIRST_PROCESS", None)  # else it leaves "compiling" to be told here
    digests = [
        subprocess.run(
            [sys.executable, "-c", RUN],
            env=surroundings,
            capture_output=True,
            text=True,
            check=True,
            timeout=900,
        )
        for _ in range(2)
    ]
    assert "compiling" in digests[0].stderr
    assert digests[1].stderr == ""
    assert digests[0].stdout == digests[1].stdout
