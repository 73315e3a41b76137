"""A limit in bytes: what may grow, and what must go before the next transition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frugalrl.replay.storage import grown

if TYPE_CHECKING:
    from frugalrl.replay.intake import Intake

_FEWEST = 4
"""Transitions for which there must be room at the least."""
_RESERVE_SHARE = 8
"""One byte in so many of the filter's is kept back for its growth."""
_AMPLE_STATES = 4
"""Free states from which on a transition may take a slot of its own. It needs two; the others are
for those that overwrite, which may give back fewer states than they take."""


class ByteBudget:
    """Keeps everything that counts, filter and sampler included, within a limit.

    Slots and states grow by small steps, whichever have run out, so the ratio of states to
    transitions follows what comes in. When nothing may grow any more transitions go.

    Args:
        limit: most bytes.
        intake: of the buffer that is kept within them.

    Raises:
        ValueError: the limit leaves no room for a handful of transitions.
    """

    def __init__(self, limit: int, intake: Intake) -> None:
        self._limit = limit
        self._intake = intake
        self._storage = intake.storage
        self.check(0)

    def check(self, more: int) -> None:
        """Raise a ValueError unless a handful of transitions fit beside so many more bytes."""
        storage, intake = self._storage, self._intake
        fewest = min(_FEWEST, storage.capacity)
        held = storage.slots.nbytes + storage.states.nbytes + intake.sampler.nbytes
        needed = self._limit - self._spare() - held + intake.sampler.nbytes_for(fewest) + more
        needed += fewest * (storage.slot_bytes + 2 * storage.state_bytes)
        if needed > self._limit:
            raise ValueError(
                f"capacity_bytes={self._limit} has no room for {fewest} transitions beside the "
                f"filter's {intake.admission.nbytes} bytes; use at least {needed}"
            )

    def _spare(self) -> int:
        """Bytes that may be allocated; some are kept back for the growth of the filter."""
        kept_back = int(self._intake.admission.nbytes) // _RESERVE_SHARE
        return self._limit - self._intake.nbytes - kept_back

    def make_room(self) -> bool:
        """See to it that one more transition, with two states of its own, can be written.

        Returns:
            Whether it may take a free slot. Otherwise the buffer is as full as its bytes allow, and
            the filter is asked without one, as it is where the capacity is reached.
        """
        storage = self._storage
        while True:
            has_place = len(storage) < storage.capacity
            ample = _AMPLE_STATES if len(storage) else 2
            if has_place and storage.free_slots and storage.free_states >= ample:
                return True
            if has_place and not storage.free_slots:
                has_grown = self._grow_slots() or self._trade_states()
            else:
                has_grown = storage.free_states < ample and self._grow_states()
            if has_grown:
                continue
            if not len(storage):
                raise self._too_small()
            if storage.free_states >= 2:
                return False
            self._intake.evict()

    def settle(self) -> None:
        """Give back bytes if the filter has grown into those of the storage.

        Raises:
            ValueError: the filter leaves nothing.
        """
        storage, intake = self._storage, self._intake
        while (excess := intake.nbytes - self._limit) > 0:
            if storage.free_states * storage.state_bytes >= excess:
                storage.resize_states(len(storage.states) - -(-excess // storage.state_bytes))
            elif len(storage):
                intake.evict()
            else:
                storage.trim()
                intake.sampler.resize(len(storage.slots))
                if intake.nbytes > self._limit:
                    raise self._too_small()

    def _too_small(self) -> ValueError:
        return ValueError(
            f"capacity_bytes={self._limit} has no room for a single transition beside the filter's "
            f"{self._intake.admission.nbytes} bytes"
        )

    def _grow_slots(self) -> bool:
        """Allocate more slots if any fit."""
        storage, sampler = self._storage, self._intake.sampler
        rows = len(storage.slots)
        spare = self._spare() + sampler.nbytes
        step = grown(rows) - rows
        # Not by a handful when there are many: the sampler's sums are computed anew each time.
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
        """Allocate more states if any fit."""
        storage = self._storage
        rows = len(storage.states)
        wanted = min(grown(rows) - rows, self._spare() // storage.state_bytes)
        if wanted < 1:
            return False
        storage.resize_states(rows + wanted)
        return True

    def _trade_states(self) -> bool:
        """Turn half of the free states into slots when there are far too many of them."""
        storage = self._storage
        surplus = (storage.free_states - 2) // 2
        if (
            surplus < max(1, len(storage.states) >> 4)
            or surplus * storage.state_bytes < 8 * storage.slot_bytes
        ):
            return False
        storage.resize_states(len(storage.states) - surplus)
        return self._grow_slots()
