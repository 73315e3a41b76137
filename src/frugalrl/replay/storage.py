"""Transitions in few bytes: each state is kept once, each transition in one short record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.replay import kernels, reading
from frugalrl.replay.kernels import (
    ACTION,
    CONTROL_SIZE,
    COUNT,
    EVICTED,
    FLAG_BITS,
    FREE_SLOT,
    FREE_STATE,
    LIVE,
    NEWER,
    NEXT,
    OLDER,
    OLDEST,
    SLOTS_USED,
    STATE,
    STATES_USED,
    YOUNGEST,
)
from frugalrl.replay.spaces import Layout
from frugalrl.replay.staging import Stage

MOST_TRANSITIONS = 2**28
"""Two states a transition, and two flags beside a state's id, fill 31 bits."""

_LEAST_GROWTH = 64
_GROWTH_SHIFT = 5

Drawn = tuple[NDArray[Any], ...]


def grown(rows: int) -> int:
    """Rows after growing: by a thirty-second, since reallocating moves no bytes on large arrays.

    Small steps are what keeps the slack, and so the bytes of a transition, small.
    """
    return rows + max(_LEAST_GROWTH, rows >> _GROWTH_SHIFT)


class Storage:
    """Columnless storage of transitions with shared states, in the order of their age.

    Args:
        layout: of a transition.
        capacity: most transitions held.
        environments: how many are expected; more are taken as they come.
        victims: draws the transitions that are evicted; None evicts the oldest.
    """

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        environments: int,
        victims: np.random.Generator | None = None,
    ) -> None:
        self.victims = victims
        self.layout = layout
        self.capacity = capacity
        self._bits = np.dtype(np.uint16 if layout.half else np.uint32)
        self.table = np.empty((0, ACTION + layout.action_words), dtype=np.int32)
        self.pool = np.empty((0, layout.width), dtype=self._bits)
        self.refs = np.empty(0, dtype=np.int32)
        self.last = np.full(environments, -1, dtype=np.int32)
        self.control = np.zeros(CONTROL_SIZE, dtype=np.int64)
        self.control[[OLDEST, YOUNGEST, FREE_SLOT, FREE_STATE]] = -1

    def __len__(self) -> int:
        return int(self.control[COUNT])

    @property
    def nbytes(self) -> int:
        """Bytes allocated, used or not."""
        arrays = (self.table, self.pool, self.refs, self.last, self.control)
        return sum(array.nbytes for array in arrays)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return self.table.shape[1] * self.table.itemsize

    @property
    def state_bytes(self) -> int:
        """Bytes of one state with its count."""
        return int(self.pool.shape[1]) * self.pool.itemsize + self.refs.itemsize

    @property
    def limit(self) -> int:
        """One more than the highest slot ever occupied."""
        return int(self.control[SLOTS_USED])

    @property
    def dense(self) -> bool:
        """Whether every slot below `limit` is occupied."""
        return bool(self.control[COUNT] == self.control[SLOTS_USED])

    @property
    def evicted(self) -> int:
        """Transitions evicted so far."""
        return int(self.control[EVICTED])

    @property
    def free_states(self) -> int:
        """States that can be written before the pool must grow."""
        return len(self.refs) - int(self.control[LIVE])

    @property
    def free_slots(self) -> int:
        """Slots that can be written before the table must grow or something must go."""
        return min(len(self.table), self.capacity) - int(self.control[COUNT])

    def resize_slots(self, rows: int) -> None:
        """Allocate a number of slots."""
        # refcheck is off because kernels keep no references; nothing here hands out views.
        self.table.resize((rows, self.table.shape[1]), refcheck=False)

    def resize_states(self, rows: int) -> None:
        """Allocate a number of states, moving those that lie beyond it."""
        if rows < self.control[STATES_USED]:
            kernels.compact_states(self.table, self.pool, self.refs, self.last, self.control, rows)
        self.pool.resize((rows, self.pool.shape[1]), refcheck=False)
        self.refs.resize(rows, refcheck=False)

    def reserve(self, rows: int) -> None:
        """Grow until a number of rows can be written without growing."""
        wanted = min(rows, self.capacity - len(self))
        while self.free_slots < wanted:
            self.resize_slots(min(grown(len(self.table)), self.capacity))
        while self.free_states < 2 * rows:
            self.resize_states(grown(len(self.refs)))

    def expect_environments(self, environments: int) -> None:
        """Remember the last state of at least so many environments."""
        missing = environments - len(self.last)
        if missing > 0:
            self.last = np.append(self.last, np.full(missing, -1, dtype=np.int32))

    def append(
        self, stage: Stage, start: int, codes: NDArray[np.int8], slots: NDArray[np.int64]
    ) -> int:
        """Store every row from `start` that is not refused, evicting the oldest when full.

        Args:
            stage: holds the rows.
            start: the first row to store.
            codes: (n,) `REFUSED` where refused; filled in with `STORE`.
            slots: (n,) filled in with where each row went.

        Returns:
            The first row that finds no room, or n when all are stored.
        """
        done: int = kernels.append_rows(
            self.table, self.pool, self.refs, self.last, self.control,
            stage.bits, stage.records, start, codes, slots, self.capacity,
        )  # fmt: skip
        return done

    def next_slots(self, rows: int) -> NDArray[np.int64]:
        """Make sure that `rows` rows can be written and list the slots they may take, in order.

        Fewer slots than rows are listed when the capacity is reached.
        """
        free = np.empty(rows, dtype=np.int64)
        found = kernels.list_free(self.table, self.refs, self.control, self.capacity, free)
        if found < 0:
            self.reserve(rows)
            found = kernels.list_free(self.table, self.refs, self.control, self.capacity, free)
        return free if found == rows else free[:found]

    def write(
        self,
        stage: Stage,
        rows: NDArray[np.int64],
        codes: NDArray[np.int8],
        slots: NDArray[np.int64],
    ) -> None:
        """Carry out decisions about staged rows.

        Raises:
            RuntimeError: a decision is impossible; those before it have been carried out.
        """
        done, fault = kernels.write_rows(
            self.table, self.pool, self.refs, self.last, self.control,
            stage.bits, stage.records, rows, codes, slots, self.capacity,
        )  # fmt: skip
        if fault != kernels.FINE:
            reason = {
                kernels.BAD_CODE: "is not DROP, STORE or REPLACE",
                kernels.BAD_STORE: "does not take the next free slot",
                kernels.BAD_REPLACE: "replaces a slot that holds nothing",
            }[fault]
            raise RuntimeError(
                f"the filter's decision {int(codes[done])} with slot {int(slots[done])} {reason}; "
                "frugalrl.check_filter finds out more"
            )

    def evict(self) -> int:
        """Free the slot of the oldest transition, or of any, and give its number."""
        if self.victims is None:
            return int(kernels.evict_oldest(self.table, self.refs, self.control))
        slot = int(self.victims.random() * self.limit)
        while self.table[slot, STATE] < 0:
            slot = int(self.victims.random() * self.limit)
        kernels.evict_slot(self.table, self.refs, self.control, slot)
        return slot

    def occupied(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which of the slots, all below `limit`, hold a transition."""
        mask: NDArray[np.bool_] = reading.occupied(self.table, slots)
        return mask

    def oldest_first(self) -> NDArray[np.int64]:
        """List the occupied slots, oldest first."""
        slots: NDArray[np.int64] = reading.oldest_first(self.table, self.control)
        return slots

    def gather(self, slots: NDArray[np.int64]) -> Drawn:
        """Copy transitions out.

        Returns:
            States (n, d) float32, next states, actions (n, words) int32 as stored, rewards,
            terminated and truncated.

        Raises:
            ValueError: a slot holds nothing.
        """
        count, width = len(slots), self.layout.width
        states = np.empty((count, width), dtype=self._bits)
        next_states = np.empty((count, width), dtype=self._bits)
        actions = np.empty((count, self.layout.action_words), dtype=np.int32)
        rewards = np.empty(count, dtype=np.float32)
        terminated = np.empty(count, dtype=np.bool_)
        truncated = np.empty(count, dtype=np.bool_)
        # Beyond the limit slots were never written, so what they say of themselves means nothing.
        wrong = reading.gather(
            self.table[: self.limit], self.pool, slots,
            states, next_states, actions, rewards, terminated, truncated,
        )  # fmt: skip
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} holds no transition")
        if self.layout.half:
            floats = (
                states.view(np.float16).astype(np.float32),
                next_states.view(np.float16).astype(np.float32),
            )
        else:
            floats = states.view(np.float32), next_states.view(np.float32)
        return (*floats, actions, rewards, terminated, truncated)

    def keep_only(self, keep: NDArray[np.int64]) -> None:
        """Keep only these slots, oldest first, and number them 0, 1, 2, ... in that order.

        Raises:
            RuntimeError: a slot holds nothing or stands twice.
        """
        inside = (keep >= 0) & (keep < self.limit)
        if not inside.all() or not self.occupied(keep).all() or len(np.unique(keep)) != len(keep):
            raise RuntimeError("the filter keeps slots that hold nothing, or one slot twice")
        records = self.table[keep]
        holds = np.concatenate([records[:, STATE], records[:, NEXT] >> FLAG_BITS])
        # (states,) old ids in order, and for each hold the new id, its position among them.
        states, renamed = np.unique(holds, return_inverse=True)
        flags = records[:, NEXT] & ((1 << FLAG_BITS) - 1)
        records[:, STATE] = renamed[: len(keep)]
        records[:, NEXT] = (renamed[len(keep) :] << FLAG_BITS) | flags
        ages = np.arange(len(keep), dtype=np.int32)
        records[:, OLDER] = ages - 1
        records[:, NEWER] = ages + 1
        if len(keep):
            records[-1, NEWER] = -1
        names = np.full(len(self.refs) + 1, -1, dtype=np.int32)
        names[states] = np.arange(len(states), dtype=np.int32)
        self.last = names[self.last]  # -1 stays -1: the extra entry is the last
        self.table = records
        self.pool = self.pool[states]
        self.refs = np.bincount(renamed, minlength=len(states)).astype(np.int32)
        self.control[[COUNT, SLOTS_USED]] = len(keep)
        self.control[[STATES_USED, LIVE]] = len(states)
        self.control[[FREE_SLOT, FREE_STATE]] = -1
        self.control[OLDEST] = 0 if len(keep) else -1
        self.control[YOUNGEST] = len(keep) - 1
