"""The contract between a replay buffer and whatever decides what enters it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gymnasium.spaces import Box

Floats = NDArray[np.floating]
Slots = NDArray[np.int64]

CODE_TYPE, SLOT_TYPE = np.dtype(np.int8), np.dtype(np.int64)
"""Types of a decision's code and slot; NumPy takes them faster than their names."""
DROP = 0
"""The transition is not kept."""
STORE = 1
"""The transition is new and takes a free slot."""
REPLACE = 2
"""The transition overwrites a stored one, and is then the youngest."""


class Decisions(NamedTuple):
    """What is to happen to the first `len(codes)` of the offered rows."""

    codes: NDArray[np.int8]
    """(k,) `DROP`, `STORE` or `REPLACE` for each decided row."""
    slots: Slots
    """(k,) the slot to write: taken from `free` for `STORE` (-1 when `free` had run out, which
    ends the call), the stored slot to overwrite for `REPLACE`, -1 for `DROP`."""
    released: Slots | None = None
    """Usually None. Otherwise stored slots, of earlier rows or of these, that the filter has given
    up and forgotten: the owner frees them once it has written these rows."""


@runtime_checkable
class AdmissionFilter(Protocol):
    """Decides, one transition after another, what a buffer keeps.

    The owner stores and the filter decides; they share nothing but slot numbers. The owner calls
    `begin` once, offers every transition, tells the filter of every slot it evicts (`forget`) and
    completes a `STORE` for which no slot was free (`place`). Check your own filter with
    `frugalrl.check_filter`.

    An interrupt can come between what a filter does and its owner's hearing of it. The owner then
    does the same again: it offers the very same arrays, and the filter gives the same answer; it
    places a row in a slot that the filter knows already, or lets it forget one that it does not
    know, and nothing happens.

    Under a byte limit the owner makes room for what `nbytes` may grow by: by a small share of
    itself at a time, not by doubling.
    """

    name: ClassVar[str]
    """Short name under which the filter's state is found in files."""

    def begin(self, observation_space: Box | None) -> None:
        """Learn the (flat) observation space before the first transition; None when unknown."""

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order.

        Args:
            observations: finite, one row per transition.
            rewards: finite, as they will be stored.
            free: the slots that `STORE` takes, in this order; a new array for every new offer.

        Returns:
            Decisions about the first k rows. k is n, or less after a `STORE` that found no free
            slot or where a warm-up ends, but at least 1; the owner offers the rest again.
        """

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a `STORE` that had no slot, now that the owner has made one free."""

    def forget(self, slot: int) -> None:
        """Remove an evicted slot."""

    @property
    def nbytes(self) -> int:
        """Bytes of state."""

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> AdmissionFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
