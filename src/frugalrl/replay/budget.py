"""A limit in bytes: what may grow, and what must go before the next transition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frugalrl.replay.storage import grown

if TYPE_CHECKING:
    from frugalrl.replay.intake import Intake

_FEWEST = 4
"""Transitions for which there must be room at the least."""


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
        needed += intake.sampler.nbytes_for(fewest)
        if not len(storage) and needed > limit:
            raise ValueError(
                f"capacity_bytes={limit} has no room for {fewest} transitions; "
                f"use at least {needed}"
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

    def settle(self) -> None:
        """Give back bytes if the filter has grown into those of the storage.

        Raises:
            ValueError: the filter leaves nothing.
        """
        excess = self._intake.nbytes - self._limit
        if excess <= 0:
            return
        storage = self._intake.storage
        surplus = -(-excess // storage.state_bytes)
        while storage.free_states < surplus + 2 and len(storage) > 1:
            self._intake.evict()
        keep = max(len(storage.refs) - surplus, len(storage.refs) - storage.free_states + 2, 2)
        storage.resize_states(min(keep, len(storage.refs)))
        if self._intake.nbytes > self._limit:
            raise ValueError(
                f"capacity_bytes={self._limit} is too small for this filter, which alone takes "
                f"{self._intake.admission.nbytes} bytes"
            )

    def _evict(self) -> None:
        """Remove the oldest, unless there is nothing to remove."""
        if not len(self._intake.storage):
            raise ValueError(
                f"capacity_bytes={self._limit} has no room for a single transition beside the "
                f"filter's {self._intake.admission.nbytes} bytes"
            )
        self._intake.evict()

    def _spare(self) -> int:
        """Bytes that may be allocated, an eighth of the filter's kept back for its growth."""
        return self._limit - self._intake.nbytes - int(self._intake.admission.nbytes) // 8

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
