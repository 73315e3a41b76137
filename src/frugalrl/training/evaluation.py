"""How good a policy is: whole episodes, each from its own seed, without exploration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.training.environments import Environment, reset, step, success

_ASK_EVERY = 1000
LONGEST = 10_000
"""Steps of an evaluation episode at most, where the environment has no time limit."""

Policy = Callable[[NDArray[np.float32]], NDArray[np.float32]]


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
    successes: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """1 or 0 for each episode whose last info says `is_success`."""
    cut: int = 0
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
        return {
            "seeds": self.seeds.tolist(),
            "rewards": self.rewards.tolist(),
            "lengths": self.lengths.tolist(),
            "control_costs": self.control_costs.tolist(),
            "last_rewards": self.last_rewards.tolist(),
            **({"successes": self.successes.tolist()} if len(self.successes) else {}),
        }


def evaluate(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    stop: Callable[[], bool] = lambda: False,
    frame: Callable[[], None] = lambda: None,
    longest: int | None = None,
) -> Episodes | None:
    """Run one episode from each seed.

    Args:
        policy: maps one observation (d,) to one action (a,).
        environment: is reset with each seed in turn.
        seeds: one per episode.
        stop: asked between episodes, and now and then in long ones, whether to give up.
        frame: called at every moment of an episode, for pictures.
        longest: steps after which an episode is given up, so that none goes on for ever.

    Returns:
        The episodes, None if `stop` said so.
    """
    rewards, lengths, costs, lasts, successes = [], [], [], [], []
    shape = environment.observation_space.shape or ()
    cut = 0
    for seed in seeds:
        if stop():
            return None
        total = cost = 0.0
        length = 0
        observation = reset(environment, shape, int(seed))
        frame()
        over = False
        while not over:
            action = policy(np.asarray(observation, dtype=np.float32))
            cost += float(np.square(action, dtype=np.float64).sum())
            observation, reward, terminated, truncated, info = step(environment, action, shape)
            frame()
            total += float(reward)
            length += 1
            over = bool(terminated or truncated)
            if length == longest and not over:
                over = True
                cut += 1
            if length % _ASK_EVERY == 0 and stop():
                return None
        rewards.append(total)
        lengths.append(length)
        costs.append(cost)
        lasts.append(float(reward))
        successes += success(info)
    return Episodes(
        np.asarray(seeds, dtype=np.int64),
        np.array(rewards),
        np.array(lengths, dtype=np.int64),
        np.array(costs),
        np.array(lasts),
        np.array(successes),
        cut,
    )
