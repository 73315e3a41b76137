"""Insertion into and removal from the trees of `reward_tree`."""

from __future__ import annotations

import numpy as np
from numba import njit

from frugalrl.admission.reward_tree import (
    _BINOMIAL,
    CHILD,
    COUNT,
    FAN,
    FIRST_MOMENT,
    GAUSSIAN,
    HI,
    HI_SLOT,
    INNER_FREE,
    INNER_ROOM,
    INNER_USED,
    LEAF,
    LEAF_FREE,
    LEAF_ROOM,
    LEAF_USED,
    LO,
    OLDEST,
    OLDEST_SLOT,
    PATH,
    SLOT,
    STAMP,
    Forest,
    Mass,
)


@njit(cache=True, nogil=True, error_model="numpy")
def _take_leaf(f: Forest) -> int:
    """An unused leaf; the caller has seen to it that there is one."""
    leaf = f.counters[LEAF_FREE]
    if leaf >= 0:
        f.counters[LEAF_FREE] = f.leaf_whole[leaf, 0, 0]
    else:
        leaf = f.counters[LEAF_USED]
        f.counters[LEAF_USED] += 1
    f.counters[LEAF_ROOM] -= 1
    f.leaf_size[leaf] = 0
    return leaf


@njit(cache=True, nogil=True, error_model="numpy")
def _give_back_leaf(f: Forest, leaf: int) -> None:
    f.leaf_whole[leaf, 0, 0] = f.counters[LEAF_FREE]
    f.counters[LEAF_FREE] = leaf
    f.counters[LEAF_ROOM] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _take_inner(f: Forest, level: int) -> int:
    """An unused inner node; the caller has seen to it that there is one."""
    node = f.counters[INNER_FREE]
    if node >= 0:
        f.counters[INNER_FREE] = f.inner_whole[node, 0, 0]
    else:
        node = f.counters[INNER_USED]
        f.counters[INNER_USED] += 1
    f.counters[INNER_ROOM] -= 1
    f.inner_size[node, 0] = 0
    f.inner_size[node, 1] = level
    return node


@njit(cache=True, nogil=True, error_model="numpy")
def _give_back_inner(f: Forest, node: int) -> None:
    f.inner_whole[node, 0, 0] = f.counters[INNER_FREE]
    f.counters[INNER_FREE] = node
    f.counters[INNER_ROOM] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _widest(mass: Mass) -> float:
    """Width beyond which `tree_mass` never takes a child as a whole, with a margin for rounding."""
    return (0.7 if mass.kernel == GAUSSIAN else 2.1) * mass.bandwidth


@njit(cache=True, nogil=True, error_model="numpy")
def _summarise_leaf(f: Forest, mass: Mass, node: int, c: int) -> None:
    """Write the summary of a leaf into its parent."""
    real, whole = f.inner_real, f.inner_whole
    leaf = whole[node, CHILD, c]
    size = f.leaf_size[leaf]
    low, high = f.leaf_reward[leaf, 0], f.leaf_reward[leaf, size - 1]
    real[node, LO, c] = low
    real[node, HI, c] = high
    whole[node, COUNT, c] = size
    whole[node, HI_SLOT, c] = f.leaf_whole[leaf, SLOT, size - 1]
    oldest = 0
    for i in range(1, size):
        if f.leaf_whole[leaf, STAMP, i] < f.leaf_whole[leaf, STAMP, oldest]:
            oldest = i
    whole[node, OLDEST, c] = f.leaf_whole[leaf, STAMP, oldest]
    whole[node, OLDEST_SLOT, c] = f.leaf_whole[leaf, SLOT, oldest]
    if high - low > _widest(mass):
        return
    moments = real.shape[1] - FIRST_MOMENT
    for k in range(moments):
        real[node, FIRST_MOMENT + k, c] = 0.0
    middle = 0.5 * (low + high)
    for i in range(size):
        d = (f.leaf_reward[leaf, i] - middle) / mass.bandwidth
        power = 1.0
        for k in range(moments):
            power *= d
            real[node, FIRST_MOMENT + k, c] += power


@njit(cache=True, nogil=True, error_model="numpy")
def _summarise_inner(f: Forest, mass: Mass, node: int, c: int) -> None:
    """Write the summary of an inner node into its parent."""
    real, whole = f.inner_real, f.inner_whole
    child = whole[node, CHILD, c]
    size = f.inner_size[child, 0]
    low, high = real[child, LO, 0], real[child, HI, size - 1]
    real[node, LO, c] = low
    real[node, HI, c] = high
    whole[node, HI_SLOT, c] = whole[child, HI_SLOT, size - 1]
    count = np.int64(0)
    oldest = 0
    for i in range(size):
        count += whole[child, COUNT, i]
        if whole[child, OLDEST, i] < whole[child, OLDEST, oldest]:
            oldest = i
    whole[node, COUNT, c] = count
    whole[node, OLDEST, c] = whole[child, OLDEST, oldest]
    whole[node, OLDEST_SLOT, c] = whole[child, OLDEST_SLOT, oldest]
    if high - low > _widest(mass):
        return
    moments = real.shape[1] - FIRST_MOMENT
    for k in range(moments):
        real[node, FIRST_MOMENT + k, c] = 0.0
    middle = 0.5 * (low + high)
    for i in range(size):
        shift = (0.5 * (real[child, LO, i] + real[child, HI, i]) - middle) / mass.bandwidth
        for k in range(1, moments + 1):
            # Binomial theorem, by Horner's rule, moves the moment to the new middle.
            moved = float(whole[child, COUNT, i])
            for j in range(1, k + 1):
                moved = moved * shift + _BINOMIAL[k, j] * real[child, FIRST_MOMENT + j - 1, i]
            real[node, FIRST_MOMENT + k - 1, c] += moved


@njit(cache=True, nogil=True, error_model="numpy")
def _summarise(f: Forest, mass: Mass, node: int, c: int) -> None:
    if f.inner_size[node, 1] == 1:
        _summarise_leaf(f, mass, node, c)
    else:
        _summarise_inner(f, mass, node, c)


@njit(cache=True, nogil=True, error_model="numpy")
def _open_child_place(f: Forest, node: int, c: int) -> None:
    """Move the children from c on one to the right."""
    size = f.inner_size[node, 0]
    for i in range(size, c, -1):
        f.inner_real[node, LO, i] = f.inner_real[node, LO, i - 1]
        f.inner_real[node, HI, i] = f.inner_real[node, HI, i - 1]
    for row in range(FIRST_MOMENT, f.inner_real.shape[1]):
        for i in range(size, c, -1):
            f.inner_real[node, row, i] = f.inner_real[node, row, i - 1]
    for row in range(f.inner_whole.shape[1]):
        for i in range(size, c, -1):
            f.inner_whole[node, row, i] = f.inner_whole[node, row, i - 1]
    f.inner_size[node, 0] = size + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _close_child_place(f: Forest, node: int, c: int) -> None:
    """Move the children after c one to the left, over c."""
    size = f.inner_size[node, 0] - 1
    for row in range(f.inner_real.shape[1]):
        for i in range(c, size):
            f.inner_real[node, row, i] = f.inner_real[node, row, i + 1]
    for row in range(f.inner_whole.shape[1]):
        for i in range(c, size):
            f.inner_whole[node, row, i] = f.inner_whole[node, row, i + 1]
    f.inner_size[node, 0] = size


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_rewards(f: Forest, source: int, start: int, target: int, at: int, n: int) -> None:
    for i in range(n):
        f.leaf_reward[target, at + i] = f.leaf_reward[source, start + i]
        f.leaf_whole[target, STAMP, at + i] = f.leaf_whole[source, STAMP, start + i]
        f.leaf_whole[target, SLOT, at + i] = f.leaf_whole[source, SLOT, start + i]


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_children(f: Forest, source: int, start: int, target: int, at: int, n: int) -> None:
    for row in range(f.inner_real.shape[1]):
        for i in range(n):
            f.inner_real[target, row, at + i] = f.inner_real[source, row, start + i]
    for row in range(f.inner_whole.shape[1]):
        for i in range(n):
            f.inner_whole[target, row, at + i] = f.inner_whole[source, row, start + i]


@njit(cache=True, nogil=True, error_model="numpy")
def _split_child(f: Forest, mass: Mass, node: int, c: int) -> None:
    """Give the upper half of a full child to a new right neighbour."""
    child = f.inner_whole[node, CHILD, c]
    _open_child_place(f, node, c + 1)
    if f.inner_size[node, 1] == 1:
        half = LEAF // 2
        right = _take_leaf(f)
        _copy_rewards(f, child, half, right, 0, LEAF - half)
        f.leaf_size[child], f.leaf_size[right] = half, LEAF - half
    else:
        half = FAN // 2
        right = _take_inner(f, f.inner_size[child, 1])
        _copy_children(f, child, half, right, 0, FAN - half)
        f.inner_size[child, 0], f.inner_size[right, 0] = half, FAN - half
    f.inner_whole[node, CHILD, c + 1] = right
    _summarise(f, mass, node, c)
    _summarise(f, mass, node, c + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _child_size(f: Forest, node: int, c: int) -> int:
    child = f.inner_whole[node, CHILD, c]
    if f.inner_size[node, 1] == 1:
        return np.int64(f.leaf_size[child])
    return np.int64(f.inner_size[child, 0])


@njit(cache=True, nogil=True, error_model="numpy")
def _merge_child(f: Forest, mass: Mass, node: int, c: int) -> None:
    """Join child c with its right neighbour if the two are small, so that space is used."""
    if c < 0 or c + 1 >= f.inner_size[node, 0]:
        return
    left, right = f.inner_whole[node, CHILD, c], f.inner_whole[node, CHILD, c + 1]
    mine, other = _child_size(f, node, c), _child_size(f, node, c + 1)
    if f.inner_size[node, 1] == 1:
        if mine + other > LEAF // 2:
            return
        _copy_rewards(f, right, 0, left, mine, other)
        f.leaf_size[left] = mine + other
        _give_back_leaf(f, right)
    else:
        if mine + other > FAN // 2:
            return
        _copy_children(f, right, 0, left, mine, other)
        f.inner_size[left, 0] = mine + other
        _give_back_inner(f, right)
    _close_child_place(f, node, c + 1)
    _summarise(f, mass, node, c)


@njit(cache=True, nogil=True, error_model="numpy")
def _child_for(f: Forest, node: int, reward: float, slot: int) -> int:
    """The first child that does not end before (reward, slot), else the last."""
    last = f.inner_size[node, 0] - 1
    c = 0
    while c < last and f.inner_real[node, HI, c] < reward:
        c += 1
    while (
        c < last and f.inner_real[node, HI, c] == reward and f.inner_whole[node, HI_SLOT, c] < slot
    ):
        c += 1
    return c


@njit(cache=True, nogil=True, error_model="numpy")
def _place_in_leaf(f: Forest, leaf: int, reward: float, slot: int) -> int:
    """Position of the first member that does not come before (reward, slot)."""
    size = f.leaf_size[leaf]
    i = 0
    while i < size and f.leaf_reward[leaf, i] < reward:
        i += 1
    while i < size and f.leaf_reward[leaf, i] == reward and f.leaf_whole[leaf, SLOT, i] < slot:
        i += 1
    return i


@njit(cache=True, nogil=True, error_model="numpy")
def new_tree(f: Forest) -> int:
    """An empty tree: a root with one empty leaf."""
    root = _take_inner(f, 1)
    f.inner_whole[root, CHILD, 0] = _take_leaf(f)
    f.inner_size[root, 0] = 1
    return root


@njit(cache=True, nogil=True, error_model="numpy")
def tree_insert(f: Forest, mass: Mass, root: int, reward: float, slot: int, stamp: int) -> int:
    """Insert a reward; returns the root, which may be a new one."""
    if f.inner_size[root, 0] == FAN:
        child = root
        root = _take_inner(f, f.inner_size[child, 1] + 1)
        f.inner_whole[root, CHILD, 0] = child
        f.inner_size[root, 0] = 1
        _summarise(f, mass, root, 0)
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, slot)
        is_above_leaves = f.inner_size[node, 1] == 1
        if _child_size(f, node, c) == (LEAF if is_above_leaves else FAN):
            # Full children are split on the way down, so a parent always has a place left.
            _split_child(f, mass, node, c)
            c = _child_for(f, node, reward, slot)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = f.inner_whole[node, CHILD, c]
        if is_above_leaves:
            break
        node = child
    at = _place_in_leaf(f, child, reward, slot)
    size = f.leaf_size[child]
    for i in range(size, at, -1):
        f.leaf_reward[child, i] = f.leaf_reward[child, i - 1]
        f.leaf_whole[child, STAMP, i] = f.leaf_whole[child, STAMP, i - 1]
        f.leaf_whole[child, SLOT, i] = f.leaf_whole[child, SLOT, i - 1]
    f.leaf_reward[child, at] = reward
    f.leaf_whole[child, STAMP, at] = stamp
    f.leaf_whole[child, SLOT, at] = slot
    f.leaf_size[child] = size + 1
    for d in range(depth - 1, -1, -1):
        _summarise(f, mass, path[2 * d], path[2 * d + 1])
    return root


@njit(cache=True, nogil=True, error_model="numpy")
def tree_remove(f: Forest, mass: Mass, root: int, reward: float, slot: int) -> int:
    """Remove a reward that is there; returns the root, or -1 when the tree is empty and gone."""
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, slot)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = f.inner_whole[node, CHILD, c]
        if f.inner_size[node, 1] == 1:
            break
        node = child
    size = f.leaf_size[child] - 1
    for i in range(_place_in_leaf(f, child, reward, slot), size):
        f.leaf_reward[child, i] = f.leaf_reward[child, i + 1]
        f.leaf_whole[child, STAMP, i] = f.leaf_whole[child, STAMP, i + 1]
        f.leaf_whole[child, SLOT, i] = f.leaf_whole[child, SLOT, i + 1]
    f.leaf_size[child] = size
    for d in range(depth - 1, -1, -1):
        node, c = path[2 * d], path[2 * d + 1]
        if _child_size(f, node, c) > 0:
            _summarise(f, mass, node, c)
            _merge_child(f, mass, node, c)
            _merge_child(f, mass, node, c - 1)
            continue
        if f.inner_size[node, 1] == 1:
            _give_back_leaf(f, f.inner_whole[node, CHILD, c])
        else:
            _give_back_inner(f, f.inner_whole[node, CHILD, c])
        _close_child_place(f, node, c)
    while f.inner_size[root, 1] > 1 and f.inner_size[root, 0] == 1:
        child = f.inner_whole[root, CHILD, 0]
        _give_back_inner(f, root)
        root = child
    if f.inner_size[root, 0] == 0:
        _give_back_inner(f, root)
        return np.int64(-1)
    return root
