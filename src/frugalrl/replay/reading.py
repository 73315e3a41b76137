"""Compiled inner loops that read the storage: draw, gather, list by age."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.compiling import compiled
from frugalrl.replay.kernels import (
    ACTION,
    COUNT,
    FLAG_BITS,
    NEWER,
    NEXT,
    OLDEST,
    REWARD,
    STATE,
    TERMINATED,
    TRUNCATED,
)


@compiled
def scale_to_slots(uniform: Any, limit: int) -> Any:
    """Turn (n,) numbers of [0, 1) into (n,) slots below the limit."""
    slots = np.empty(len(uniform), dtype=np.int64)
    for i in range(len(uniform)):
        slot: Any = np.int64(uniform[i] * limit)
        slots[i] = slot if slot < limit else limit - 1
    return slots


@compiled
def occupied(table: Any, slots: Any) -> Any:
    """Tell which slots hold a transition."""
    result = np.empty(len(slots), dtype=np.bool_)
    for i in range(len(slots)):
        result[i] = table[slots[i], STATE] >= 0
    return result


@compiled
def gather(
    table: Any, pool: Any, slots: Any, states: Any, next_states: Any,
    actions: Any, rewards: Any, terminated: Any, truncated: Any,
) -> int:  # fmt: skip
    """Copy the transitions of (n,) slots into fresh arrays.

    Two passes, so that the processor has many independent reads under way: first the records,
    then the states they name.

    Returns:
        -1, or the first position whose slot holds nothing (then the arrays are not filled).
    """
    count = len(slots)
    ids = np.empty((2, count), dtype=np.int64)
    words = table.view(np.float32)
    for i in range(count):
        slot = slots[i]
        if slot < 0 or slot >= table.shape[0] or table[slot, STATE] < 0:
            return i
        following = table[slot, NEXT]
        ids[0, i] = table[slot, STATE]
        ids[1, i] = following >> FLAG_BITS
        terminated[i] = (following & TERMINATED) != 0
        truncated[i] = (following & TRUNCATED) != 0
        rewards[i] = words[slot, REWARD]
        for j in range(actions.shape[1]):
            actions[i, j] = table[slot, ACTION + j]
    for i in range(count):
        state, next_state = ids[0, i], ids[1, i]
        for j in range(pool.shape[1]):
            states[i, j] = pool[state, j]
        for j in range(pool.shape[1]):
            next_states[i, j] = pool[next_state, j]
    return -1


@compiled
def oldest_first(table: Any, control: Any) -> Any:
    """List the occupied slots, oldest first."""
    slots = np.empty(control[COUNT], dtype=np.int64)
    slot = control[OLDEST]
    for i in range(len(slots)):
        slots[i] = slot
        slot = table[slot, NEWER]
    return slots


@compiled
def all_below(slots: Any, limit: int) -> bool:
    """Tell whether all slots lie from 0 to below the limit."""
    found = True
    for slot in slots:
        found &= 0 <= slot < limit
    return found


@compiled
def all_finite(values: Any) -> bool:
    """Tell whether no value is NaN or infinite."""
    finite = True
    for value in values:
        finite &= bool(np.isfinite(value))
    return finite
