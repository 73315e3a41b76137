"""Transitions over n steps, made from single steps before any filter sees them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import integer_from, number_from


class NStepTransitions(NamedTuple):
    """Transitions whose steps are complete: those of one environment oldest first."""

    observations: NDArray[Any]  # (k, ...) where each begins
    actions: NDArray[Any]  # (k, ...) the first action of each
    rewards: NDArray[np.float64]  # (k,) the discounted sum of its rewards
    next_observations: NDArray[Any]  # (k, ...) where each ends
    terminated: NDArray[np.bool_]  # (k,) whether its last step ended the episode
    truncated: NDArray[np.bool_]  # (k,) whether the episode was cut off after its last step
    discounts: NDArray[np.float32]  # (k,) gamma to the power of its steps


class NStepReturns:
    """Joins the steps of each environment into transitions over n steps, or fewer at an end.

    A step is held back until the n - 1 that follow it are known. Where an environment goes on from
    another observation than it arrived at (it was reset in the middle of an episode), what is held
    back is cut off there.

    Args:
        n: steps of a transition, at least 1.
        gamma: the discount factor, from 0 to 1.
        environments: how many step at once.
    """

    def __init__(self, n: int, gamma: float, environments: int) -> None:
        self.n = integer_from("n", n, 1)
        self.gamma = number_from("gamma", gamma, "a number from 0 to 1", lambda g: 0.0 <= g <= 1.0)
        self.environments = integer_from("environments", environments, 1)
        # gamma ** 0, 1, ..., n
        self._powers = self.gamma ** np.arange(self.n + 1, dtype=np.float64)
        self._ages = np.arange(self.n - 1, -1, -1)  # oldest first
        self.clear()

    def clear(self) -> None:
        """Forget the steps that are held back."""
        # (environments,) steps seen, and how many of the latest are held back.
        self._seen = np.zeros(self.environments, dtype=np.int64)
        self._held = np.zeros(self.environments, dtype=np.int64)
        # Made when the first step is seen: rings (environments, n, ...) of the latest n
        # "observations", "actions" and "returns"; "arrived" (environments, ...) is where each is.
        self._arrays: dict[str, NDArray[Any]] = {}

    @property
    def held_back(self) -> int:
        """Steps that wait for those that follow."""
        return int(self._held.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the steps held back."""
        return sum(array.nbytes for array in self._arrays.values())

    def add(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        rewards: NDArray[Any],
        next_observations: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> NStepTransitions:
        """Take one step of every environment and give the transitions that it completes.

        Each argument has a row for every environment. The next observations are the true ones:
        never a reset's.
        """
        observations, actions = np.asarray(observations), np.asarray(actions)
        next_observations = np.asarray(next_observations)
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        if not self._arrays:
            lead = (self.environments, self.n)
            self._arrays = {
                "observations": np.zeros(lead + observations.shape[1:], observations.dtype),
                "actions": np.zeros(lead + actions.shape[1:], actions.dtype),
                "returns": np.zeros(lead),
                "arrived": np.zeros_like(observations),
            }
        arrays = self._arrays
        given = {"observations": observations, "actions": actions, "arrived": next_observations}
        for name, values in given.items():
            # Types may change on the way: a first action of zeros may have been of integers.
            kind = np.result_type(arrays[name], values)
            arrays[name] = arrays[name].astype(kind, copy=False)
        arrived = arrays["arrived"].astype(observations.dtype, copy=False)
        differs = (observations != arrived).reshape(self.environments, -1).any(axis=1)
        cut = self._cut(differs & (self._held > 0))
        everyone, place = np.arange(self.environments), self._seen % self.n
        arrays["observations"][everyone, place] = observations
        arrays["actions"][everyone, place] = actions
        arrays["returns"][everyone, place] = 0.0
        arrays["arrived"][...] = next_observations
        self._seen += 1
        self._held += 1
        is_held = self._ages < self._held[:, None]  # (environments, n)
        shares = self._powers[self._ages] * np.asarray(rewards, dtype=np.float64)[:, None]
        places = (self._seen[:, None] - 1 - self._ages) % self.n
        arrays["returns"][everyone[:, None], places] += np.where(is_held, shares, 0.0)
        ended = terminated | truncated
        is_complete = ended[:, None] | (self._ages == self.n - 1)
        made = self._take(is_held & is_complete, terminated, truncated)
        self._held = np.where(ended, 0, np.minimum(self._held, self.n - 1))
        if cut is None:
            return made
        return NStepTransitions(*(np.concatenate(both) for both in zip(cut, made, strict=True)))

    def flush(self) -> NStepTransitions | None:
        """Give what is held back as transitions over fewer steps, None if nothing is."""
        return self._cut(self._held > 0)

    def _cut(self, which: NDArray[np.bool_]) -> NStepTransitions | None:
        """Give all that is held back of some environments, cut off where they arrived."""
        if not which.any():
            return None
        is_held = self._ages < self._held[:, None]
        made = self._take(is_held & which[:, None], np.zeros_like(which), which)
        self._held[which] = 0
        return made

    def _take(
        self, chosen: NDArray[np.bool_], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> NStepTransitions:
        """Copy out the (environments, n) chosen steps, by environment and oldest first."""
        environment, column = np.nonzero(chosen)
        age = self._ages[column]
        step = environment, (self._seen[environment] - 1 - age) % self.n
        return NStepTransitions(
            self._arrays["observations"][step],
            self._arrays["actions"][step],
            self._arrays["returns"][step],
            self._arrays["arrived"][environment],
            terminated[environment],
            truncated[environment],
            self._powers[age + 1].astype(np.float32),
        )

    def state_dict(self) -> dict[str, Any]:
        """Give the steps held back as arrays and JSON values."""
        arrays = {"seen": self._seen, "held": self._held, **self._arrays}
        copies = {name: array.copy() for name, array in arrays.items()}
        return {"n": self.n, "gamma": self.gamma, **copies}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> NStepReturns:
        """Make the object that `state_dict` described; it goes on identically.

        Raises:
            ValueError: the state is not that of such an object.
        """
        try:
            seen, held = (np.array(state[name], dtype=np.int64) for name in ("seen", "held"))
            made = cls(state["n"], state["gamma"], len(seen))
            made._seen, made._held = seen, held
            if "observations" in state:
                rings = {name: np.array(state[name]) for name in ("observations", "actions")}
                rings["returns"] = np.array(state["returns"], dtype=np.float64)
                made._arrays = {**rings, "arrived": np.array(state["arrived"])}
                fits = all(ring.shape[:2] == (made.environments, made.n) for ring in rings.values())
                shape = (made.environments, *rings["observations"].shape[2:])
                fits = fits and made._arrays["arrived"].shape == shape
            else:
                fits = not held.any()
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the state of n-step returns ({error!r})") from error
        fits = fits and held.shape == seen.shape == (made.environments,)
        if not fits or not ((held >= 0) & (held < made.n) & (held <= seen)).all():
            raise ValueError("not the state of n-step returns: its parts do not belong together")
        return made
