"""Letting memory bring what the next row of a batch will need.

In a crowded cell a decision would spend most of its time waiting for memory. Where the next row's
reward will go is known before this one's is put in place, so what lies there is asked for early.
Nothing is decided here: what is brought in vain costs a little time, and no more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.addresses import prefetch
from frugalrl.admission.compiled import Real, compiled
from frugalrl.admission.density import HEAD, find_cell, phi_at
from frugalrl.admission.forest import (
    FAN,
    LEAF,
    expect_summary,
    forest_at,
    is_leaf,
    leaf_end,
    root_of,
)
from frugalrl.admission.lanes import count_below


@compiled
def expect_insertion(table: Any, first: np.uint64, second: np.uint64, reward: Real) -> None:
    """Ask for what the insertion of a reward into the cell with this key will read and write.

    Only a tree of nodes is worth it: the few rewards of a ring or of one leaf are near.
    """
    phi = phi_at(table)
    cell = find_cell(phi, first, second)
    if cell < 0 or phi.cells[cell, HEAD] >= 0:
        return
    tree = np.int64(-1 - phi.cells[cell, HEAD])
    if is_leaf(tree):
        return
    f = forest_at(table)
    node = root_of(tree)
    for _ in range(f.inner_size[node, 1]):
        last = np.int64(f.inner_size[node, 0]) - 1
        c = count_below(f.inner_high, node * FAN, last, 0.0, reward)
        expect_summary(f, node, c)
        node = np.int64(f.inner_child[node, c])
    end = min(leaf_end(f, node), LEAF - 1)
    prefetch(f.leaf_reward, node * LEAF + end)
    prefetch(f.leaf_whole, 2 * (node * LEAF + end))
