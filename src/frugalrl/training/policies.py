"""Loading a trained policy, with NumPy alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from frugalrl.state_io import load_state
from frugalrl.training.errors import RunDirectoryError

if TYPE_CHECKING:
    from frugalrl.agents.policy import Policy

KIND = "policy"
VERSION = 1


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Load the policy of a run.

    Args:
        path: a run directory or a policy.safetensors file. Of a run that is not finished, the
            newest checkpoint's policy is taken.

    Returns:
        A function from one observation (d,) or several (n, d) to actions, without exploration.

    Raises:
        RunDirectoryError: there is no policy.
        StateFileError: the file is damaged.
    """
    from frugalrl.agents.policy import Policy

    source = Path(path)
    if source.is_file():
        return Policy.from_state(load_state(source, kind=KIND, version=VERSION))
    file = source / "policy.safetensors"
    if file.is_file():
        return Policy.from_state(load_state(file, kind=KIND, version=VERSION))
    found = None
    if (source / "checkpoints").is_dir():
        from frugalrl.training.checkpoint import CheckpointStore

        found = CheckpointStore(source / "checkpoints", keep=1).newest()
    if found is None:
        raise RunDirectoryError(
            f"{str(source)!r} holds no policy: neither policy.safetensors nor a checkpoint"
        )
    return Policy.from_state(found.state["policy"])
