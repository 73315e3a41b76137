"""How good a policy is: whole episodes, each from its own seed, without exploration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.policy import Policy
from frugalrl.state_io import load_state, save_state
from frugalrl.training import environments
from frugalrl.training.environments import Environment, find_environment, make_factory
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.run_directory import RunDirectory

_ASK_EVERY = 1000
LONGEST = 10_000
"""Steps of an evaluation episode at most, where the environment has no time limit."""

KIND = "policy"
VERSION = 1


@dataclass(frozen=True, repr=False)
class Episodes:
    """What a policy earned, episode by episode."""

    seeds: NDArray[np.int64]
    rewards: NDArray[np.float64]
    """(n,) sum of an episode's rewards, its last step included."""
    lengths: NDArray[np.int64]
    control_costs: NDArray[np.float64]
    """(n,) sum over an episode of the squared norm of the action."""
    last_rewards: NDArray[np.float64]
    """(n,) reward of an episode's last step, which some published numbers leave out."""
    successes: NDArray[np.float64]
    """1 or 0 for each episode whose last info says `is_success`."""
    cut: int
    """Episodes given up because they took too long."""

    @property
    def mean(self) -> float:
        """Mean reward."""
        return float(self.rewards.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the rewards over episodes."""
        return float(self.rewards.std())

    @property
    def success_rate(self) -> float | None:
        """Share of successes, None where the environment does not say."""
        return float(self.successes.mean()) if len(self.successes) else None

    def __repr__(self) -> str:
        rate = self.success_rate
        told = "" if rate is None else f", success rate {rate:.0%}"
        return f"Episodes({len(self.rewards)}, reward {self.mean:,.2f} ± {self.std:,.2f}{told})"

    def to_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        names = ["seeds", "rewards", "lengths", "control_costs", "last_rewards"]
        names += ["successes"] if len(self.successes) else []
        return {name: getattr(self, name).tolist() for name in names}


def run_episodes(
    policy: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    environment: Environment,
    seeds: Sequence[int],
    stop: Callable[[], bool] = lambda: False,
    frame: Callable[[], None] = lambda: None,
    longest: int | None = None,
) -> Episodes | None:
    """Run one episode from each seed; gives None if `stop` said so.

    Args:
        policy: maps one observation (d,) to one action (a,).
        environment: is reset with each seed in turn.
        seeds: one per episode.
        stop: asked between episodes, and now and then in long ones, whether to give up.
        frame: called at every moment of an episode, for pictures.
        longest: steps after which an episode is given up, so that none goes on for ever.
    """
    rows: list[tuple[float, int, float, float]] = []
    successes: list[float] = []
    shape = environment.observation_space.shape or ()
    cut = 0
    for seed in seeds:
        if stop():
            return None
        total = cost = 0.0
        length, over = 0, False
        observation = environments.reset(environment, shape, int(seed))
        frame()
        while not over:
            action = policy(np.asarray(observation, dtype=np.float32))
            cost += float(np.square(action, dtype=np.float64).sum())
            observation, reward, terminated, truncated, info = environments.step(
                environment, action, shape
            )
            frame()
            total += float(reward)
            length += 1
            over = bool(terminated or truncated)
            if length == longest and not over:
                over = True
                cut += 1
            if length % _ASK_EVERY == 0 and stop():
                return None
        rows.append((total, length, cost, float(reward)))
        if "is_success" in info:
            successes.append(float(info["is_success"]))
    rewards, lengths, costs, lasts = map(np.array, zip(*rows, strict=True))
    numbers = np.asarray(seeds, np.int64)
    return Episodes(numbers, rewards, lengths, costs, lasts, np.array(successes), cut)


def save_policy(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a policy to a file, for `load_policy`."""
    save_state(path, state, kind=KIND, version=VERSION)


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
    source = Path(path)
    file = source if source.is_file() else source / "policy.safetensors"
    if file.is_file():
        return Policy.from_state(load_state(file, kind=KIND, version=VERSION))
    found = RunDirectory(source).checkpoints.newest()
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
    for name, value, least in (
        ("episodes", episodes, 1),
        ("seed", seed, 0),
        ("max_episode_steps", max_episode_steps, 1),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{name}={value} must be at least {least}")
    is_path = isinstance(policy, (str, os.PathLike))
    if env is not None:
        factory = find_environment(env, max_episode_steps=max_episode_steps)
    elif is_path:
        factory = make_factory(RunDirectory(policy).read_config()[0])
    else:
        raise ConfigError("env is not set: which environment should the policy act in?")
    if is_path:
        policy = load_policy(policy)
        policy.seed(seed)  # else nobody could draw the same noise again
    act = policy if deterministic else lambda o: policy.predict(o, deterministic=False)[0]
    longest = max_episode_steps or (None if factory.time_limit else LONGEST)
    with contextlib.closing(factory.make()) as environment:
        found = run_episodes(act, environment, range(seed, seed + episodes), longest=longest)
    assert found is not None
    return found
