"""Where the trees of `reward_tree` lie: the arrays they share, and what is in which row.

Functions here are compiled by Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.addresses import cube_at, matrix_at, prefetch, vector_at, width_at
from frugalrl.admission.compiled import Whole, inlined
from frugalrl.admission.lanes import LANES

FAN = LANES
"""Most children of an inner node, all of which are looked at at once."""
LEAF = 4 * LANES
"""Most rewards in a leaf. Smaller ones make a higher tree, of which less stays in the caches."""
MOST_LEVELS = 12
"""More than 2**31 rewards need."""

EPANECHNIKOV, TOPHAT, GAUSSIAN = 0, 1, 2
MOMENTS = (3, 1, 11)
"""Moments that each kernel needs: its polynomial's degree. For the Gaussian, a Taylor polynomial of
degree 11 over a third of a bandwidth either way is exact to 1e-11."""

FURTHEST = 1e290
"""Rewards beyond count as this: sums and differences of as many as there may be stay finite."""

# Places in a child's summary.
LO, FIRST_MOMENT = 0, 1  # in Forest.inner_real
COUNT, HI_STAMP, OLDEST_SLOT = 0, 1, 2  # in Forest.inner_whole
SUMMARY_ROWS = 3
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

    inner_high: NDArray[np.float64]
    """(nodes, FAN): upper bound of each child. All its (reward, stamp) are at most this and its
    HI_STAMP, and all of the children before it lie below all of its own."""
    inner_child: NDArray[np.int32]
    """(nodes, FAN): each child, a node or a leaf."""
    inner_oldest: NDArray[np.int32]
    """(nodes, FAN): stamp of each child's oldest member."""
    inner_real: NDArray[np.float64]
    """(nodes, FAN, 1 + moments): LO, the lower bound, and moments of each child."""
    inner_whole: NDArray[np.int32]
    """(nodes, FAN, SUMMARY_ROWS): COUNT, HI_STAMP, and the oldest's slot of each child."""
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
    numbers = width_at(table, FIRST_ARRAY + 3)
    return Forest(
        matrix_at(table, FIRST_ARRAY, FAN, np.float64),
        matrix_at(table, FIRST_ARRAY + 1, FAN, np.int32),
        matrix_at(table, FIRST_ARRAY + 2, FAN, np.int32),
        cube_at(table, FIRST_ARRAY + 3, FAN, numbers, np.float64),
        cube_at(table, FIRST_ARRAY + 4, FAN, SUMMARY_ROWS, np.int32),
        matrix_at(table, FIRST_ARRAY + 5, 2, np.int32),
        matrix_at(table, FIRST_ARRAY + 6, LEAF, np.float64),
        cube_at(table, FIRST_ARRAY + 7, LEAF, 2, np.int32),
        matrix_at(table, FIRST_ARRAY + 8, 2, np.int32),
        vector_at(table, FIRST_ARRAY + 9, np.int64),
        matrix_at(table, FIRST_ARRAY + 10, 2, np.float64),
    )


_LINE = 64
"""Bytes that memory brings at a time."""


@inlined
def expect_summary(f: Forest, node: Whole, c: Whole) -> None:
    """Let memory bring the summary of a child."""
    prefetch(f.inner_whole, (node * FAN + c) * SUMMARY_ROWS)
    prefetch(f.inner_real, (node * FAN + c) * f.inner_real.shape[2])


@inlined
def expect_rewards(f: Forest, leaf: Whole) -> None:
    """Let memory bring the rewards of a leaf, all at once instead of one by one."""
    for i in range(0, LEAF, _LINE // 8):
        prefetch(f.leaf_reward, leaf * LEAF + i)


# A tree is known by its root: a node, or its only leaf.


@inlined
def tree_of_node(node: Whole) -> Whole:
    """The tree whose root is this node."""
    return 2 * node


@inlined
def tree_of_leaf(leaf: Whole) -> Whole:
    """The tree that is just this leaf."""
    return 2 * leaf + 1


@inlined
def is_leaf(tree: Whole) -> Any:
    """Whether a tree is just a leaf."""
    return tree % 2 == 1


@inlined
def root_of(tree: Whole) -> Whole:
    """The node or the leaf that a tree is known by."""
    return tree // 2


@inlined
def leaf_end(f: Forest, leaf: Whole) -> Whole:
    """Place after the youngest member of a leaf."""
    return f.leaf_span[leaf, START] + f.leaf_span[leaf, SIZE]
