"""Compiled inner loops that change the storage: stage, write, evict, compact.

All state lives in five arrays, so that a call unboxes few of them:

- `table` (slots, 5 + action words) int32: one row a transition, so that drawing it touches one or
  two cache lines. Words: id of the state; id of the next state with the two flags in its low bits;
  the older and the newer neighbour in age; the reward's bits; the action's bytes. A free slot has
  -1 for its state and, in `NEWER`, the next free slot.
- `pool` (states, d) uint32 or uint16: the bits of the states. Copying and comparing bits keeps
  every value, and -0.0, exactly.
- `refs` (states,) int32: how many transitions hold the state; for a free state the next free one,
  coded as `-2 - next`.
- `last` (environments,) int32: the next state of the transition each environment stored last.
- `control` (9,) int64: the counters and list heads named below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, STORE
from frugalrl.compiling import compiled

REFUSED = 3
"""Code of a row that holds NaN or infinity."""

# Words of a table row.
STATE, NEXT, OLDER, NEWER, REWARD, ACTION = 0, 1, 2, 3, 4, 5
# Words of a staged record.
RECORD_REWARD, RECORD_FLAGS, RECORD_ACTION = 0, 1, 2
# Entries of `control`.
COUNT, OLDEST, YOUNGEST, FREE_SLOT, SLOTS_USED, FREE_STATE, STATES_USED, LIVE, EVICTED = range(9)
CONTROL_SIZE = 9

TERMINATED, TRUNCATED, FLAG_BITS = 1, 2, 2

# What `write_rows` found wrong with a decision.
FINE, BAD_CODE, BAD_STORE, BAD_REPLACE = 0, 1, 2, 3


@compiled
def _stage(
    observations: Any, actions: Any, rewards: Any, next_observations: Any,
    terminated: Any, truncated: Any, states: Any, records: Any, copy_actions: bool, codes: Any,
) -> int:  # fmt: skip
    """Do what `stage_rows` says; apart, because that one refuses types it was not taught."""
    rows, width = states.shape[1], states.shape[2]
    if (
        observations.shape != (rows, width)
        or next_observations.shape != (rows, width)
        or actions.shape[0] != rows
        or rewards.shape[0] != rows
        or terminated.shape[0] != rows
        or truncated.shape[0] != rows
        or (copy_actions and actions.shape[1] != records.shape[1] - RECORD_ACTION)
    ):
        return -1
    refused = 0
    words = records.view(np.float32)
    for i in range(rows):
        finite = True
        for j in range(width):
            state = np.float32(observations[i, j])
            next_state = np.float32(next_observations[i, j])
            finite &= np.isfinite(state) & np.isfinite(next_state)
            states[0, i, j] = state
            states[1, i, j] = next_state
        reward = np.float32(rewards[i])
        finite &= np.isfinite(reward)
        words[i, RECORD_REWARD] = reward
        records[i, RECORD_FLAGS] = TERMINATED * terminated[i] + TRUNCATED * truncated[i]
        for j in range(actions.shape[1]):
            action = np.float32(actions[i, j])
            finite &= np.isfinite(action)
            if copy_actions:
                words[i, RECORD_ACTION + j] = action
        codes[i] = DROP if finite else REFUSED
        refused += not finite
    return refused


@compiled
def stage_rows(
    observations: Any, actions: Any, rewards: Any, next_observations: Any,
    terminated: Any, truncated: Any, states: Any, records: Any, copy_actions: bool, codes: Any,
) -> int:  # fmt: skip
    """Cast rows to what will be stored and mark those that are not finite as `REFUSED`.

    Args:
        observations: (n, d) float32 or float64.
        actions: (n, a) float32 or float64; a = 0 when the caller stages the actions.
        rewards: (n,) float64.
        next_observations: (n, d) of the same type as the observations.
        terminated: (n,) bool.
        truncated: (n,) bool.
        states: (2, n, d) float32, filled with observations and next observations.
        records: (n, 2 + words) int32, filled with reward, flags and action.
        copy_actions: whether float32 actions go into the records, or are only checked.
        codes: (n,) int8, filled with `REFUSED` or `DROP`.

    Returns:
        The number of refused rows, or -1 (and nothing is filled in) when a shape is wrong.
    """
    return _stage(
        observations, actions, rewards, next_observations,
        terminated, truncated, states, records, copy_actions, codes,
    )  # fmt: skip


@compiled
def _link_youngest(table: Any, control: Any, slot: int) -> None:
    """Put a slot at the young end of the age list."""
    youngest = control[YOUNGEST]
    table[slot, OLDER] = youngest
    table[slot, NEWER] = -1
    if youngest >= 0:
        table[youngest, NEWER] = slot
    else:
        control[OLDEST] = slot
    control[YOUNGEST] = slot


@compiled
def _unlink(table: Any, control: Any, slot: int) -> None:
    """Take a slot out of the age list."""
    older = table[slot, OLDER]
    newer = table[slot, NEWER]
    if older >= 0:
        table[older, NEWER] = newer
    else:
        control[OLDEST] = newer
    if newer >= 0:
        table[newer, OLDER] = older
    else:
        control[YOUNGEST] = older


@compiled
def _take_state(refs: Any, control: Any) -> Any:
    """Take a free state; the caller has made sure that there is one."""
    state = control[FREE_STATE]
    if state >= 0:
        control[FREE_STATE] = -2 - refs[state]
    else:
        state = control[STATES_USED]
        control[STATES_USED] = state + 1
    refs[state] = 1
    control[LIVE] += 1
    return state


@compiled
def _release_state(refs: Any, control: Any, state: int) -> None:
    """Drop one hold on a state, freeing it after the last."""
    refs[state] -= 1
    if refs[state] == 0:
        refs[state] = -2 - control[FREE_STATE]
        control[FREE_STATE] = state
        control[LIVE] -= 1


@compiled
def _release_states_of(table: Any, refs: Any, control: Any, slot: int) -> None:
    """Drop a transition's hold on its two states."""
    _release_state(refs, control, table[slot, STATE])
    _release_state(refs, control, table[slot, NEXT] >> FLAG_BITS)


@compiled
def _next_free(table: Any, control: Any, capacity: int) -> Any:
    """Give the slot that the next stored transition takes, -1 when there is none."""
    if control[FREE_SLOT] >= 0:
        return control[FREE_SLOT]
    if control[SLOTS_USED] < min(capacity, table.shape[0]):
        return control[SLOTS_USED]
    return -1


@compiled
def _take_slot(table: Any, control: Any, slot: int) -> None:
    """Occupy the slot that `_next_free` gave."""
    if control[FREE_SLOT] >= 0:
        control[FREE_SLOT] = table[slot, NEWER]
    else:
        control[SLOTS_USED] += 1
    control[COUNT] += 1
    _link_youngest(table, control, slot)


@compiled
def _fill(
    table: Any, pool: Any, refs: Any, last: Any, control: Any,
    bits: Any, records: Any, row: int, slot: int,
) -> None:  # fmt: skip
    """Write a staged row into a slot, sharing the state with the environment's last transition.

    The state is shared when its bits are those of the last stored next state. Comparing contents
    makes resets and true terminal observations safe without any knowledge of episodes.
    """
    width = bits.shape[2]
    state: Any = np.int64(last[row])
    shared = state >= 0 and refs[state] > 0
    if shared:
        for j in range(width):
            if pool[state, j] != bits[0, row, j]:
                shared = False
                break
    if shared:
        refs[state] += 1
    else:
        state = _take_state(refs, control)
        for j in range(width):
            pool[state, j] = bits[0, row, j]
    next_state = _take_state(refs, control)
    for j in range(width):
        pool[next_state, j] = bits[1, row, j]
    last[row] = next_state
    table[slot, STATE] = state
    table[slot, NEXT] = (next_state << FLAG_BITS) | records[row, RECORD_FLAGS]
    table[slot, REWARD] = records[row, RECORD_REWARD]
    for j in range(records.shape[1] - RECORD_ACTION):
        table[slot, ACTION + j] = records[row, RECORD_ACTION + j]


@compiled
def evict_oldest(table: Any, refs: Any, control: Any) -> Any:
    """Free the oldest slot and give its number."""
    slot = control[OLDEST]
    evict_slot(table, refs, control, slot)
    return slot


@compiled
def evict_slot(table: Any, refs: Any, control: Any, slot: int) -> None:
    """Free an occupied slot."""
    _unlink(table, control, slot)
    _release_states_of(table, refs, control, slot)
    table[slot, STATE] = -1
    table[slot, NEWER] = control[FREE_SLOT]
    control[FREE_SLOT] = slot
    control[COUNT] -= 1
    control[EVICTED] += 1


@compiled
def append_rows(
    table: Any, pool: Any, refs: Any, last: Any, control: Any,
    bits: Any, records: Any, start: int, codes: Any, slots: Any, capacity: int,
) -> int:  # fmt: skip
    """Store every staged row from `start` that is not refused, evicting the oldest when full.

    Returns:
        The first row not handled, because the arrays must grow; the number of rows when done.
    """
    for i in range(start, len(codes)):
        if codes[i] == REFUSED:
            last[i] = -1
            slots[i] = -1
            continue
        if control[COUNT] >= capacity:
            evict_oldest(table, refs, control)
        slot = _next_free(table, control, capacity)
        if slot < 0 or len(refs) - control[LIVE] < 2:
            return i
        _take_slot(table, control, slot)
        _fill(table, pool, refs, last, control, bits, records, i, slot)
        codes[i] = STORE
        slots[i] = slot
    return len(codes)


@compiled
def add_rows(
    observations: Any, actions: Any, rewards: Any, next_observations: Any,
    terminated: Any, truncated: Any, states: Any, records: Any,
    table: Any, pool: Any, refs: Any, last: Any, control: Any,
    codes: Any, slots: Any, capacity: int,
) -> int:  # fmt: skip
    """Stage rows and, if none is refused, store them all: one call for the most common case.

    Returns:
        The first row not handled, because the arrays must grow, the number of rows when done; or
        -1 when a shape is wrong; or -1 - r when r rows are refused and none is stored.
    """
    refused = _stage(
        observations, actions, rewards, next_observations,
        terminated, truncated, states, records, True, codes,
    )  # fmt: skip
    if refused:
        return -1 if refused < 0 else -1 - refused
    return append_rows(
        table, pool, refs, last, control,
        states.view(np.uint32), records, 0, codes, slots, capacity,
    )  # fmt: skip


@compiled
def list_free(table: Any, refs: Any, control: Any, capacity: int, free: Any) -> Any:
    """Fill `free` with the slots that the next stored transitions take.

    Returns:
        How many, fewer than wanted only when the capacity is reached; -1 when the arrays must grow
        before that many rows can be written.
    """
    wanted = min(len(free), capacity - control[COUNT])
    if len(refs) - control[LIVE] < 2 * len(free) or table.shape[0] - control[COUNT] < wanted:
        return -1
    slot = control[FREE_SLOT]
    fresh = control[SLOTS_USED]
    for i in range(wanted):
        if slot >= 0:
            free[i] = slot
            slot = table[slot, NEWER]
        else:
            free[i] = fresh
            fresh += 1
    return wanted


@compiled
def write_rows(
    table: Any, pool: Any, refs: Any, last: Any, control: Any,
    bits: Any, records: Any, rows: Any, codes: Any, slots: Any, capacity: int,
) -> tuple[int, int]:  # fmt: skip
    """Carry out a filter's decisions about the staged rows that `rows` names.

    Returns:
        The number of decisions carried out and, if that is not all of them, what is wrong with
        the next one.
    """
    for i in range(len(codes)):
        code, slot = codes[i], slots[i]
        if code == STORE:
            if slot < 0 or slot != _next_free(table, control, capacity):
                return i, BAD_STORE
            _take_slot(table, control, slot)
        elif code == REPLACE:
            if slot < 0 or slot >= control[SLOTS_USED] or table[slot, STATE] < 0:
                return i, BAD_REPLACE
            _release_states_of(table, refs, control, slot)
            _unlink(table, control, slot)
            _link_youngest(table, control, slot)
        elif code == DROP:
            continue
        else:
            return i, BAD_CODE
        _fill(table, pool, refs, last, control, bits, records, rows[i], slot)
    return len(codes), FINE


@compiled
def compact_states(table: Any, pool: Any, refs: Any, last: Any, control: Any, limit: int) -> None:
    """Move every live state to an id below the limit, which must leave room for all of them."""
    used = control[STATES_USED]
    moved = np.full(max(used - limit, 0), -1, dtype=np.int64)
    target = 0
    for state in range(limit, used):
        if refs[state] > 0:
            while refs[target] > 0 and target < used:
                target += 1
            refs[target] = refs[state]
            for j in range(pool.shape[1]):
                pool[target, j] = pool[state, j]
            moved[state - limit] = target
    for slot in range(control[SLOTS_USED]):
        if table[slot, STATE] >= 0:
            if table[slot, STATE] >= limit:
                table[slot, STATE] = moved[table[slot, STATE] - limit]
            following = table[slot, NEXT]
            if following >> FLAG_BITS >= limit:
                new = moved[(following >> FLAG_BITS) - limit]
                table[slot, NEXT] = (new << FLAG_BITS) | (following & (TERMINATED | TRUNCATED))
    for i in range(len(last)):
        if last[i] >= limit:
            last[i] = moved[last[i] - limit] if last[i] < used else -1
    control[STATES_USED] = min(used, limit)
    control[FREE_STATE] = -1
    for state in range(min(used, limit) - 1, -1, -1):
        if refs[state] <= 0:
            refs[state] = -2 - control[FREE_STATE]
            control[FREE_STATE] = state
