"""Whether the lists and counts inside a storage fit its contents."""

from __future__ import annotations

import numpy as np

from frugalrl.replay.storage import COUNT, COUNT_BITS, FLAG_BITS, Storage


def check_storage(storage: Storage) -> None:
    """Fail unless every list is whole and every count is right."""
    control = {name: int(storage.control[name][0]) for name in storage.control.dtype.names or ()}
    held = follow(storage, control["oldest"], "newer")
    assert held[::-1] == follow(storage, control["youngest"], "older")
    assert len(held) == control["held"] == len(storage) <= storage.capacity
    free = follow(storage, control["free_slot"], "newer")
    assert sorted(held + free) == list(range(control["slots_used"]))
    assert control["slots_used"] <= storage.allocated_slots
    assert (storage.slots["state"][free] < 0).all()
    records = storage.slots[held]
    ids = np.concatenate([records["state"], records["next_and_flags"] >> FLAG_BITS])
    used = control["states_used"]
    assert used <= storage.allocated_states
    holders = np.bincount(ids, minlength=used)
    assert len(holders) == used
    is_held = holders > 0
    assert np.array_equal(storage.holders[:used][is_held] & COUNT, holders[is_held])
    marks = np.where(is_held, storage.holders[:used] >> COUNT_BITS, 0)
    environments = np.flatnonzero(storage.last >= 0)
    assert np.array_equal(marks[storage.last[environments]], environments + 1)
    assert np.count_nonzero(marks) == len(environments)
    assert np.count_nonzero(is_held) == control["states_held"]
    free_states, state = [], control["free_state"]
    while state >= 0:
        free_states.append(state)
        state = -2 - int(storage.holders[state])
    assert sorted(free_states) == np.flatnonzero(~is_held).tolist()
    assert control["unfinished"] == control["victim"] == 0
    assert control["stored"] - control["evicted"] == control["held"]


def follow(storage: Storage, slot: int, link: str) -> list[int]:
    """List slots from one on along a link."""
    found = []
    while slot >= 0:
        found.append(slot)
        slot = int(storage.slots[link][slot])
    return found
