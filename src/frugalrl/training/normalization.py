"""Running statistics of observations and rewards; the buffer and its filter keep raw values.

As Stable-Baselines3's VecNormalize: observations are shifted and scaled to mean 0 and variance 1,
rewards are divided by the standard deviation of the discounted return, both clipped at 10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray

from frugalrl.agents.policy import CLIP, ObservationScale
from frugalrl.replay.results import Batch

_EPSILON = 1e-8
Floats = NDArray[np.float32]


class Moments(RunningMeanStd):
    """Mean and variance of all rows seen, merged batch by batch."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__(shape=shape)  # type: ignore[no-untyped-call]

    def update(self, rows: NDArray[Any]) -> None:
        """Take rows (n, ...) in; those that are not finite are left out."""
        flat = np.asarray(rows, np.float64)
        finite = flat[np.isfinite(flat).reshape(len(flat), -1).all(axis=1)]
        if len(finite):
            super().update(finite)  # type: ignore[no-untyped-call]

    @property
    def scale(self) -> NDArray[np.float64]:
        """One over the standard deviation."""
        scale: NDArray[np.float64] = 1.0 / np.sqrt(self.var + _EPSILON)
        return scale

    def state_dict(self) -> dict[str, Any]:
        """Give arrays and JSON values that `load_state_dict` continues from."""
        return {"mean": self.mean, "variance": self.var, "count": float(self.count)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.mean = np.array(state["mean"])
        self.var = np.array(state["variance"])
        self.count = float(state["count"])


class Normalizer:
    """What a training loop normalizes, and by which statistics.

    Args:
        what: "obs", "reward" or "both".
        shape: of one observation.
        environments: how many are stepped together.
        gamma: discount of the returns that rewards are scaled by.
    """

    def __init__(self, what: str, shape: tuple[int, ...], environments: int, gamma: float) -> None:
        self._observations = Moments(shape) if what in ("obs", "both") else None
        self._rewards = Moments() if what in ("reward", "both") else None
        self._returns = np.zeros(environments)
        self._gamma = gamma
        self._follow()

    def begin(self, observations: Floats) -> None:
        """Take the first observations (n, d) in."""
        if self._observations is not None:
            self._observations.update(observations)
        self._follow()

    def update(
        self, observations: Floats, rewards: NDArray[np.float64], ended: NDArray[np.bool_]
    ) -> None:
        """Take the observations (n, d) and rewards (n,) of a step in."""
        if self._rewards is not None:
            self._returns = self._returns * self._gamma + np.nan_to_num(rewards)
            self._rewards.update(self._returns)
            self._returns[ended] = 0.0
        self.begin(observations)

    def _follow(self) -> None:
        moments = self._observations
        self.scale = None if moments is None else ObservationScale(moments.mean, moments.scale)

    def observations(self, observations: Floats) -> Floats:
        """Normalize observations (..., d)."""
        return observations if self.scale is None else self.scale(observations)

    def batch(self, batch: Batch) -> Batch:
        """Normalize what was drawn from the buffer."""
        rewards = batch.rewards
        if self._rewards is not None:
            rewards = np.clip(rewards * np.float32(self._rewards.scale), -CLIP, CLIP)
        return batch._replace(
            observations=self.observations(batch.observations),
            next_observations=self.observations(batch.next_observations),
            rewards=rewards,
        )

    def state_dict(self) -> dict[str, Any]:
        """Give all that a continuation needs."""
        return {
            "observations": None if self._observations is None else self._observations.state_dict(),
            "rewards": None if self._rewards is None else self._rewards.state_dict(),
            "returns": self._returns.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if self._observations is not None:
            self._observations.load_state_dict(state["observations"])
        if self._rewards is not None:
            self._rewards.load_state_dict(state["rewards"])
        self._returns = np.array(state["returns"])
        self._follow()
