"""phi: the rewards of the stored transitions, cell by cell.

::

    key -> cell -- few rewards:  oldest <-> ... <-> youngest           a list of slots by age
             |
             +---- many:  all numbers cut into 8 buckets by reward     a block
                             |        |  ...  |
                             list     list    8 buckets                a block
                                                |  ...

A slot is the owner's number of a stored transition; here it has its reward, its cell, a stamp that
tells its age, and its neighbours in a list. Cells are found through a hash of their key. A cell or
a bucket with more than `SCANNED` rewards passes them on to eight buckets, which together cover what
it covered, and takes them back when no more are left. The first and the last bucket of a cell are
open: they take whatever lies beyond, and are divided into eight times wider ones, all others into
eight times narrower ones. So the shape follows from the contents alone. Every bucket knows how many
rewards lie in it or below it, the sums of their first three powers and the oldest of them. So

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.density_kernels import RULE, bucket_mass, kernel_rule, mass
from frugalrl.admission.offer import Offer, Rows, are_finite
from frugalrl.admission.partition import cell_key, cell_keys
from frugalrl.admission.protocol import DROP, REPLACE, STORE, Floats
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from frugalrl.admission.frugal import FrugalSettings

FAN = 8
"""Buckets of a block."""
SCANNED = 32
"""Most rewards of a list; with more it is divided, unless they are as good as equal."""
FURTHEST = 2.0**127
"""Rewards beyond this count as this."""
ROUNDING = 1e-11
"""More than what rounding can add up to in a density."""
DONE, NO_ROOM, SLOT_TAKEN, NOT_FINITE = range(4)
"""What deciding comes to."""
_NEVER = 2**31 - 1
"""The stamp of nothing, later than all others."""

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
"""A cell. Number 0 is none; its chain are the cells that were in use and are free again."""
BUCKET = np.dtype(
    [
        ("low", "f8"),
        ("high", "f8"),
        ("sum", "f8"),  # of the distances from the middle, as shares of the width
        ("square", "f8"),
        ("cube", "f8"),
        ("count", "i4"),
        ("oldest", "i4"),  # here or below
        ("stamp", "i4"),  # of the oldest
        ("youngest", "i4"),
        ("block", "i4"),
        ("step", "f4"),  # width of the buckets of its block that are not open
    ]
)
"""A bucket. Block 0 is none; its block is the first of those that are free again."""
RULE_AND_COUNTS = np.dtype(
    [
        *RULE.descr,
        ("threshold", "f8"),
        ("decay", "f8"),
        ("scale", "f8"),
        ("replaces", "i8"),
        ("width", "f8"),  # of a cell's buckets, a power of two
        ("clock", "i8"),  # next stamp
        ("cells", "i8"),  # cells in use
        ("cells_begun", "i8"),  # cells from here on never were in use
        ("blocks_begun", "i8"),  # nor blocks
    ]
)
"""The rule by which is decided, and counts."""


class Arrays(NamedTuple):
    """The arrays of phi by name; Numba takes a plain tuple in half the time."""

    slots: NDArray[Any]
    cells: NDArray[Any]
    buckets: NDArray[Any]
    state: NDArray[Any]


# --- cells ------------------------------------------------------------------------------------


@compiled
def _home(cells: Any, key: Any) -> Any:
    """Where in the array the search for a key begins."""
    share = (key >> np.uint64(32)) * np.uint64(len(cells))
    return np.int64(share >> np.uint64(32))


@compiled
def find_cell(cells: Any, key: Any) -> Any:
    """Number of the cell with this key, or 0."""
    cell = np.int64(cells[_home(cells, key)]["first"])
    while cell != 0 and cells[cell]["key"] != key:
        cell = np.int64(cells[cell]["chain"])
    return cell


@compiled
def _link_cell(cells: Any, cell: Any) -> None:
    """Let a cell be found by its key."""
    home = _home(cells, cells[cell]["key"])
    cells[cell]["chain"] = cells[home]["first"]
    cells[home]["first"] = cell


@compiled
def _link_cells(cells: Any) -> None:
    """Let the cells that hold something be found in an array that has grown."""
    cells["first"][:] = 0
    for cell in range(1, len(cells)):
        if cells[cell]["count"] > 0:
            _link_cell(cells, cell)


@compiled
def _new_cell(phi: Any, key: Any) -> Any:
    cells, state = phi.cells, phi.state[0]
    cell = np.int64(cells[0]["chain"])
    if cell != 0:
        cells[0]["chain"] = cells[cell]["chain"]
    else:
        cell = np.int64(state["cells_begun"])
        state["cells_begun"] += 1
    cells[cell]["key"] = key
    cells[cell]["oldest"] = cells[cell]["youngest"] = -1
    cells[cell]["block"] = 0
    _link_cell(cells, cell)
    state["cells"] += 1
    return cell


@compiled
def _remove_cell(phi: Any, cell: Any) -> None:
    """Forget an empty cell."""
    cells = phi.cells
    home = _home(cells, cells[cell]["key"])
    if cells[home]["first"] == cell:
        cells[home]["first"] = cells[cell]["chain"]
    else:
        before = np.int64(cells[home]["first"])
        while cells[before]["chain"] != cell:
            before = np.int64(cells[before]["chain"])
        cells[before]["chain"] = cells[cell]["chain"]
    cells[cell]["chain"] = cells[0]["chain"]
    cells[0]["chain"] = cell
    phi.state[0]["cells"] -= 1


# --- lists: a node is a cell or a bucket, which has either a list or a block --------------------


@compiled
def _append(slots: Any, node: Any, slot: Any) -> None:
    """Put a slot at the young end of a list."""
    youngest = np.int64(node["youngest"])
    slots[slot]["older"] = youngest
    slots[slot]["younger"] = -1
    if youngest >= 0:
        slots[youngest]["younger"] = slot
    else:
        node["oldest"] = slot
    node["youngest"] = slot


@compiled
def _unlink(slots: Any, node: Any, slot: Any) -> None:
    """Take a slot out of a list."""
    older, younger = np.int64(slots[slot]["older"]), np.int64(slots[slot]["younger"])
    if older >= 0:
        slots[older]["younger"] = younger
    else:
        node["oldest"] = younger
    if younger >= 0:
        slots[younger]["older"] = older
    else:
        node["youngest"] = older


# --- buckets ------------------------------------------------------------------------------------


@compiled
def _bucket_for(buckets: Any, block: Any, reward: Any) -> Any:
    """Find the bucket that covers a reward, or the nearest; ends are exact, quotients are not."""
    steps = (reward - buckets[block]["high"]) / buckets[block]["step"]
    bucket = block + np.int64(min(max(steps + 1.0, 0.0), FAN - 1.0))
    if reward < buckets[bucket]["low"]:
        return max(bucket - 1, block)
    return min(bucket + 1, block + FAN - 1) if reward >= buckets[bucket]["high"] else bucket


@compiled
def _buckets_near(buckets: Any, block: Any, reward: Any, within: Any) -> Any:
    """All buckets of a block, as a range, that may hold a reward at most `within` away."""
    within *= 1.001  # so that rounding leaves none out
    first = _bucket_for(buckets, block, reward - within)
    return range(first, _bucket_for(buckets, block, reward + within) + 1)


@compiled
def _width_below(phi: Any, bucket: Any) -> Any:
    """Width of the buckets that one is divided into, 0 where they would not differ."""
    width = bucket["high"] - bucket["low"]
    if width == np.inf:
        return FAN * float(bucket["step"])
    furthest = max(-bucket["low"], bucket["high"])
    is_enough = width > 2.0**-25 * phi.state[0]["width"] and furthest < 2.0**46 * width
    return width / FAN if is_enough else 0.0


@compiled
def _divide(phi: Any, oldest: Any, low: Any, high: Any, width: Any) -> Any:
    """Pass a list on to a new block of buckets of this width, which cover [low, high).

    Gives the block; 0 when there is no room for one, and nothing has changed.
    """
    buckets, state = phi.buckets, phi.state[0]
    block = np.int64(buckets[0]["block"])
    if block != 0:
        buckets[0]["block"] = buckets[block]["block"]
    elif state["blocks_begun"] < len(buckets):
        block = np.int64(state["blocks_begun"])
        state["blocks_begun"] += FAN
    else:
        return block
    start = low if low > -np.inf else (0.5 * FAN * width if high == np.inf else high) - FAN * width
    for i in range(FAN):
        bucket = buckets[block + i]
        bucket["low"], bucket["high"] = start + i * width, start + (i + 1) * width
        bucket["step"] = width
        bucket["sum"] = bucket["square"] = bucket["cube"] = 0.0
        bucket["count"] = bucket["block"] = 0
        bucket["oldest"] = bucket["youngest"] = -1
        bucket["stamp"] = _NEVER
    buckets[block]["low"], buckets[block + FAN - 1]["high"] = low, high
    slot = np.int64(oldest)
    while slot >= 0:
        younger = np.int64(phi.slots[slot]["younger"])
        reward = phi.slots[slot]["reward"]
        bucket = buckets[_bucket_for(buckets, block, reward)]
        _count(bucket, reward, 1)
        _append(phi.slots, bucket, slot)
        _find_oldest(phi, bucket)
        slot = younger
    return block


@compiled
def _collapse(phi: Any, node: Any) -> None:
    """Give a cell or a bucket a list again instead of its block, whose buckets are lists."""
    slots, buckets = phi.slots, phi.buckets
    block = np.int64(node["block"])
    node["block"], node["youngest"] = 0, -1
    while True:
        bucket = buckets[_with_oldest(buckets, block)]
        if bucket["stamp"] == _NEVER:
            break
        slot = np.int64(bucket["oldest"])
        _unlink(slots, bucket, slot)
        _find_oldest(phi, bucket)
        _append(slots, node, slot)
    buckets[block]["block"] = buckets[0]["block"]
    buckets[0]["block"] = block


@compiled
def _are_lists(buckets: Any, block: Any) -> bool:
    """Whether no bucket of a block is divided: one is for a reward that is to come at once."""
    divided = 0
    for i in range(block, block + FAN):
        divided += buckets[i]["block"] != 0
    return bool(divided == 0)


@compiled
def _with_oldest(buckets: Any, block: Any) -> Any:
    """Find the bucket of a block that holds the oldest reward."""
    best = block
    for i in range(block + 1, block + FAN):
        if buckets[i]["stamp"] < buckets[best]["stamp"]:
            best = i
    return best


@compiled
def _find_oldest(phi: Any, bucket: Any) -> None:
    """Note the oldest of what is in a bucket or below it."""
    if bucket["block"] != 0:
        best = phi.buckets[_with_oldest(phi.buckets, np.int64(bucket["block"]))]
        bucket["oldest"], bucket["stamp"] = best["oldest"], best["stamp"]
    elif bucket["oldest"] >= 0:
        bucket["stamp"] = phi.slots[bucket["oldest"]]["stamp"]
    else:
        bucket["stamp"] = _NEVER


@compiled
def _count(bucket: Any, reward: Any, sign: Any) -> None:
    """Count a reward (sign 1) or count it no more (sign -1). The sums of an open bucket are NaN."""
    width = bucket["high"] - bucket["low"]
    share = (reward - 0.5 * (bucket["low"] + bucket["high"])) / width
    bucket["count"] += sign
    bucket["sum"] += sign * share
    bucket["square"] += sign * share * share
    bucket["cube"] += sign * share * share * share


# --- changes ------------------------------------------------------------------------------------


@compiled
def _prepare(phi: Any, cell: Any, reward: Any) -> bool:
    """Divide what is too crowded for another reward of a cell, 0 for a new one.

    False when the arrays have to grow first. The contents stay what they are.
    """
    cells, buckets, state = phi.cells, phi.buckets, phi.state[0]
    if state["clock"] >= _NEVER:
        return False
    if cell == 0:
        return bool(cells[0]["chain"] != 0 or state["cells_begun"] < len(cells))
    node = cells[cell]
    if node["block"] == 0 and node["count"] >= SCANNED:
        node["block"] = _divide(phi, node["oldest"], -np.inf, np.inf, state["width"])
        if node["block"] == 0:
            return False
    block = np.int64(node["block"])
    while block != 0:
        bucket = buckets[_bucket_for(buckets, block, reward)]
        width = _width_below(phi, bucket)
        if bucket["block"] == 0 and bucket["count"] >= SCANNED and width > 0.0:
            bucket["block"] = _divide(phi, bucket["oldest"], bucket["low"], bucket["high"], width)
            if bucket["block"] == 0:
                return False
        block = np.int64(bucket["block"])
    return True


@compiled
def store(phi: Any, key: Any, cell: Any, slot: Any, reward: Any) -> bool:
    """Store a reward as the youngest of its cell, 0 for a new one, in place of what the slot held.

    False when the arrays have to grow first; then nothing has changed.
    """
    slots, buckets, state = phi.slots, phi.buckets, phi.state[0]
    if slot >= len(slots) or not _prepare(phi, cell, reward):
        return False
    if slots[slot]["cell"] != 0:
        remove(phi, slot)  # which takes no room
        cell = cell if phi.cells[cell]["count"] > 0 else 0
        _prepare(phi, cell, reward)
    if cell == 0:
        cell = _new_cell(phi, key)
    node = phi.cells[cell]
    slots[slot]["reward"], slots[slot]["cell"] = reward, cell
    slots[slot]["stamp"] = state["clock"]
    state["clock"] += 1
    node["count"] += 1
    block = np.int64(node["block"])
    if block == 0:
        _append(slots, node, slot)
    while block != 0:
        bucket = buckets[_bucket_for(buckets, block, reward)]
        _count(bucket, reward, 1)
        block = np.int64(bucket["block"])
        if block == 0:
            _append(slots, bucket, slot)
            _find_oldest(phi, bucket)
    return True


@compiled
def remove(phi: Any, slot: Any) -> None:
    """Forget the reward of a slot, which holds one."""
    slots = phi.slots
    cell = np.int64(slots[slot]["cell"])
    node, reward = phi.cells[cell], slots[slot]["reward"]
    slots[slot]["cell"] = 0
    node["count"] -= 1
    if node["block"] == 0:
        _unlink(slots, node, slot)
    else:
        _remove_below(phi, np.int64(node["block"]), slot, reward)
        if node["count"] <= SCANNED and _are_lists(phi.buckets, np.int64(node["block"])):
            _collapse(phi, node)
    if node["count"] == 0:
        _remove_cell(phi, cell)


@compiled
def _remove_below(phi: Any, block: Any, slot: Any, reward: Any) -> None:
    """Take a slot out of the list below a block that it is in, and out of all counts above."""
    bucket = phi.buckets[_bucket_for(phi.buckets, block, reward)]
    _count(bucket, reward, -1)
    if bucket["count"] == 0:
        bucket["sum"] = bucket["square"] = bucket["cube"] = 0.0  # without what rounding left
    if bucket["block"] == 0:
        _unlink(phi.slots, bucket, slot)
        _find_oldest(phi, bucket)
        return
    _remove_below(phi, np.int64(bucket["block"]), slot, reward)
    if bucket["count"] <= SCANNED and _are_lists(phi.buckets, np.int64(bucket["block"])):
        _collapse(phi, bucket)
    if bucket["oldest"] == slot or bucket["block"] == 0:
        _find_oldest(phi, bucket)


# --- questions ----------------------------------------------------------------------------------


@compiled
def cell_mass(phi: Any, cell: Any, reward: Any, tolerance: Any) -> tuple[Any, Any]:
    """Sum of the masses of a cell's rewards, and how far off it may be.

    A bucket whose mass is known to `tolerance` or better is not looked into. With a negative one
    all lists are read, and only whole numbers added: the sum is the same whatever their order.
    """
    node = phi.cells[cell]
    # So small that no sum of as many whole numbers of units has more than 62 bits.
    unit = math.ldexp(1.0, math.frexp(float(node["count"]))[1] - 62)
    oldest, block = np.int64(node["oldest"]), np.int64(node["block"])
    total, doubt, units = _mass_below(
        phi.slots, phi.buckets, phi.state[0], oldest, block, reward, tolerance, unit
    )
    return total + units * unit, doubt


@compiled
def _mass_below(
    slots: Any, buckets: Any, rule: Any, oldest: Any, block: Any, reward: Any, tolerance: Any,
    unit: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Mass of a list, or of all below a block: by sums, the doubt of these, and in units."""
    total, doubt, units = 0.0, 0.0, np.int64(0)
    if block == 0:
        slot = oldest
        while slot >= 0:
            units += np.int64(mass(rule, slots[slot]["reward"] - reward) / unit)
            slot = np.int64(slots[slot]["younger"])
        return total, doubt, units
    for i in _buckets_near(buckets, block, reward, rule["reach"]):
        bucket = buckets[i]
        if bucket["count"] == 0:
            continue
        known, off = bucket_mass(rule, bucket, reward)
        if off > tolerance:
            first, inner = np.int64(bucket["oldest"]), np.int64(bucket["block"])
            known, off, more = _mass_below(
                slots, buckets, rule, first, inner, reward, tolerance, unit
            )
            units += more
        total += known
        doubt += off
    return total, doubt, units


@compiled
def is_dense(phi: Any, cell: Any, reward: Any) -> bool:
    """Whether the density of a reward in its cell reaches the limit: the transition is not new."""
    rule, count = phi.state[0], float(phi.cells[cell]["count"])
    limit = count * rule["threshold"] * math.exp(-count / rule["decay"])
    if limit <= 0.0:
        return True
    rounding = ROUNDING * count
    tolerance = count / 32.0
    while True:
        total, doubt = cell_mass(phi, cell, reward, tolerance)
        if abs(total - limit) > doubt + rounding:
            return bool(total > limit)
        if tolerance < 0.0:
            return bool(total >= limit)
        if tolerance == 0.0:
            tolerance = -1.0
        else:
            # About as exact as this decision needs, should the sum have been near the truth.
            tolerance = min(tolerance, abs(total - limit)) / 32.0
            if tolerance < rounding:
                tolerance = 0.0


@compiled
def oldest_within(phi: Any, cell: Any, reward: Any, within: Any) -> Any:
    """Slot of the oldest of a cell's rewards at most `within` away, or -1."""
    node = phi.cells[cell]
    oldest, block = np.int64(node["oldest"]), np.int64(node["block"])
    nothing = np.int64(-1), np.int64(_NEVER)
    return _older_below(phi.slots, phi.buckets, oldest, block, reward, within, nothing)[0]


@compiled
def _older_below(
    slots: Any, buckets: Any, oldest: Any, block: Any, reward: Any, within: Any,
    best: tuple[Any, Any],
) -> tuple[Any, Any]:  # fmt: skip
    """Slot and stamp of a list's or a block's oldest reward that is near; `best` if that is older.

    Stamps are taken from buckets where they can be: slots lie anywhere in memory.
    """
    if block == 0:
        slot = oldest
        while slot >= 0 and slots[slot]["stamp"] < best[1]:
            if abs(slots[slot]["reward"] - reward) <= within:
                return slot, np.int64(slots[slot]["stamp"])
            slot = np.int64(slots[slot]["younger"])
        return best
    near = _buckets_near(buckets, block, reward, within)
    if buckets[block]["step"] <= 2.0 * within:
        # First the buckets that lie within as a whole: they often spare a look into the others.
        for i in near:
            bucket = buckets[i]
            left, right = bucket["low"] - reward, bucket["high"] - reward
            if bucket["stamp"] < best[1] and left >= -within and right <= within:
                best = np.int64(bucket["oldest"]), np.int64(bucket["stamp"])
    for i in near:
        bucket = buckets[i]
        if bucket["stamp"] < best[1]:
            first, inner = np.int64(bucket["oldest"]), np.int64(bucket["block"])
            best = _older_below(slots, buckets, first, inner, reward, within, best)
    return best


@compiled
def equivalent_slot(phi: Any, cell: Any, reward: Any, within: Any) -> Any:
    """Slot of the oldest reward at most `within` away; where none is, of the nearest.

    Of several that are equally near, the oldest.
    """
    slot = oldest_within(phi, cell, reward, within)
    if slot >= 0:
        return slot
    nearest = _nearest_beside(phi, cell, reward)
    while nearest == np.inf:
        within *= 8.0
        slot = oldest_within(phi, cell, reward, within)
        if slot >= 0:
            nearest = abs(phi.slots[slot]["reward"] - reward)
    while True:  # the oldest of those that are nearer still: half as many each time, or so
        slot = oldest_within(phi, cell, reward, np.nextafter(nearest, 0.0))
        if slot < 0:
            return oldest_within(phi, cell, reward, nearest)
        nearest = abs(phi.slots[slot]["reward"] - reward)


@compiled
def _nearest_beside(phi: Any, cell: Any, reward: Any) -> Any:
    """Distance of the nearest in the list that a reward would join, infinite if that is empty."""
    slots, buckets, node = phi.slots, phi.buckets, phi.cells[cell]
    slot, block = np.int64(node["oldest"]), np.int64(node["block"])
    while block != 0:
        bucket = buckets[_bucket_for(buckets, block, reward)]
        slot, block = np.int64(bucket["oldest"]), np.int64(bucket["block"])
    nearest = np.inf
    while slot >= 0:
        nearest = min(nearest, abs(slots[slot]["reward"] - reward))
        slot = np.int64(slots[slot]["younger"])
    return nearest


# --- decisions --------------------------------------------------------------------------------


@compiled
def _decide(arrays: Any, partition: Any, rows: Any, answer: Any) -> int:
    """Decide about the rows of an offer in order, going on where its `progress` ends.

    Returns:
        Whether that is done, or what is in the way: too little room, rows that are not finite, or
        a free slot that holds something. Nothing has changed then.
    """
    phi = Arrays(*arrays)
    slots, rule = phi.slots, phi.state[0]
    observations, rewards = rows
    free, codes, places, progress = answer
    row, taken = progress[0], progress[1]
    if row == 0:
        if not are_finite(observations, rewards):
            return NOT_FINITE
        for slot in free:
            if slot < len(slots) and slots[slot]["cell"] != 0:
                return SLOT_TAKEN
    while row < len(rewards) and taken >= 0:
        reward = _scaled(rule, rewards[row])
        key = cell_key(partition, observations[row])
        cell = find_cell(phi.cells, key)
        code, slot = STORE, np.int64(-1)
        if cell == 0 or not is_dense(phi, cell, reward):
            if taken < len(free):
                slot = free[taken]
            taken = taken + 1 if slot >= 0 else -1
        elif rule["replaces"]:
            code, slot = REPLACE, equivalent_slot(phi, cell, reward, rule["half_width"])
        else:
            code = DROP
        if slot >= 0 and not store(phi, key, cell, slot, reward):
            return NO_ROOM
        codes[row], places[row] = code, slot
        row += 1
        progress[0], progress[1] = row, taken
    return DONE


@compiled
def _place(arrays: Any, partition: Any, observation: Any, reward: Any, slot: Any) -> bool:
    """Store a row in a slot, unless that holds something; False when the arrays have to grow."""
    phi = Arrays(*arrays)
    if slot < len(phi.slots) and phi.slots[slot]["cell"] != 0:
        return True
    key = cell_key(partition, observation)
    return store(phi, key, find_cell(phi.cells, key), slot, _scaled(phi.state[0], reward))


@compiled
def _forget(arrays: Any, slot: Any) -> None:
    """Forget the reward of a slot, unless it holds none."""
    phi = Arrays(*arrays)
    if 0 <= slot < len(phi.slots) and phi.slots[slot]["cell"] != 0:
        remove(phi, slot)


@compiled
def _scaled(rule: Any, reward: Any) -> Any:
    """A reward as phi holds it."""
    return min(max(reward / rule["scale"], -FURTHEST), FURTHEST)


@compiled
def _density(phi: Any, partition: Any, observation: Any, reward: Any) -> Any:
    cell = find_cell(phi.cells, cell_key(partition, observation))
    if cell == 0:
        return 0.0
    return cell_mass(phi, cell, _scaled(phi.state[0], reward), 0.0)[0] / phi.cells[cell]["count"]


@compiled
def _store_all(phi: Any, keys: Any, rewards: Any, slots: Any, i: Any) -> Any:
    """Store rewards from one on in these slots; gives the first for which there is no room."""
    while i < len(slots):
        if not store(phi, keys[i], find_cell(phi.cells, keys[i]), slots[i], rewards[i]):
            break
        i += 1
    return i


# --- the arrays and their owner -----------------------------------------------------------------


def longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Give a copy with this length; zeros that nobody has touched take no memory."""
    copy = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    copy[: len(array)] = array
    return copy


class Phi:
    """What a filter decides by once its warm-up has ended: rewards, partition and rule.

    Args:
        settings: of the filter.
        partition: of the states.
        scale: rewards are divided by it; 0 where none was found.
    """

    is_complete = False  # which a warm-up may be

    def __init__(self, settings: FrugalSettings, partition: NDArray[Any], scale: float) -> None:
        self._settings = settings
        self.partition = partition
        self.scale = scale or 1.0
        self.scale_was_found = scale > 0.0
        rule = (
            *kernel_rule(settings.kernel, settings.bandwidth, settings.half_width),
            *(settings.density_threshold, settings.decay, self.scale),
            settings.on_equivalent == "replace",
        )
        width = math.ldexp(2.0, math.frexp(settings.bandwidth + settings.half_width)[1])
        state = np.array([(*rule, width, 0, 0, 1, FAN)], dtype=RULE_AND_COUNTS)
        empty = np.zeros(0, dtype=SLOT), np.zeros(1, dtype=CELL), np.zeros(FAN, dtype=BUCKET)
        self._parts = *empty, state  # plain, as compiled functions want it

    @property
    def arrays(self) -> Arrays:
        """The same by name."""
        return Arrays(*self._parts)

    @property
    def cells(self) -> int:
        """Cells that hold a reward."""
        return int(self.arrays.state["cells"][0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._parts)

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell."""
        counts = self.arrays.cells["count"].astype(np.int64)
        return counts[counts > 0]

    def slots_held(self) -> NDArray[np.int64]:
        """Slots in use, in ascending order."""
        return np.flatnonzero(self.arrays.slots["cell"])

    def density(self, observation: NDArray[np.float64], reward: float) -> float:
        """Reward density estimate of a row; 0 in an empty cell."""
        return float(_density(self.arrays, self.partition, observation, reward))

    def decide(self, offer: Offer, rows: Rows) -> int:
        """Decide about rows, unless that has been done; gives what that comes to."""
        while True:
            status = _decide(self._parts, self.partition, rows, offer.answer)
            if status != NO_ROOM:
                return status
            taken = offer.progress.item(1)
            self._make_room(int(offer.slots[taken]) if taken < len(offer.slots) else 0)

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Store one row, unless its slot is known already."""
        state = np.asarray(observation, dtype=np.float64)
        while not _place(self._parts, self.partition, state, float(reward), slot):
            self._make_room(slot)

    def fill(self, rows: Rows, slots: NDArray[np.int64]) -> None:
        """Store rows in free slots, new or not, in order."""
        observations, rewards = rows
        with np.errstate(over="ignore"):
            scaled = np.clip(rewards / self.scale, -FURTHEST, FURTHEST)
        self._store(cell_keys(self.partition, observations), scaled, slots)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot; nothing happens if it holds nothing."""
        _forget(self._parts, slot)

    def _make_room(self, slot: int) -> None:
        """Let the arrays grow where another reward, in this slot, might find them too short.

        They grow by a small share, so little lies idle; copying stays a constant cost per reward.
        """
        slots, cells, buckets = (len(array) for array in self._parts[:3])
        if self.arrays.state["clock"] >= _NEVER:
            again = Phi(self._settings, self.partition, self.scale)  # with stamps from 0 on
            again.load_state_dict(self.state_dict())
            self._parts = again._parts
            return
        if slot >= slots:
            slots = slot + slot // 8 + 16
        elif self.cells == cells - 1:
            cells += cells // 8 + 16
        else:
            buckets += (buckets // FAN // 8 + 1) * FAN
        self._grow(slots, cells, buckets)

    def _grow(self, *room: int) -> None:
        """Let slots, cells and buckets be as many as these, which are at least what they are."""
        slots, cells, buckets = (
            array if len(array) == length else longer(array, length)
            for array, length in zip(self._parts, room, strict=False)
        )
        if cells is not self.arrays.cells and self.cells:
            _link_cells(cells)
        # All at once, for an interrupt.
        self._parts = slots, cells, buckets, self.arrays.state

    def state_dict(self) -> dict[str, Any]:
        """Give the contents, on which decisions depend, and the room, on which `nbytes` does.

        Contents are slots, rewards and cell keys, oldest first; all else follows from them.
        """
        slots, cells, buckets, _ = self._parts
        held = np.flatnonzero(slots["cell"])
        held = held[np.argsort(slots["stamp"][held])]
        return {
            "slots": held,
            "rewards": slots["reward"][held],
            "keys": cells["key"][slots["cell"][held]],
            "room": [len(slots), len(cells), len(buckets)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what `state_dict` gave; so far nothing is held.

        Raises:
            ValueError: it is not the state of a phi.
        """
        columns = [np.asarray(state[name]) for name in ("slots", "rewards", "keys")]
        slots, rewards, keys = columns
        room = [int(length) for length in state["room"]]
        if len({column.shape for column in columns}) > 1 or slots.ndim != 1 or len(room) != 3:
            raise ValueError("the filter's slots, rewards and cells are not of one length")
        if "".join(column.dtype.kind for column in columns) != "ifu":
            raise ValueError("the filter's slots, rewards or cells are of the wrong type")
        if not (np.abs(rewards) <= FURTHEST).all():
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
        self._grow(*room)
        self._store(keys, rewards, slots.astype(np.int64))

    def _store(self, keys: Any, rewards: Any, slots: Any) -> None:
        """Store scaled rewards of cells in free slots, new or not, in order."""
        i = 0
        while (i := _store_all(self.arrays, keys, rewards, slots, i)) < len(slots):
            self._make_room(int(slots[i]))
