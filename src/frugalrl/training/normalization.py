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


class Normalizer:
    """What a training loop normalizes ("none", "obs", "reward" or "both"), by which statistics.

    Rewards are scaled by the returns of every environment, discounted by gamma.
    """

    def __init__(self, what: str, shape: tuple[int, ...], environments: int, gamma: float) -> None:
        self._moments: dict[str, Moments] = {}
        if what in ("obs", "both"):
            self._moments["observations"] = Moments(shape)
        if what in ("reward", "both"):
            self._moments["rewards"] = Moments()
        self._returns = np.zeros(environments)
        self._gamma = gamma

    @property
    def scale(self) -> ObservationScale | None:
        """What observations go through; None: nothing."""
        moments = self._moments.get("observations")
        return None if moments is None else ObservationScale(moments.mean, moments.scale)

    def begin(self, observations: Floats) -> None:
        """Take the first observations (n, d) in."""
        if "observations" in self._moments:
            self._moments["observations"].update(observations)

    def update(
        self, observations: Floats, rewards: NDArray[np.float64], ended: NDArray[np.bool_]
    ) -> None:
        """Take the observations (n, d) and rewards (n,) of a step in."""
        if "rewards" in self._moments:
            self._returns = self._returns * self._gamma + np.nan_to_num(rewards)
            self._moments["rewards"].update(self._returns)
            self._returns[ended] = 0.0
        self.begin(observations)

    def observations(self, observations: Floats) -> Floats:
        """Normalize observations (..., d)."""
        scale = self.scale
        return observations if scale is None else scale(observations)

    def batch(self, batch: Batch) -> Batch:
        """Normalize what was drawn from the buffer."""
        if "rewards" in self._moments:
            scale = np.float32(self._moments["rewards"].scale)
            batch = batch._replace(rewards=np.clip(batch.rewards * scale, -CLIP, CLIP))
        if "observations" in self._moments:
            batch = batch._replace(
                observations=self.observations(batch.observations),
                next_observations=self.observations(batch.next_observations),
            )
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Give all that a continuation needs."""
        state: dict[str, Any] = {"observations": None, "rewards": None}
        for name, moments in self._moments.items():
            count = float(moments.count)
            state[name] = {"mean": moments.mean, "variance": moments.var, "count": count}
        return {**state, "returns": self._returns.copy()}

    def load_state_dict(self, state: dict[str, Any], is_anew: NDArray[np.bool_]) -> None:
        """Continue from `state_dict`, but where a new episode is begun."""
        self.load_statistics(state)
        self._returns = np.where(is_anew, 0.0, state["returns"])

    def load_statistics(self, state: dict[str, Any]) -> None:
        """Begin with the statistics that another run's `state_dict` has."""
        for name, moments in self._moments.items():
            if state[name] is not None:
                moments.mean = np.array(state[name]["mean"])
                moments.var = np.array(state[name]["variance"])
                moments.count = float(state[name]["count"])
