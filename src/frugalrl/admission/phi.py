"""phi: the rewards of the stored transitions, cell by cell.

::

    key -> cell -- few rewards:  oldest <-> ... <-> youngest           a list of slots by age
             |
             +---- many:  [-R, R) cut into 8 buckets by reward         a block
                             |        |  ...  |
                             list     list    8 narrower buckets       a block
                                                |  ...

A slot is the owner's number of a stored transition; here it has its reward, its cell, a stamp that
tells its age, and its neighbours in a list. Cells are found through a hash of their key. A cell or
a bucket with more than `SCANNED` rewards passes them on to eight buckets, which together cover what
it covered, and takes them back when no more are left. Every bucket knows how many rewards lie in it
or below it, the sums of their first three powers and the oldest of them. So

- the mass of a bucket that no breakpoint of the kernel cuts is known exactly, that of another
  within bounds, and only where these leave a decision open one looks further down (`is_dense`);
- the oldest reward of an interval is that of the buckets inside it, or stands in one of the few
  lists that its two ends cut (`oldest_within`).

Rounding depends on the order of past changes, so a density within rounding of its limit is summed
once more in whole numbers: decisions depend on the contents alone, never on how they came about.

Arrays grow between calls: `prepare` says when there is no room, before anything has changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.density_kernels import bucket_mass, mass
from frugalrl.compiling import compiled

FAN = 8
"""Buckets of a block."""
SCANNED = 32
"""Most rewards of a list; with more it is divided, unless they are as good as equal."""
FURTHEST = 2.0**127
"""Rewards beyond this count as this."""
ROUNDING = 1e-11
"""More than what rounding can add up to in a density."""
_MOST_BLOCKS = 512
"""More than are waiting at any time while a cell's blocks are gone through."""
_SPARE_BLOCKS = 3
"""The most that are taken in one step."""
_LAST_STAMP = 2**31 - 1

SLOT = np.dtype(
    [("reward", "f8"), ("cell", "i4"), ("stamp", "i4"), ("older", "i4"), ("younger", "i4")]
)
"""A slot; its cell is 0 when it holds nothing. A neighbour of -1 is none."""
CELL = np.dtype(
    [
        ("key", "u8"),
        ("first", "i4"),  # cell with which the search for keys that hash to this place begins
        ("chain", "i4"),  # cell with which it goes on, 0 at its end
        ("count", "i4"),
        ("oldest", "i4"),
        ("youngest", "i4"),
        ("block", "i4"),  # first bucket of its block, 0 when it is a list
    ]
)
"""A cell. Number 0 is none: its chain are the unused cells, its count is how many they are."""
BUCKET = np.dtype(
    [
        ("low", "f8"),
        ("width", "f8"),  # a power of two
        ("sum", "f8"),  # of the distances from the middle, as shares of the width
        ("square", "f8"),
        ("cube", "f8"),
        ("count", "i4"),
        ("oldest", "i4"),  # here or below
        ("stamp", "i4"),  # of the oldest
        ("youngest", "i4"),
        ("block", "i4"),
    ],
    align=True,
)
"""A bucket. Block 0 is none: its block is the first unused one, its count is how many they are."""
STATE = np.dtype([("clock", "i8"), ("stored", "i8"), ("cells", "i8"), ("narrowest", "f8")])
"""Next stamp, rewards held, cells in use, and the width below which no bucket is divided."""


class Arrays(NamedTuple):
    """The arrays of phi, as compiled functions pass them on."""

    slots: NDArray[Any]
    cells: NDArray[Any]
    buckets: NDArray[Any]
    state: NDArray[Any]


# --- cells ------------------------------------------------------------------------------------


@compiled
def _place(cells: Any, key: Any) -> Any:
    """Where in the array the search for a key begins."""
    share = (key >> np.uint64(32)) * np.uint64(len(cells))
    return np.int64(share >> np.uint64(32))


@compiled
def find_cell(cells: Any, key: Any) -> Any:
    """Number of the cell with this key, or 0."""
    cell = np.int64(cells[_place(cells, key)]["first"])
    while cell != 0 and cells[cell]["key"] != key:
        cell = np.int64(cells[cell]["chain"])
    return cell


@compiled
def _link_cell(cells: Any, cell: Any) -> None:
    """Let a cell be found by its key."""
    place = _place(cells, cells[cell]["key"])
    cells[cell]["chain"] = cells[place]["first"]
    cells[place]["first"] = cell


@compiled
def _free_cell(cells: Any, cell: Any) -> None:
    """Put a cell among the unused ones."""
    cells[cell]["count"] = 0
    cells[cell]["chain"] = cells[0]["chain"]
    cells[0]["chain"] = cell
    cells[0]["count"] += 1


@compiled
def _new_cell(phi: Any, key: Any) -> Any:
    cells = phi.cells
    cell = np.int64(cells[0]["chain"])
    cells[0]["chain"] = cells[cell]["chain"]
    cells[0]["count"] -= 1
    cells[cell]["key"] = key
    cells[cell]["oldest"] = cells[cell]["youngest"] = -1
    cells[cell]["block"] = 0
    _link_cell(cells, cell)
    phi.state[0]["cells"] += 1
    return cell


@compiled
def _remove_cell(phi: Any, cell: Any) -> None:
    """Forget an empty cell."""
    cells = phi.cells
    place = _place(cells, cells[cell]["key"])
    if cells[place]["first"] == cell:
        cells[place]["first"] = cells[cell]["chain"]
    else:
        before = np.int64(cells[place]["first"])
        while cells[before]["chain"] != cell:
            before = np.int64(cells[before]["chain"])
        cells[before]["chain"] = cells[cell]["chain"]
    _free_cell(cells, cell)
    phi.state[0]["cells"] -= 1


@compiled
def _link_cells(cells: Any) -> None:
    """Order an array of cells that has grown: those that hold something are found by their key."""
    cells[0]["chain"] = cells[0]["count"] = 0
    cells["first"][:] = 0
    for cell in range(len(cells) - 1, 0, -1):
        if cells[cell]["count"] > 0:
            _link_cell(cells, cell)
        else:
            _free_cell(cells, cell)


# --- lists: `owner` is a cell or a bucket -------------------------------------------------------


@compiled
def _append(slots: Any, owner: Any, slot: Any) -> None:
    """Put a slot at the young end of a list."""
    youngest = np.int64(owner["youngest"])
    slots[slot]["older"] = youngest
    slots[slot]["younger"] = -1
    if youngest >= 0:
        slots[youngest]["younger"] = slot
    else:
        owner["oldest"] = slot
    owner["youngest"] = slot


@compiled
def _unlink(slots: Any, owner: Any, slot: Any) -> None:
    """Take a slot out of a list."""
    older, younger = np.int64(slots[slot]["older"]), np.int64(slots[slot]["younger"])
    if older >= 0:
        slots[older]["younger"] = younger
    else:
        owner["oldest"] = younger
    if younger >= 0:
        slots[younger]["older"] = older
    else:
        owner["youngest"] = older


# --- buckets ------------------------------------------------------------------------------------


@compiled
def _new_block(buckets: Any, low: Any, width: Any) -> Any:
    """Take an unused block of buckets of this width, the first of which begins at `low`."""
    block = np.int64(buckets[0]["block"])
    buckets[0]["block"] = buckets[block]["block"]
    buckets[0]["count"] -= 1
    for i in range(FAN):
        bucket = buckets[block + i]
        bucket["low"] = low + i * width
        bucket["width"] = width
        _empty(bucket)
    return block


@compiled
def _empty(bucket: Any) -> None:
    bucket["sum"] = bucket["square"] = bucket["cube"] = 0.0
    bucket["count"] = bucket["block"] = 0
    bucket["oldest"] = bucket["youngest"] = -1


@compiled
def _free_block(buckets: Any, block: Any) -> None:
    """Put a block among the unused ones."""
    buckets[block]["block"] = buckets[0]["block"]
    buckets[0]["block"] = block
    buckets[0]["count"] += 1


@compiled
def _bucket_for(buckets: Any, block: Any, reward: Any) -> Any:
    """Find the bucket of a block that covers a reward: ends are exact numbers, quotients not."""
    low, width = buckets[block]["low"], buckets[block]["width"]
    i = np.int64((reward - low) / width)
    if reward < low + i * width:
        i -= 1
    elif reward >= low + (i + 1) * width:
        i += 1
    return block + i


@compiled
def _count_in(bucket: Any, reward: Any, sign: Any) -> None:
    """Count a reward (sign 1) or count it no more (sign -1)."""
    share = (reward - bucket["low"]) / bucket["width"] - 0.5
    bucket["count"] += sign
    bucket["sum"] += sign * share
    bucket["square"] += sign * share * share
    bucket["cube"] += sign * share * share * share


@compiled
def _fill(phi: Any, owner: Any, block: Any) -> None:
    """Pass the list of a cell or a bucket on to the buckets of a block."""
    slot = np.int64(owner["oldest"])
    while slot >= 0:
        younger = np.int64(phi.slots[slot]["younger"])
        reward = phi.slots[slot]["reward"]
        bucket = phi.buckets[_bucket_for(phi.buckets, block, reward)]
        if bucket["count"] == 0:
            bucket["stamp"] = phi.slots[slot]["stamp"]
        _count_in(bucket, reward, 1)
        _append(phi.slots, bucket, slot)
        slot = younger
    owner["block"] = block
    owner["youngest"] = -1


@compiled
def _collapse(phi: Any, owner: Any) -> None:
    """Make a list again of the rewards of a block, whose buckets are lists."""
    block = np.int64(owner["block"])
    owner["oldest"] = owner["youngest"] = -1
    owner["block"] = 0
    while True:
        best = np.int64(-1)
        for i in range(block, block + FAN):
            is_older = best < 0 or phi.buckets[i]["stamp"] < phi.buckets[best]["stamp"]
            if phi.buckets[i]["oldest"] >= 0 and is_older:
                best = np.int64(i)
        if best < 0:
            break
        slot = np.int64(phi.buckets[best]["oldest"])
        _unlink(phi.slots, phi.buckets[best], slot)
        _append(phi.slots, owner, slot)
        following = np.int64(phi.buckets[best]["oldest"])
        if following >= 0:
            phi.buckets[best]["stamp"] = phi.slots[following]["stamp"]
    _free_block(phi.buckets, block)


@compiled
def _oldest_below(buckets: Any, bucket: Any) -> None:
    """Find anew the oldest of a bucket that has a block."""
    bucket["oldest"] = -1
    for i in range(bucket["block"], bucket["block"] + FAN):
        other = buckets[i]
        if other["count"] > 0 and (bucket["oldest"] < 0 or other["stamp"] < bucket["stamp"]):
            bucket["oldest"], bucket["stamp"] = other["oldest"], other["stamp"]


@compiled
def _sum_up(buckets: Any, bucket: Any) -> None:
    """Give a bucket the sums over those of its block."""
    for i in range(bucket["block"], bucket["block"] + FAN):
        part = buckets[i]
        away = (i - bucket["block"] + 0.5) / FAN - 0.5  # of its middle from this one's
        n, x, xx, xxx = (
            part["count"],
            part["sum"] / FAN,
            part["square"] / FAN**2,
            part["cube"] / FAN**3,
        )
        bucket["count"] += n
        bucket["sum"] += n * away + x
        bucket["square"] += (n * away + 2.0 * x) * away + xx
        bucket["cube"] += ((n * away + 3.0 * x) * away + 3.0 * xx) * away + xxx
    _oldest_below(buckets, bucket)


@compiled
def _least_bound(reward: Any) -> Any:
    """Least power of eight above a positive number."""
    exponent = math.frexp(reward)[1]
    return math.ldexp(1.0, exponent + (-exponent) % 3)


@compiled
def _plant(phi: Any, cell: Any, reward: Any) -> None:
    """Give a crowded list a block that covers its rewards and another."""
    largest = abs(reward)
    slot = np.int64(cell["oldest"])
    while slot >= 0:
        largest = max(largest, abs(phi.slots[slot]["reward"]))
        slot = np.int64(phi.slots[slot]["younger"])
    bound = _least_bound(max(largest, phi.state[0]["narrowest"]))
    _fill(phi, cell, _new_block(phi.buckets, -bound, 2.0 * bound / FAN))


@compiled
def _widen(phi: Any, cell: Any) -> None:
    """Let a cell's block cover eight times as much.

    The old buckets become a half each of what is below the two buckets beside 0.
    """
    buckets, old = phi.buckets, np.int64(cell["block"])
    width = buckets[old]["width"]
    block = _new_block(buckets, FAN * buckets[old]["low"], FAN * width)
    half = FAN // 2
    for side in range(2):
        parent = buckets[block + half - 1 + side]
        below = _new_block(buckets, parent["low"], width)
        for i in range(half):
            buckets[below + (1 - side) * half + i] = buckets[old + side * half + i]
        parent["block"] = below
        _sum_up(buckets, parent)
        if parent["count"] <= SCANNED:
            _collapse(phi, parent)
    _free_block(buckets, old)
    cell["block"] = block


@compiled
def _covers(first: Any, reward: Any) -> bool:
    """Whether a block, given by its first bucket, covers a reward."""
    return bool(first["low"] <= reward < first["low"] + FAN * first["width"])


@compiled
def _may_divide(phi: Any, bucket: Any) -> bool:
    """Whether a bucket is wide enough for eight that differ."""
    furthest = abs(bucket["low"]) + bucket["width"]
    return bool(
        bucket["width"] > phi.state[0]["narrowest"] and furthest < 2.0**46 * bucket["width"]
    )


# --- changes ------------------------------------------------------------------------------------


@compiled
def prepare(phi: Any, cell: Any, reward: Any) -> bool:
    """Divide what is too crowded for another reward; False when the arrays have to grow first.

    The contents stay what they are. Afterwards `insert` needs no more room.

    Args:
        phi: the arrays.
        cell: that the reward belongs to, 0 for a new one.
        reward: about to be inserted.
    """
    if phi.state[0]["clock"] >= _LAST_STAMP:
        return False
    if cell == 0:
        return bool(phi.cells[0]["count"] > 0)
    owner, buckets = phi.cells[cell], phi.buckets
    if owner["block"] == 0:
        if owner["count"] < SCANNED:
            return True
        if buckets[0]["count"] == 0:
            return False
        _plant(phi, owner, reward)
    while not _covers(buckets[owner["block"]], reward):
        if buckets[0]["count"] < 3:
            return False
        _widen(phi, owner)
    bucket = buckets[_bucket_for(buckets, owner["block"], reward)]
    while True:
        if bucket["block"] == 0:
            if bucket["count"] < SCANNED or not _may_divide(phi, bucket):
                return True
            if buckets[0]["count"] == 0:
                return False
            _fill(phi, bucket, _new_block(buckets, bucket["low"], bucket["width"] / FAN))
        bucket = buckets[_bucket_for(buckets, bucket["block"], reward)]


@compiled
def insert(phi: Any, cell: Any, key: Any, slot: Any, reward: Any) -> None:
    """Store a reward as the youngest of its cell (0: a new one); `prepare` comes before."""
    if cell == 0:
        cell = _new_cell(phi, key)
    owner, slots, buckets = phi.cells[cell], phi.slots, phi.buckets
    stamp = phi.state[0]["clock"]
    slots[slot]["reward"] = reward
    slots[slot]["cell"] = cell
    slots[slot]["stamp"] = stamp
    phi.state[0]["clock"] = stamp + 1
    phi.state[0]["stored"] += 1
    owner["count"] += 1
    block = np.int64(owner["block"])
    if block == 0:
        _append(slots, owner, slot)
        return
    while block != 0:
        bucket = buckets[_bucket_for(buckets, block, reward)]
        if bucket["count"] == 0:
            bucket["oldest"], bucket["stamp"] = slot, stamp
        _count_in(bucket, reward, 1)
        block = np.int64(bucket["block"])
        if block == 0:
            _append(slots, bucket, slot)


@compiled
def remove(phi: Any, slot: Any) -> bool:
    """Forget the reward of a slot; False when the slot holds none."""
    slots = phi.slots
    if slot < 0 or slot >= len(slots) or slots[slot]["cell"] == 0:
        return False
    cell = np.int64(slots[slot]["cell"])
    owner, reward = phi.cells[cell], slots[slot]["reward"]
    slots[slot]["cell"] = 0
    phi.state[0]["stored"] -= 1
    owner["count"] -= 1
    if owner["block"] == 0:
        _unlink(slots, owner, slot)
    else:
        _remove_from_block(phi, np.int64(owner["block"]), slot, reward)
        if owner["count"] <= SCANNED:
            _collapse(phi, owner)
    if owner["count"] == 0:
        _remove_cell(phi, cell)
    return True


@compiled
def _remove_from_block(phi: Any, block: Any, slot: Any, reward: Any) -> None:
    buckets = phi.buckets
    path = np.empty(_MOST_BLOCKS, dtype=np.int32)
    depth = 0
    while block != 0:
        path[depth] = _bucket_for(buckets, block, reward)
        block = np.int64(buckets[path[depth]]["block"])
        depth += 1
    _unlink(phi.slots, buckets[path[depth - 1]], slot)
    for level in range(depth - 1, -1, -1):
        bucket = buckets[path[level]]
        _count_in(bucket, reward, -1)
        if bucket["block"] != 0 and bucket["count"] <= SCANNED:
            _collapse(phi, bucket)
        if bucket["count"] == 0:
            _empty(bucket)
        elif bucket["block"] == 0:
            bucket["stamp"] = phi.slots[bucket["oldest"]]["stamp"]
        elif bucket["oldest"] == slot:
            _oldest_below(buckets, bucket)


# --- questions ----------------------------------------------------------------------------------


@compiled
def cell_mass(phi: Any, rule: Any, cell: Any, reward: Any, tolerance: Any) -> tuple[Any, Any]:
    """Sum of the masses of a cell's rewards, and how far off it may be.

    A bucket whose mass is known to `tolerance` or better is not looked into. With a negative one
    all lists are read, and only whole numbers added: the sum is the same whatever their order.
    """
    owner, slots, buckets, reach = phi.cells[cell], phi.slots, phi.buckets, rule["reach"]
    # So small that no sum of as many whole numbers of units has more than 62 bits.
    unit = math.ldexp(1.0, math.frexp(float(owner["count"]))[1] - 62)
    if owner["block"] == 0:
        return unit * _units_in_list(slots, rule, owner, reward, unit), 0.0
    units = np.int64(0)
    total = doubt = 0.0
    waiting = np.empty(_MOST_BLOCKS, dtype=np.int32)
    waiting[0] = owner["block"]
    count = 1
    while count > 0:
        count -= 1
        block = np.int64(waiting[count])
        for i in range(block, block + FAN):
            bucket = buckets[i]
            left = bucket["low"] - reward
            if bucket["count"] == 0 or left >= reach or left + bucket["width"] <= -reach:
                continue
            known, off = bucket_mass(rule, bucket, reward)
            if off <= tolerance:
                total += known
                doubt += off
            elif bucket["block"] != 0:
                waiting[count] = bucket["block"]
                count += 1
            else:
                units += _units_in_list(slots, rule, bucket, reward, unit)
    return total + units * unit, doubt


@compiled
def _units_in_list(slots: Any, rule: Any, owner: Any, reward: Any, unit: Any) -> Any:
    units = np.int64(0)
    slot = np.int64(owner["oldest"])
    while slot >= 0:
        units += np.int64(mass(rule, slots[slot]["reward"] - reward) / unit)
        slot = np.int64(slots[slot]["younger"])
    return units


@compiled
def is_dense(phi: Any, rule: Any, cell: Any, reward: Any) -> bool:
    """Whether the density of a reward in its cell reaches the limit: the transition is not new."""
    count = float(phi.cells[cell]["count"])
    limit = count * rule["threshold"] * math.exp(-count / rule["decay"])
    if limit <= 0.0:
        return True
    rounding = ROUNDING * count
    tolerance = -1.0 if phi.cells[cell]["block"] == 0 else count / 32.0
    while tolerance >= 0.0:
        total, doubt = cell_mass(phi, rule, cell, reward, tolerance)
        if abs(total - limit) > doubt + rounding:
            return bool(total > limit)
        if tolerance == 0.0:
            break
        # About as exact as this decision needs, should the sum have been near the truth.
        tolerance = min(tolerance, abs(total - limit)) / 32.0
        if tolerance < rounding:
            tolerance = 0.0
    total, _ = cell_mass(phi, rule, cell, reward, -1.0)
    return bool(total >= limit)


@compiled
def oldest_within(phi: Any, cell: Any, reward: Any, within: Any) -> Any:
    """Slot of the oldest of a cell's rewards at most `within` away, or -1."""
    owner, slots, buckets = phi.cells[cell], phi.slots, phi.buckets
    best, best_stamp = np.int64(-1), np.int64(_LAST_STAMP)
    if owner["block"] == 0:
        return _first_near(slots, owner, reward, within, best_stamp)
    waiting = np.empty(_MOST_BLOCKS, dtype=np.int32)
    waiting[0] = owner["block"]
    count = 1
    while count > 0:
        count -= 1
        block = np.int64(waiting[count])
        for i in range(block, block + FAN):
            bucket = buckets[i]
            if bucket["count"] == 0 or bucket["stamp"] >= best_stamp:
                continue
            left = bucket["low"] - reward
            right = bucket["low"] + bucket["width"] - reward
            if left > within or right < -within:
                continue
            if left >= -within and right <= within:
                best, best_stamp = np.int64(bucket["oldest"]), np.int64(bucket["stamp"])
            elif bucket["block"] != 0:
                waiting[count] = bucket["block"]
                count += 1
            else:
                found = _first_near(slots, bucket, reward, within, best_stamp)
                if found >= 0:
                    best, best_stamp = found, np.int64(slots[found]["stamp"])
    return best


@compiled
def _first_near(slots: Any, owner: Any, reward: Any, within: Any, before: Any) -> Any:
    """First slot of a list with a reward at most `within` away and a stamp `before` this, or -1."""
    slot = np.int64(owner["oldest"])
    while slot >= 0 and slots[slot]["stamp"] < before:
        if abs(slots[slot]["reward"] - reward) <= within:
            return slot
        slot = np.int64(slots[slot]["younger"])
    return np.int64(-1)


@compiled
def equivalent_slot(phi: Any, cell: Any, reward: Any, within: Any) -> Any:
    """Slot of the oldest reward at most `within` away; where none is, of the nearest.

    Of several that are equally near, the oldest.
    """
    slot = oldest_within(phi, cell, reward, within)
    if slot >= 0:
        return slot
    while slot < 0:
        within *= 2.0
        slot = oldest_within(phi, cell, reward, within)
    while slot >= 0:  # the oldest of those that are nearer still: half as many each time, or so
        within = abs(phi.slots[slot]["reward"] - reward)
        slot = oldest_within(phi, cell, reward, np.nextafter(within, 0.0))
    return oldest_within(phi, cell, reward, within)


# --- the arrays and their owner -----------------------------------------------------------------


@compiled
def _insert_rows(phi: Any, keys: Any, rewards: Any, places: Any, widths: Any, row: Any) -> Any:
    """Store rewards from `row` on in these slots; gives the row for which there is no room.

    Where a cell has buckets, its widest are at least of this width.
    """
    while row < len(rewards):
        cell = find_cell(phi.cells, keys[row])
        if places[row] >= len(phi.slots) or not prepare(phi, cell, rewards[row]):
            break
        owner = phi.cells[cell]
        while owner["block"] != 0 and phi.buckets[owner["block"]]["width"] < widths[row]:
            if phi.buckets[0]["count"] < _SPARE_BLOCKS:
                return row
            _widen(phi, owner)
        insert(phi, cell, keys[row], places[row], rewards[row])
        row += 1
    return row


@compiled
def _free_blocks(buckets: Any, block: Any) -> None:
    """Put all blocks from this one on among the unused ones."""
    for first in range(block, len(buckets), FAN):
        _free_block(buckets, first)


@compiled
def _renumber(phi: Any, oldest_first: Any) -> None:
    """Give the slots that hold something new stamps, from 0 on."""
    for stamp in range(len(oldest_first)):
        phi.slots[oldest_first[stamp]]["stamp"] = stamp
    for i in range(FAN, len(phi.buckets)):
        if phi.buckets[i]["count"] > 0:
            phi.buckets[i]["stamp"] = phi.slots[phi.buckets[i]["oldest"]]["stamp"]
    phi.state[0]["clock"] = len(oldest_first)


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


class Phi:
    """Owns the arrays of phi.

    Args:
        scale: distance of rewards at which their density makes a difference.
    """

    def __init__(self, scale: float) -> None:
        state = np.zeros(1, dtype=STATE)
        state["narrowest"] = math.ldexp(1.0, math.frexp(scale)[1] - 24)
        self.arrays = Arrays(
            np.zeros(0, dtype=SLOT), np.zeros(1, dtype=CELL), np.zeros(FAN, dtype=BUCKET), state
        )

    @property
    def stored(self) -> int:
        """Rewards held."""
        return int(self.arrays.state["stored"][0])

    @property
    def cells(self) -> int:
        """Cells that hold a reward."""
        return int(self.arrays.state["cells"][0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell."""
        counts = self.arrays.cells["count"][1:].astype(np.int64)
        return counts[counts > 0]

    def holds(self, slot: int) -> bool:
        """Tell whether a slot holds a reward."""
        return 0 <= slot < len(self.arrays.slots) and bool(self.arrays.slots["cell"][slot])

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots that hold a reward, oldest first."""
        held = np.flatnonzero(self.arrays.slots["cell"])
        return held[np.argsort(self.arrays.slots["stamp"][held])]

    def insert(
        self,
        keys: NDArray[np.uint64],
        rewards: NDArray[np.float64],
        slots: NDArray[np.int64],
        widths: NDArray[np.float64] | None = None,
    ) -> None:
        """Store rewards in cells with these keys, in order."""
        row = 0
        widths = np.zeros(len(rewards)) if widths is None else widths
        while row < len(rewards):
            row = _insert_rows(self.arrays, keys, rewards, slots, widths, row)
            if row < len(rewards):
                self.make_room(int(slots[row]))

    def remove(self, slot: int) -> bool:
        """Forget the reward of a slot; False when the slot holds none."""
        return bool(remove(self.arrays, slot))

    def make_room(self, slot: int) -> None:
        """Let the arrays grow where another reward might find them too short.

        They grow by a small share, so little lies idle; copying stays a constant cost per reward.

        Args:
            slot: that the reward goes into.
        """
        slots, cells, buckets, state = self.arrays
        lengths = [len(slots), len(cells), len(buckets)]
        if slot >= len(slots):
            lengths[0] = slot + slot // 8 + 16
        if cells[0]["count"] == 0:
            lengths[1] += len(cells) // 8 + 16
        if buckets[0]["count"] < _SPARE_BLOCKS:
            lengths[2] += (len(buckets) // FAN // 8 + _SPARE_BLOCKS) * FAN
        self._grow(lengths)
        if state[0]["clock"] >= _LAST_STAMP:
            _renumber(self.arrays, self.slots_held())

    def _grow(self, lengths: Sequence[int]) -> None:
        """Let slots, cells and buckets be as many as these, which are at least what they are."""
        slots, cells, buckets, state = self.arrays
        if lengths[0] > len(slots):
            slots = _longer(slots, lengths[0])
        if lengths[1] > len(cells):
            cells = _longer(cells, lengths[1])
            _link_cells(cells)
        if lengths[2] > len(buckets):
            longer = _longer(buckets, lengths[2])
            _free_blocks(longer, len(buckets))
            buckets = longer
        self.arrays = Arrays(slots, cells, buckets, state)  # all at once, for an interrupt

    def state_dict(self) -> dict[str, Any]:
        """Give the contents, on which decisions depend, and the room, on which `nbytes` does.

        Contents are slots, rewards and cell keys, oldest first. What is divided follows from them,
        but not how wide a cell's buckets are, since a far reward may have left.
        """
        slots, cells, buckets, _ = self.arrays
        held = self.slots_held()
        owners = cells[slots["cell"][held]]
        return {
            "slots": held,
            "rewards": slots["reward"][held],
            "keys": owners["key"],
            "widths": np.where(owners["block"] > 0, buckets["width"][owners["block"]], 0.0),
            "room": [len(slots), len(cells), len(buckets)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what `state_dict` gave; so far nothing is held.

        Raises:
            ValueError: it is not the state of a phi.
        """
        columns = [np.asarray(state[name]) for name in ("slots", "rewards", "keys", "widths")]
        slots, rewards, keys, widths = columns
        room = [int(length) for length in state["room"]]
        if len({column.shape for column in columns}) > 1 or slots.ndim != 1 or len(room) != 3:
            raise ValueError("the filter's slots, rewards and cells are not of one length")
        if "".join(column.dtype.kind for column in columns) != "ifuf":
            raise ValueError("the filter's slots, rewards or cells are of the wrong type")
        if not (np.abs(rewards) <= FURTHEST).all() or not (np.abs(widths) <= FURTHEST).all():
            raise ValueError(f"a reward of the filter is not within {FURTHEST:.0e}")
        if len(np.unique(slots)) < len(slots):
            raise ValueError("the filter has a slot twice")
        # Slots are taken in order, so few transitions are not in slots with large numbers, and
        # there is never room for many more cells and buckets than slots.
        largest = int(slots.max(initial=-1))
        most = max(room[0], 128) * 2 * FAN
        if not (slots >= 0).all() or not largest < room[0] <= 2**24 + 64 * len(slots):
            raise ValueError(f"slots of the filter go to {largest}, where there are {room[0]}")
        if not (0 < room[1] <= most and FAN <= room[2] <= most and room[2] % FAN == 0):
            raise ValueError(f"the filter has room for {room}, which cannot be")
        self._grow(room)
        self.insert(keys, rewards, slots.astype(np.int64), widths)
