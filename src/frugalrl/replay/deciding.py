"""Staging, Frugal's decision and writing in one compiled call.

`Intake` does the same step by step for any filter. Done in one go, a transition costs a fraction of
it: in a training loop, where updates have emptied the caches, every Python call on the way does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.decision import decide
from frugalrl.admission.density import ENOUGH
from frugalrl.compiling import compiled
from frugalrl.replay.kernels import FINE, RECORD_REWARD, list_free, stage_rows, write_rows

NOT_STAGED, NOT_DECIDED = -1, -2
"""A shape is wrong, nothing was done; some row is refused or finds no room, all are only staged."""


@compiled
def add_decided_rows(
    observations: Any, actions: Any, rewards: Any, next_observations: Any,
    terminated: Any, truncated: Any, states: Any, records: Any,
    table: Any, pool: Any, refs: Any, last: Any, control: Any, codes: Any, slots: Any,
    capacity: int, row: int, taken: int, phi: Any, grid: Any, last_bin: Any, limits: Any,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Stage rows, decide about them and carry that out, if none is refused and there is room.

    The rows and where they are staged are as for `stage_rows`, the storage's arrays as for
    `write_rows`, and the last four arguments as for `decide`. `codes` and `slots` (n,) are filled
    with what became of each row and where it went. `row` is the first row that is not decided about
    yet (if not 0, all are staged) and `taken` how many slots those before it take.

    Returns:
        The first row that is not decided about, and how many slots those before it take; what the
        filter lacks room for (then call again, from there), and the slot that wants it. Or, instead
        of a row, `NOT_STAGED`, or `NOT_DECIDED` and the number of rows refused.
    """
    count = len(codes)
    if row == 0:
        refused = stage_rows(
            observations, actions, rewards, next_observations,
            terminated, truncated, states, records, True, codes,
        )  # fmt: skip
        if refused < 0:
            return NOT_STAGED, 0, ENOUGH, -1
        if refused > 0:
            return NOT_DECIDED, refused, ENOUGH, -1
    free = np.empty(count, dtype=np.int64)
    if list_free(table, refs, control, capacity, free) < count:
        return NOT_DECIDED, 0, ENOUGH, -1
    # As 64-bit copies, so that there is one `decide` to compile, which takes seconds.
    staged_states = states[0].astype(np.float64)
    staged_rewards = records.view(np.float32)[:, RECORD_REWARD].astype(np.float64)
    row, taken, _, shortage, slot = decide(
        phi, grid, last_bin, limits, staged_states, staged_rewards,
        free, taken, codes, slots, row, np.int64(0),
    )  # fmt: skip
    if shortage == ENOUGH:
        _, fault = write_rows(
            table, pool, refs, last, control,
            states.view(np.uint32), records, np.arange(count), codes, slots, capacity,
        )  # fmt: skip
        assert fault == FINE
    return row, taken, shortage, slot
