"""Whether the linked structure of a storage is sound; a file could say anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.compiling import compiled
from frugalrl.replay.kernels import (
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


@compiled
def structure_is_sound(table: Any, refs: Any, last: Any, control: Any, capacity: int) -> bool:
    """Tell whether no kernel can go astray: every list is whole and every id in its range.

    Args:
        table: (slots, words) at least the slots in use.
        refs: (states,) at least the states in use.
        last: (environments,) of the storage.
        control: of the storage.
        capacity: most transitions held.
    """
    slots, states, count = control[SLOTS_USED], control[STATES_USED], control[COUNT]
    if not (0 <= count <= slots <= len(table) and slots <= capacity and control[EVICTED] >= 0):
        return False
    if not (0 <= control[LIVE] <= states <= len(refs)):
        return False
    holds = np.zeros(states, dtype=np.int64)
    older, slot = -1, control[OLDEST]
    for _ in range(count):
        if not 0 <= slot < slots or table[slot, OLDER] != older:
            return False
        state, next_state = table[slot, STATE], table[slot, NEXT] >> FLAG_BITS
        if not (0 <= state < states and 0 <= next_state < states):
            return False
        holds[state] += 1
        holds[next_state] += 1
        older, slot = slot, table[slot, NEWER]
    if slot != -1 or control[YOUNGEST] != older:
        return False
    slot = control[FREE_SLOT]
    for _ in range(slots - count):
        if not 0 <= slot < slots or table[slot, STATE] >= 0:
            return False
        slot = table[slot, NEWER]
    if slot != -1:
        return False
    live = 0
    for state in range(states):
        if holds[state] > 0:
            live += 1
            if refs[state] != holds[state]:
                return False
    state = control[FREE_STATE]
    for _ in range(states - live):
        if not 0 <= state < states or refs[state] >= 0:
            return False
        state = -2 - refs[state]
    for environment in range(len(last)):
        if not -1 <= last[environment] < states:
            return False
    return bool(state == -1 and live == control[LIVE])
