"""Where the trees of `reward_tree` lie: the arrays they share, and what is in which row.

Functions here are compiled by Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.addresses import cube_at, matrix_at, prefetch, vector_at, width_at
from frugalrl.admission.compiled import Whole, inlined

FAN = 16
"""Most children of an inner node."""
LEAF = 64
"""Most rewards in a leaf."""
MOST_LEVELS = 16
"""Far more than 2**31 rewards need."""

EPANECHNIKOV, TOPHAT, GAUSSIAN = 0, 1, 2
MOMENTS = (3, 1, 11)
"""Moments that each kernel needs: its polynomial's degree. For the Gaussian, a Taylor polynomial of
degree 11 over a third of a bandwidth either way is exact to 1e-11."""

# Rows of a child's summary.
LO, HI, FIRST_MOMENT = 0, 1, 2  # in Forest.inner_real
CHILD, COUNT, HI_STAMP, OLDEST, OLDEST_SLOT = 0, 1, 2, 3, 4  # in Forest.inner_whole
SUMMARY_ROWS = 5
# Columns of Forest.leaf_whole and Forest.leaf_span.
SLOT, STAMP = 0, 1
START, SIZE = 0, 1

# Places in Forest.counters; density.py uses those from OTHER_COUNTERS on.
CLOCK, INNER_USED, INNER_FREE, INNER_ROOM, LEAF_USED, LEAF_FREE, LEAF_ROOM = 0, 1, 2, 3, 4, 5, 6
OTHER_COUNTERS = 8
PATH = 16  # scratch: nodes and child positions on the way down
STACK = PATH + 2 * MOST_LEVELS  # scratch: nodes still to visit
PENDING = STACK + MOST_LEVELS * FAN  # scratch: children whose moments are to be computed
COUNTERS = PENDING + MOST_LEVELS * FAN


class Forest(NamedTuple):
    """The arrays that all trees share."""

    inner_real: NDArray[np.float64]
    """(nodes, 2 + moments, FAN): LO, HI and moments of each child. All its (reward, stamp) are at
    most (HI, HI_STAMP), and all of the children before it lie below all of its own."""
    inner_whole: NDArray[np.int32]
    """(nodes, SUMMARY_ROWS, FAN): CHILD, COUNT, HI_STAMP, OLDEST, OLDEST_SLOT of each child."""
    inner_size: NDArray[np.int32]
    """(nodes, 2): number of children; level, 1 when the children are leaves."""
    leaf_reward: NDArray[np.float64]
    """(leaves, LEAF): rewards, the oldest first."""
    leaf_whole: NDArray[np.int32]
    """(leaves, LEAF, 2): SLOT and STAMP of each reward."""
    leaf_span: NDArray[np.int32]
    """(leaves, 2): START, where the oldest is, and SIZE, how many there are."""
    counters: NDArray[np.int64]
    """Counters, and scratch for walks."""
    bounds: NDArray[np.float64]
    """(MOST_LEVELS * FAN, 2) scratch: least and most mass of each node that still waits."""


FIRST_ARRAY = 5
"""Number of the forest's first array in the table that it is handed over by; phi's come first."""


@inlined
def forest_at(table: Any) -> Forest:
    """The forest whose arrays lie there."""
    rows = width_at(table, FIRST_ARRAY)
    return Forest(
        cube_at(table, FIRST_ARRAY, rows, FAN, np.float64),
        cube_at(table, FIRST_ARRAY + 1, SUMMARY_ROWS, FAN, np.int32),
        matrix_at(table, FIRST_ARRAY + 2, 2, np.int32),
        matrix_at(table, FIRST_ARRAY + 3, LEAF, np.float64),
        cube_at(table, FIRST_ARRAY + 4, LEAF, 2, np.int32),
        matrix_at(table, FIRST_ARRAY + 5, 2, np.int32),
        vector_at(table, FIRST_ARRAY + 6, np.int64),
        matrix_at(table, FIRST_ARRAY + 7, 2, np.float64),
    )


LINE = 64
"""Bytes that memory brings at a time."""


@inlined
def expect_node(f: Forest, node: Whole) -> None:
    """Let memory bring what will be needed of a node, all at once instead of one by one."""
    for i in range(0, SUMMARY_ROWS * FAN, LINE // 4):
        prefetch(f.inner_whole, node * SUMMARY_ROWS * FAN + i)
    first = node * f.inner_real.shape[1] * FAN
    for i in range(0, f.inner_real.shape[1] * FAN, LINE // 8):
        prefetch(f.inner_real, first + i)


@inlined
def expect_leaf(f: Forest, leaf: Whole) -> None:
    """Let memory bring the slots and stamps of a leaf."""
    for i in range(0, 2 * LEAF, LINE // 4):
        prefetch(f.leaf_whole, leaf * 2 * LEAF + i)


@inlined
def expect_rewards(f: Forest, leaf: Whole) -> None:
    """Let memory bring the rewards of a leaf."""
    for i in range(0, LEAF, LINE // 8):
        prefetch(f.leaf_reward, leaf * LEAF + i)


@inlined
def leaf_end(f: Forest, leaf: Whole) -> Whole:
    """Place after the youngest member of a leaf."""
    return f.leaf_span[leaf, START] + f.leaf_span[leaf, SIZE]
