"""What the filter remembers of the warm-up until it knows the partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def warmup_bytes(steps: int, dimensions: int) -> int:
    """Bytes that a warm-up takes: an observation, a reward and a slot a step."""
    return 8 * steps * (dimensions + 2)


class WarmUp:
    """The first transitions, in order, with the slots that hold them.

    Args:
        steps: length of the warm-up.
        dimensions: of an observation.
    """

    def __init__(self, steps: int, dimensions: int) -> None:
        self.observations = np.empty((steps, dimensions), dtype=np.float64)
        self.rewards = np.empty(steps, dtype=np.float64)
        self.slots = np.full(steps, -1, dtype=np.int64)
        self.filled = 0
        self.awaits_slot = False

    @property
    def is_complete(self) -> bool:
        """Whether all steps are there and each that is to be stored has its slot."""
        return self.filled == len(self.rewards) and not self.awaits_slot

    @property
    def stored(self) -> int:
        """Transitions that are still in a slot."""
        return int(np.count_nonzero(self.slots >= 0))

    def record(
        self,
        observations: NDArray[np.float64],
        rewards: NDArray[np.float64],
        slots: NDArray[np.int64],
    ) -> None:
        """Remember some rows; a last slot of -1 is filled in later by `place`."""
        rows = slice(self.filled, self.filled + len(rewards))
        self.observations[rows] = observations
        self.rewards[rows] = rewards
        self.slots[rows] = slots
        self.filled += len(rewards)
        self.awaits_slot = len(slots) > 0 and bool(slots[-1] < 0)

    def place(self, slot: int) -> None:
        """Give the last row its slot."""
        self.slots[self.filled - 1] = slot
        self.awaits_slot = False

    def forget(self, slot: int) -> bool:
        """Note that a slot was evicted; False when no row was in it."""
        rows = np.flatnonzero(self.slots[: self.filled] == slot)
        self.slots[rows] = -1
        return len(rows) > 0

    def rows_held(self) -> NDArray[np.int64]:
        """Rows that are still in a slot, oldest first."""
        return np.flatnonzero(self.slots[: self.filled] >= 0)

    def state_dict(self) -> dict[str, Any]:
        """Copies of what was seen so far."""
        rows = slice(0, self.filled)
        return {
            "observations": self.observations[rows].copy(),
            "rewards": self.rewards[rows].copy(),
            "slots": self.slots[rows].copy(),
            "awaits_slot": self.awaits_slot,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], steps: int) -> WarmUp:
        """Make the warm-up that `state_dict` described."""
        observations, slots = np.asarray(state["observations"]), np.asarray(state["slots"])
        held = slots[slots >= 0]
        if len(np.unique(held)) != len(held) or len(slots) > steps:
            raise ValueError("the warm-up has a slot twice, or more steps than it may have")
        made = cls(steps, observations.shape[1])
        made.record(observations, state["rewards"], slots)
        made.awaits_slot = bool(state["awaits_slot"])
        return made
