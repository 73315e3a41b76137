"""The warm-up: the first transitions, and what is learnt from them when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.dimensions import important_dimensions
from frugalrl.admission.partition import make_partition

if TYPE_CHECKING:
    from frugalrl.admission.rows import Call
    from frugalrl.admission.settings import FrugalSettings

AWAITED = -1
"""Stands for the slot of a row that is stored as soon as its owner has made one free."""
GONE = -2
"""Stands for the slot of a row that is not stored, or no longer."""
_LEAST_SPREAD = 1e-12
"""Standard deviation, relative to the largest reward, below which rewards count as equal."""


class WarmUp:
    """The first transitions, in order, with the slots that hold them.

    Args:
        steps: length of the warm-up.
        dimensions: of an observation.
    """

    def __init__(self, steps: int, dimensions: int) -> None:
        self.observations = np.empty((steps, dimensions), dtype=np.float64)
        self.rewards = np.empty(steps, dtype=np.float64)
        self.slots = np.full(steps, GONE, dtype=np.int64)
        self.seen: tuple[int, Call | None] = (0, None)
        """How many rows there are, and the offer of the last: others written do not count."""
        self._held: set[int] = set()

    @staticmethod
    def nbytes(steps: int, dimensions: int) -> int:
        """Bytes that a warm-up takes: an observation, a reward and a slot per step."""
        return 8 * steps * (dimensions + 2) if dimensions else 0

    @property
    def rows(self) -> int:
        """Transitions seen."""
        return self.seen[0]

    @property
    def call(self) -> Call | None:
        """The last offer, which may be made again."""
        return self.seen[1]

    @property
    def steps_left(self) -> int:
        """Transitions that are yet to come."""
        return len(self.rewards) - self.rows

    def write(
        self,
        observations: NDArray[np.float64],
        rewards: NDArray[np.float64],
        slots: NDArray[np.int64],
    ) -> int:
        """Write rows behind those seen; gives how many there are with them."""
        start, end = self.rows, self.rows + len(rewards)
        self.observations[start:end] = observations
        self.rewards[start:end] = rewards
        self.slots[start:end] = slots
        return end

    def commit(self, rows: int, call: Call | None) -> None:
        """Let so many rows count."""
        before = self.rows
        self.seen = rows, call
        self._held.update(self.slots[before:rows].tolist())

    def holds_any(self, slots: NDArray[np.int64]) -> bool:
        """Tell whether any of these slots is in use."""
        return not self._held.isdisjoint(slots.tolist())

    def is_complete(self, rows: int) -> bool:
        """Whether so many rows are all, and each that is to be stored has its slot."""
        return rows == len(self.rewards) and bool(self.slots[rows - 1] != AWAITED)

    def place(self, slot: int) -> None:
        """Give the last row its slot."""
        if self.rows and self.slots[self.rows - 1] == AWAITED:
            self.slots[self.rows - 1] = slot
            self._held.add(slot)

    def forget(self, slot: int) -> None:
        """Note that a slot was evicted."""
        slots = self.slots[: self.rows]
        slots[slots == slot] = GONE
        self._held.discard(slot)

    def rows_held(self, rows: int) -> NDArray[np.int64]:
        """Of so many rows, those that are in a slot, oldest first."""
        return np.flatnonzero(self.slots[:rows] >= 0)

    def slots_held(self) -> NDArray[np.int64]:
        """Slots in use, in ascending order."""
        return np.sort(self.slots[self.rows_held(self.rows)])

    def state_dict(self) -> dict[str, Any]:
        """Copies of what was seen so far."""
        rows = slice(0, self.rows)
        return {
            "observations": self.observations[rows].copy(),
            "rewards": self.rewards[rows].copy(),
            "slots": self.slots[rows].copy(),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], steps: int, dimensions: int) -> WarmUp:
        """Make the warm-up that `state_dict` described."""
        observations, rewards, slots = (
            np.asarray(state[name]) for name in ("observations", "rewards", "slots")
        )
        held = slots[slots >= 0]
        if not (
            observations.shape == (len(rewards), dimensions)
            and slots.shape == rewards.shape == (len(rewards),)
            and len(rewards) <= steps
            and len(np.unique(held)) == len(held)
            and np.isfinite(observations).all()
            and np.isfinite(rewards).all()
        ):
            raise ValueError("the warm-up does not fit itself: a slot twice, or too many steps")
        made = cls(steps, dimensions)
        made.commit(made.write(observations, rewards, slots), None)
        return made

    def partition(
        self, settings: FrugalSettings, bounds: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> NDArray[Any]:
        """Find the important dimensions of the whole warm-up and cut them into bins."""
        important = important_dimensions(
            self.observations, settings.dimension_threshold, settings.min_dimension_fraction
        )
        bins = settings.bins_of(self.observations.shape[1])
        return make_partition(important, self.observations, bounds, bins, settings.outside)

    def reward_scale(self, settings: FrugalSettings) -> float:
        """Give what rewards are divided by; 0 if they are all equal."""
        if settings.reward_scale != "auto":
            return float(settings.reward_scale)
        return _deviation(self.rewards)


def _deviation(rewards: NDArray[np.float64]) -> float:
    """Give the standard deviation, 0 where it is nothing but rounding errors."""
    largest = float(np.abs(rewards).max())
    # Divided by a power of two, which is exact: squares of large rewards would overflow.
    exponent = int(np.frexp(largest)[1])
    deviation = float(np.std(np.ldexp(rewards, -exponent)))
    scale = float(np.ldexp(deviation, exponent))
    is_spread = rewards.min() < rewards.max() and scale >= _LEAST_SPREAD * largest
    # Dividing by a number smaller than the smallest normal one gives infinity.
    return scale if is_spread and scale >= np.finfo(np.float64).tiny else 0.0
