"""Transitions over n steps, made from single steps before any filter sees them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import integer_from, number_from


class NStepTransitions(NamedTuple):
    """Transitions whose steps are complete: those of one environment oldest first."""

    observations: NDArray[Any]
    """(k, ...) where each begins."""
    actions: NDArray[Any]
    """(k, ...) the first action of each."""
    rewards: NDArray[np.float64]
    """(k,) the discounted sum of its rewards."""
    next_observations: NDArray[Any]
    """(k, ...) where each ends."""
    terminated: NDArray[np.bool_]
    """(k,) whether its last step ended the episode."""
    truncated: NDArray[np.bool_]
    """(k,) whether the episode was cut off after its last step."""
    discounts: NDArray[np.float32]
    """(k,) gamma to the power of its steps: the weight of what follows."""


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
        self._ages = np.arange(self.n - 1, -1, -1)
        self._everyone = np.arange(self.environments)
        self.clear()

    def clear(self) -> None:
        """Forget the steps that are held back."""
        # (environments,) steps seen, and how many of the latest are held back.
        self._seen = np.zeros(self.environments, dtype=np.int64)
        self._held = np.zeros(self.environments, dtype=np.int64)
        # Rings of the latest n steps: (environments, n, ...), made when the first step is seen.
        self._observations: NDArray[Any] | None = None
        self._actions: NDArray[Any]
        self._returns = np.zeros((self.environments, self.n))
        self._arrived: NDArray[Any]  # (environments, ...) the latest next observation

    @property
    def held_back(self) -> int:
        """Steps that wait for those that follow."""
        return int(self._held.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the steps held back."""
        if self._observations is None:
            return self._returns.nbytes
        arrays = (self._observations, self._actions, self._returns, self._arrived)
        return sum(array.nbytes for array in arrays)

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

        Args:
            observations: (environments, ...).
            actions: (environments, ...).
            rewards: (environments,).
            next_observations: (environments, ...), the true ones: never a reset's.
            terminated: (environments,).
            truncated: (environments,).
        """
        if self._observations is None:
            self._make_rings(observations, actions)
        cut = self._cut_where_it_jumps(observations)
        place = self._seen % self.n
        self._observations[self._everyone, place] = observations  # type: ignore[index]
        self._actions[self._everyone, place] = actions
        self._returns[self._everyone, place] = 0.0
        self._arrived[...] = next_observations
        self._seen += 1
        self._held += 1
        # (environments, n) places by age, oldest first, and which of them are held back.
        places, is_held = self._by_age()
        shares = self._powers[self._ages] * np.asarray(rewards, dtype=np.float64)[:, None]
        self._returns[self._everyone[:, None], places] += np.where(is_held, shares, 0.0)
        ended = np.asarray(terminated, np.bool_) | np.asarray(truncated, np.bool_)
        is_full = (self._held == self.n)[:, None] & (self._ages == self.n - 1)
        made = self._take(is_held & (ended[:, None] | is_full), terminated, truncated)
        self._held = np.where(ended, 0, np.minimum(self._held, self.n - 1))
        if cut is None:
            return made
        pairs: Any = zip(cut, made, strict=True)
        return NStepTransitions(*(np.concatenate(pair) for pair in pairs))

    def flush(self) -> NStepTransitions | None:
        """Give what is held back as transitions over fewer steps, None if nothing is."""
        if self._observations is None or not self._held.any():
            return None
        return self._cut(self._held > 0)

    def _make_rings(self, observations: NDArray[Any], actions: NDArray[Any]) -> None:
        lead = (self.environments, self.n)
        observations, actions = np.asarray(observations), np.asarray(actions)
        self._observations = np.zeros(lead + observations.shape[1:], observations.dtype)
        self._actions = np.zeros(lead + actions.shape[1:], actions.dtype)
        self._arrived = np.zeros_like(observations)

    def _cut_where_it_jumps(self, observations: NDArray[Any]) -> NStepTransitions | None:
        """Give what is held back of environments that go on elsewhere than they arrived."""
        if not self._held.any():
            return None
        differs = np.asarray(observations) != self._arrived
        jumped = differs.reshape(self.environments, -1).any(axis=1) & (self._held > 0)
        return self._cut(jumped) if jumped.any() else None

    def _cut(self, which: NDArray[np.bool_]) -> NStepTransitions:
        """Give all that is held back of some environments, cut off where they arrived."""
        _, is_held = self._by_age()
        made = self._take(is_held & which[:, None], np.zeros_like(which), which)
        self._held[which] = 0
        return made

    def _by_age(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        places = (self._seen[:, None] - 1 - self._ages) % self.n
        return places, self._ages < self._held[:, None]

    def _take(
        self, chosen: NDArray[np.bool_], terminated: NDArray[Any], truncated: NDArray[Any]
    ) -> NStepTransitions:
        """Copy out the (environments, n) chosen steps, by environment and oldest first."""
        environment, column = np.nonzero(chosen)
        age = self._ages[column]
        place = (self._seen[environment] - 1 - age) % self.n
        assert self._observations is not None
        return NStepTransitions(
            self._observations[environment, place],
            self._actions[environment, place],
            self._returns[environment, place],
            self._arrived[environment],
            np.asarray(terminated, np.bool_)[environment],
            np.asarray(truncated, np.bool_)[environment],
            self._powers[age + 1].astype(np.float32),
        )

    def state_dict(self) -> dict[str, Any]:
        """Give the steps held back as arrays and JSON values."""
        state: dict[str, Any] = {
            "n": self.n,
            "gamma": self.gamma,
            "seen": self._seen,
            "held": self._held,
        }
        if self._observations is not None:
            state["observations"] = self._observations
            state["actions"] = self._actions
            state["returns"] = self._returns
            state["arrived"] = self._arrived
        return {
            key: value.copy() if isinstance(value, np.ndarray) else value
            for key, value in state.items()
        }

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
                made._observations = np.array(state["observations"])
                made._actions = np.array(state["actions"])
                made._returns = np.array(state["returns"], dtype=np.float64)
                made._arrived = np.array(state["arrived"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the state of n-step returns ({error!r})") from error
        made._check()
        return made

    def _check(self) -> None:
        """Refuse a state whose parts do not belong together."""
        lead = (self.environments, self.n)
        fits = self._held.shape == self._seen.shape == (self.environments,)
        fits = fits and bool((self._held >= 0).all() and (self._held < self.n).all())
        fits = fits and bool((self._held <= self._seen).all())
        if self._observations is None:
            fits = fits and not self._held.any()
        else:
            rings = (self._observations, self._actions, self._returns)
            fits = fits and all(ring.shape[:2] == lead for ring in rings)
            shape = (self.environments, *self._observations.shape[2:])
            fits = fits and self._arrived.shape == shape
        if not fits:
            raise ValueError("not the state of n-step returns: its parts do not belong together")
