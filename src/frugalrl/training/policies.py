"""Loading a trained policy, with NumPy alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frugalrl.state_io import load_state
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.evaluation import Episodes
from frugalrl.training.run_directory import RunDirectory

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


def evaluate(
    policy: Any,
    env: Any = None,
    *,
    episodes: int = 100,
    seed: int = 1_000_000,
    deterministic: bool = True,
    max_episode_steps: int | None = None,
) -> Episodes:
    """Measure how good a policy is: one episode from each of as many seeds.

    Args:
        policy: a policy, a run directory or a policy file, or any function from one observation
            to one action.
        env: as in `TrainConfig`; None: that of the run directory.
        episodes: how many.
        seed: of the first; the default gives the episodes of a run's own final evaluation.
        deterministic: whether to act without SAC's noise.
        max_episode_steps: cut episodes off after so many steps.

    Raises:
        ConfigError: a value cannot work.
        RunDirectoryError: there is no policy.
    """
    from frugalrl.training import evaluation
    from frugalrl.training.environments import find_environment
    from frugalrl.training.runner import make_factory

    if episodes < 1:
        raise ConfigError(f"episodes={episodes} must be at least 1")
    if isinstance(policy, (str, os.PathLike)):
        if env is None:
            directory = RunDirectory(policy)
            directory.check_is_run()
            factory = make_factory(directory.read_config()[0])
        policy = load_policy(policy)
    elif env is None:
        raise ConfigError("env is not set: which environment should the policy act in?")
    if env is not None:
        factory = find_environment(env, max_episode_steps=max_episode_steps)
    act = policy if deterministic else lambda o: policy.predict(o, deterministic=False)[0]
    environment = factory.make()
    longest = max_episode_steps or (None if factory.time_limit else evaluation.LONGEST)
    try:
        found = evaluation.evaluate(act, environment, range(seed, seed + episodes), longest=longest)
    finally:
        environment.close()
    assert found is not None
    return found
