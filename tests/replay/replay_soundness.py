"""Whether the lists and counts inside a storage fit its contents."""

from __future__ import annotations

import numpy as np

import frugalrl.replay.storage as places
from frugalrl.replay.storage import COUNT, COUNT_BITS, FLAG_BITS, NEWER, NEXT, OLDER, STATE, Storage

CONTROL = (
    "HELD", "OLDEST", "YOUNGEST", "FREE_SLOT", "SLOTS_USED", "STATES_HELD", "FREE_STATE",
    "STATES_USED", "RUN_NEXT", "RUN_LEFT", "OFFERED", "REJECTED", "STORED", "REPLACED", "DROPPED",
    "EVICTED", "CAPACITY", "RUN",
)  # fmt: skip


def check_storage(storage: Storage) -> None:
    """Fail unless every list is whole and every count is right."""
    control = {name: int(storage.control[getattr(places, name)]) for name in CONTROL}
    assert len(storage.control) == len(CONTROL) + len(storage.last)
    held = follow(storage, control["OLDEST"], NEWER)
    assert held[::-1] == follow(storage, control["YOUNGEST"], OLDER)
    assert len(held) == control["HELD"] == len(storage) <= storage.capacity
    free = follow(storage, control["FREE_SLOT"], NEWER)
    assert sorted(held + free) == list(range(control["SLOTS_USED"]))
    assert control["SLOTS_USED"] <= len(storage.slots)
    assert (storage.slots[free, STATE] < 0).all()
    records = storage.slots[held]
    ids = np.concatenate([records[:, STATE], records[:, NEXT] >> FLAG_BITS])
    used = control["STATES_USED"]
    assert used <= len(storage.states)
    holders = np.bincount(ids, minlength=used)
    assert len(holders) == used
    is_held = holders > 0
    assert np.array_equal(storage.states[:used, 0][is_held] & COUNT, holders[is_held])
    marks = np.where(is_held, storage.states[:used, 0] >> COUNT_BITS, 0)
    environments = np.flatnonzero(storage.last >= 0)
    assert np.array_equal(marks[storage.last[environments]], environments + 1)
    assert np.count_nonzero(marks) == len(environments)
    assert np.count_nonzero(is_held) == control["STATES_HELD"]
    free_states, state = [], control["FREE_STATE"]
    while state >= 0:
        free_states.append(state)
        state = -2 - int(storage.states[state, 0])
    assert sorted(free_states) == np.flatnonzero(~is_held).tolist()
    assert control["RUN_NEXT"] in (-1, *held)
    assert (control["RUN_LEFT"] > 0) == (control["RUN_NEXT"] >= 0)
    assert control["STORED"] - control["EVICTED"] == control["HELD"]
    decided = sum(control[name] for name in ("REJECTED", "STORED", "REPLACED", "DROPPED"))
    assert control["OFFERED"] == decided


def follow(storage: Storage, slot: int, link: int) -> list[int]:
    """List slots from one on along a link."""
    found = []
    while slot >= 0:
        found.append(slot)
        slot = int(storage.slots[slot, link])
    return found
