"""A limit in bytes: what may grow, and what must go before the next transition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from frugalrl.replay.storage import grown

if TYPE_CHECKING:
    from frugalrl.replay.intake import Intake

_FEWEST = 4
"""Transitions for which there must be room at the least."""
_SHARE_TO_GO = 8
"""One in so many goes at a time when the filter has grown too large: packing anew is work."""


class ByteBudget:
    """Keeps everything a buffer holds, its filter and sampler included, within a limit.

    Table and pool grow by small steps, whichever has run out, so the ratio of states to transitions
    follows what comes in. When nothing may grow any more the oldest transitions go.

    Args:
        limit: most bytes.
        intake: whose bytes are limited.

    Raises:
        ValueError: the limit leaves no room for a handful of transitions.
    """

    def __init__(self, limit: int, intake: Intake) -> None:
        self._limit = limit
        self._intake = intake
        storage = intake.storage
        fewest = min(_FEWEST, storage.capacity)
        needed = intake.nbytes + fewest * (storage.slot_bytes + 2 * storage.state_bytes)
        needed += intake.sampler.nbytes_for(fewest) + self._reserve
        if not len(storage) and needed > limit:
            raise ValueError(
                f"capacity_bytes={limit} has no room for {fewest} transitions beside the filter's "
                f"{intake.admission.nbytes} bytes; use at least {needed}"
            )

    def make_room(self) -> None:
        """See to it that one more transition, with two states of its own, can be written."""
        storage = self._intake.storage
        while True:
            if len(storage) >= storage.capacity:
                self._intake.evict()
            elif storage.free_slots < 1:
                if not (self._grow_slots() or self._trade_states()):
                    self._evict()
            elif storage.free_states < 2:
                if not self._grow_states():
                    self._evict()
            else:
                return

    def settle(self, repack: Callable[[], bool]) -> None:
        """Give back bytes if the filter has grown into those of the storage.

        Args:
            repack: brings all into as few bytes as can be, and tells whether that was possible.

        Raises:
            ValueError: the filter leaves nothing.
        """
        if self._intake.nbytes <= self._limit:
            return
        storage = self._intake.storage
        self._shrink_states()
        while self._intake.nbytes > self._limit and len(storage) > 1:
            for _ in range(-(-len(storage) // _SHARE_TO_GO)):
                self._intake.evict()
            if not repack():
                break
        if self._intake.nbytes > self._limit:
            raise ValueError(
                f"capacity_bytes={self._limit} is too small for this filter, which alone takes "
                f"{self._intake.admission.nbytes} bytes"
            )

    def _shrink_states(self) -> None:
        """Bring the states into what the filter has left."""
        excess = self._intake.nbytes - self._limit
        storage = self._intake.storage
        surplus = -(-excess // storage.state_bytes)
        fewest = len(storage) - len(storage) // _SHARE_TO_GO
        while storage.free_states < surplus + 2 and len(storage) > fewest:
            self._intake.evict()
        keep = max(len(storage.refs) - surplus, len(storage.refs) - storage.free_states + 2, 2)
        storage.resize_states(min(keep, len(storage.refs)))

    def _evict(self) -> None:
        """Remove the oldest, unless there is nothing to remove."""
        if not len(self._intake.storage):
            raise ValueError(
                f"capacity_bytes={self._limit} has no room for a single transition beside the "
                f"filter's {self._intake.admission.nbytes} bytes"
            )
        self._intake.evict()

    @property
    def _reserve(self) -> int:
        """Bytes kept back for the growth of the filter."""
        return int(self._intake.admission.nbytes) // 8

    def _spare(self) -> int:
        """Bytes that may be allocated."""
        return self._limit - self._intake.nbytes - self._reserve

    def _grow_slots(self) -> bool:
        """Allocate more slots if any fit."""
        storage, sampler = self._intake.storage, self._intake.sampler
        rows = len(storage.table)
        spare = self._spare() + sampler.nbytes
        step = grown(rows) - rows
        # Not by a handful when there are many: the sampler's tree is built anew each time.
        while step > rows >> 10:
            wanted = min(rows + step, storage.capacity)
            cost = (wanted - rows) * storage.slot_bytes + sampler.nbytes_for(wanted)
            if wanted > rows and cost <= spare:
                storage.resize_slots(wanted)
                sampler.resize(wanted)
                return True
            step //= 2
        return False

    def _grow_states(self) -> bool:
        """Allocate more states if enough for one transition fit."""
        storage = self._intake.storage
        rows = len(storage.refs)
        wanted = min(grown(rows) - rows, self._spare() // storage.state_bytes)
        if wanted + storage.free_states < 2:
            return False
        storage.resize_states(rows + wanted)
        return True

    def _trade_states(self) -> bool:
        """Turn half of the free states into slots when there are far too many of them."""
        storage = self._intake.storage
        surplus = (storage.free_states - 2) // 2
        if (
            surplus < max(1, len(storage.refs) >> 4)
            or surplus * storage.state_bytes < 8 * storage.slot_bytes
        ):
            return False
        storage.resize_states(len(storage.refs) - surplus)
        return self._grow_slots()
