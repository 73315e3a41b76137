"""How good a policy is: whole episodes, each from its own seed, without exploration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.training.environments import Environment

_ASK_EVERY = 1000

Policy = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
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

    @property
    def mean(self) -> float:
        """Mean reward."""
        return float(self.rewards.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the rewards over episodes."""
        return float(self.rewards.std())

    def to_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return {
            "seeds": self.seeds.tolist(),
            "rewards": self.rewards.tolist(),
            "lengths": self.lengths.tolist(),
            "control_costs": self.control_costs.tolist(),
            "last_rewards": self.last_rewards.tolist(),
        }


def evaluate(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    stop: Callable[[], bool] = lambda: False,
    frame: Callable[[], None] = lambda: None,
) -> Episodes | None:
    """Run one episode from each seed.

    Args:
        policy: maps one observation (d,) to one action (a,).
        environment: is reset with each seed in turn.
        seeds: one an episode.
        stop: asked between episodes, and now and then in long ones, whether to give up.
        frame: called at every moment of an episode, for pictures.

    Returns:
        The episodes, None if `stop` said so.
    """
    rewards, lengths, costs, lasts = [], [], [], []
    for seed in seeds:
        if stop():
            return None
        total = cost = 0.0
        length = 0
        observation, _ = environment.reset(seed=int(seed))
        frame()
        over = False
        while not over:
            action = policy(np.asarray(observation, dtype=np.float32))
            observation, reward, terminated, truncated, _ = environment.step(action)
            frame()
            total += float(reward)
            cost += float(np.square(action, dtype=np.float64).sum())
            length += 1
            over = bool(terminated or truncated)
            if length % _ASK_EVERY == 0 and stop():
                return None
        rewards.append(total)
        lengths.append(length)
        costs.append(cost)
        lasts.append(float(reward))
    return Episodes(
        np.asarray(seeds, dtype=np.int64),
        np.array(rewards),
        np.array(lengths, dtype=np.int64),
        np.array(costs),
        np.array(lasts),
    )
