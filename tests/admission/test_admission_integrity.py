"""A filter's state is loaded if kernels can follow its links, and else refused."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl import FrugalFilter
from frugalrl.admission import density, forest
from frugalrl.admission.kernels import KERNELS
from frugalrl.admission.protocol import STORE

State = dict[str, Any]


class Stream:
    """A filter with a buffer's slots, offered random rewards in a few cells."""

    def __init__(self, kernel: str = "epanechnikov", threshold: float = 5.0, seed: int = 7) -> None:
        self.filter = FrugalFilter(
            warmup_steps=1,
            bounds=([0.0], [100.0]),
            bins=100,
            kernel=kernel,
            density_threshold=threshold,
            decay=1e9,
        )
        self.filter.begin(None)
        self.generator = np.random.Generator(np.random.PCG64(seed))
        self.occupied: set[int] = set()
        self.offer([0], 1)

    def offer(self, cells: list[int], count: int, step: float = 0.0) -> list[tuple[int, int]]:
        """Offer rewards to cells by chance; with a step, rewards are its multiples."""
        rewards = self.generator.normal(size=count) * 4
        if step:
            rewards = np.round(rewards / step) * step
        states = self.generator.choice(cells, size=(count, 1)) + 0.5
        last = max(self.occupied, default=-1) + count + 1
        free = np.array(sorted(set(range(last)) - self.occupied), dtype=np.int64)
        made = self.filter.offer(states, rewards, free)
        self.occupied |= set(made.slots[made.codes == STORE].tolist())
        return list(zip(made.codes.tolist(), made.slots.tolist(), strict=True))

    def evict(self, count: int) -> None:
        """Evict slots by chance."""
        for slot in self.generator.choice(sorted(self.occupied), count, replace=False).tolist():
            self.filter.forget(slot)
            self.occupied.remove(slot)

    def reload(self) -> Stream:
        """The same, but with a filter that was saved and loaded."""
        other = copy.copy(self)
        other.filter = FrugalFilter.from_state_dict(self.filter.state_dict())
        other.generator = copy.deepcopy(self.generator)
        other.occupied = set(self.occupied)
        return other


def assert_goes_on_alike(stream: Stream, cells: list[int], count: int) -> None:
    """Save, load, and go on with both."""
    other = stream.reload()
    assert other.offer(cells, count) == stream.offer(cells, count)
    some = min(len(stream.occupied) - 1, count)
    other.evict(some)
    stream.evict(some)
    one, two = stream.filter.state_dict()["phi"], other.filter.state_dict()["phi"]
    one.pop("counters"), two.pop("counters")  # part of it is scratch
    for name, array in one.items():
        np.testing.assert_equal(array, two[name])


@pytest.mark.pure_python
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 70)), max_size=8),
    st.sampled_from(KERNELS),
    st.sampled_from([0.0, 0.05, 5.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_whatever_happened_the_state_is_sound(
    steps: list[tuple[int, int]], kernel: str, threshold: float, step: float
) -> None:
    stream = Stream(kernel, threshold)
    for kind, count in steps:
        if kind == 3:
            stream.evict(min(count, len(stream.occupied)))
        else:
            stream.offer([[0], [0, 1], list(range(100))][kind], count, step)
        stream.reload()
    if stream.occupied:
        assert_goes_on_alike(stream, [0, 1], 30)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("step", [0.0, 0.1])
def test_large_trees_that_shrink_are_sound(kernel: str, step: float) -> None:
    stream = Stream(kernel, threshold=1e9)
    stream.offer([0], 90_000, step)
    stream.offer([1], 10_000, step)
    phi = stream.filter._memory.phi
    assert phi.forest.inner_size[(-1 - phi.cells[0, density.HEAD]) // 2, 1] >= 3
    stream.filter.reward_mass([0.5], 0.3)  # computes moments
    assert_goes_on_alike(stream, [0, 1], 500)
    while len(stream.occupied) > 100:
        stream.evict(len(stream.occupied) * 2 // 3)
        assert_goes_on_alike(stream, [0, 1], 20)
    assert stream.filter._memory.phi.forest.counters[forest.INNER_FREE] >= 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_replacing_in_a_large_tree_keeps_it_sound(kernel: str) -> None:
    stream = Stream(kernel, threshold=0.02)
    for _ in range(5):
        stream.offer([0], 50_000)
        assert_goes_on_alike(stream, [0, 1], 100)


def test_stamps_given_anew_are_sound() -> None:
    stream = Stream(threshold=0.05)
    for _ in range(10):
        stream.offer([0, 1], 200, 0.1)
        stream.filter._memory.phi.forest.counters[forest.CLOCK] = density.LAST_STAMP - 50
        stream.offer([0, 1], 50, 0.1)
        stream.reload()
        stream.offer([0, 1], 1)  # which may find the stamps used up
        stream.evict(len(stream.occupied) // 3)
        assert_goes_on_alike(stream, [0, 1], 5)


@pytest.mark.pure_python
@pytest.mark.parametrize("reward", [1.7e308, -1.7e308, 1e295])
def test_the_largest_rewards_can_be_held_and_loaded(reward: float) -> None:
    f = FrugalFilter(
        warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=0.0, reward_scale=0.01
    )
    f.admit([[0.5]], [-reward])
    assert not f.admit([[0.5]], [reward]).any()  # the nearest is replaced, however far it is
    f = FrugalFilter.from_state_dict(f.state_dict())
    assert f.stored == 1
    assert f.reward_mass([0.5], reward) > 0.0
    assert f.reward_mass([0.5], -reward) == 0.0


def test_a_large_tree_of_the_largest_rewards_answers() -> None:
    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=1e9, decay=1e9)
    f.admit(np.full((40_000, 1), 0.5), np.full(40_000, 1.7e308))
    f = FrugalFilter.from_state_dict(f.state_dict())
    assert f.reward_mass([0.5], 1.7e308) == pytest.approx(23 / 27)


# --- states that lie ------------------------------------------------------------------------------


@functools.cache
def mixed_state() -> State:
    """Rings, trees of one leaf, of one and of two levels, and free cells, nodes and leaves."""
    stream = Stream(threshold=1e9)
    stream.offer([0], 3500)
    stream.offer([1], 200, 0.5)
    stream.offer(list(range(4, 60)), 100)
    stream.offer([60], 90)
    kept = set(stream.occupied)
    stream.offer([2, 3], 600)
    for slot in sorted(stream.occupied - kept):
        stream.filter.forget(slot)
    stream.occupied = kept
    stream.evict(300)
    stream.filter.reward_mass([0.5], 0.0)  # computes moments
    return stream.filter.state_dict()


def test_the_mixed_state_has_something_of_everything() -> None:
    state = mixed_state()
    FrugalFilter.from_state_dict(state)
    phi, counters = state["phi"], state["phi"]["counters"]
    for free in (density.CELLS_FREE, forest.INNER_FREE, forest.LEAF_FREE):
        assert counters[free] >= 0
    heads = phi["cells"][phi["cells"][:, density.COUNT] > 0, density.HEAD]
    trees = -1 - heads[heads < 0]
    levels = phi["inner_size"][trees[trees % 2 == 0] // 2, 1]
    assert (heads >= 0).sum() > 5
    assert (trees % 2 == 1).any()
    assert {1, 2} <= set(levels.tolist())


def use(f: FrugalFilter) -> None:
    """Let every kernel run over all of a filter that was let in."""
    generator = np.random.Generator(np.random.PCG64(1))
    held = np.flatnonzero(f._memory.phi.links[:, density.CELL] >= 0)
    for slot in held[:: max(1, len(held) // 800)].tolist():
        f.forget(slot)
    stored = len(f._memory.phi.links)
    for cells in ([0, 1, 2, 3], list(range(100))):
        states = generator.choice(cells, size=(300, 1)) + 0.5
        free = np.arange(stored, stored + 300)
        f.offer(states, generator.normal(size=300) * 4, free)
        stored += 300
    for cell in range(100):
        f.reward_mass([cell + 0.5], 0.3)


ARRAYS = [*density.Phi._fields[:-1], *forest.Forest._fields[:-1]]
WHOLE = [-(2**31), -100, -2, -1, 0, 1, 2, 33, 129, 5000, 2**31 - 1]
REAL = [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 0.0, 3.0]


@given(st.sampled_from(ARRAYS), st.floats(0, 0.9999), st.sampled_from(range(11)), st.booleans())
def test_one_wrong_number_is_refused_or_does_no_harm(
    name: str, where: float, which: int, is_relative: bool
) -> None:
    state = copy.deepcopy(mixed_state())
    flat = state["phi"][name].reshape(-1)
    # Beyond those, counters are scratch.
    place = int(where * (forest.PATH if name == "counters" else len(flat)))
    if flat.dtype == np.float64:
        flat[place] = flat[place] + 1e-3 if is_relative else REAL[which % len(REAL)]
    elif flat.dtype == np.uint64:
        flat[place] = flat[(place + 2) % len(flat)] if is_relative else which
    else:
        flat[place] = flat[place] ^ (1 << which) if is_relative else WHOLE[which]
    try:
        f = FrugalFilter.from_state_dict(state)
    except ValueError as error:
        assert "damaged" in str(error)  # noqa: PT017
    else:
        use(f)


@pytest.mark.pure_python
@pytest.mark.parametrize("value", [-2, -(2**40), 2**40])
@pytest.mark.parametrize(
    "place",
    [
        forest.CLOCK,
        forest.INNER_USED,
        forest.INNER_FREE,
        forest.LEAF_USED,
        forest.LEAF_FREE,
        density.CELLS_USED,
        density.CELLS_FREE,
        density.CELLS,
        density.STORED,
    ],
)
def test_a_counter_out_of_range_is_refused(place: int, value: int) -> None:
    state = copy.deepcopy(mixed_state())
    state["phi"]["counters"][place] = value
    with pytest.raises(ValueError, match="the filter's memory of rewards is damaged"):
        FrugalFilter.from_state_dict(state)


class Parts:
    """The mixed state's arrays, and where something of each kind is."""

    def __init__(self, phi: State) -> None:
        self.phi = phi
        heads, counts = phi["cells"].T
        live = np.flatnonzero(np.isin(np.arange(len(heads)), phi["table"]))
        trees = live[heads[live] < 0]
        self.tree_cell = int(trees[np.argmax(counts[trees])])
        self.ring_cell = int(live[(heads[live] >= 0) & (counts[live] > 2)][0])
        self.ring_slot = int(heads[self.ring_cell])
        self.root = (-1 - int(heads[self.tree_cell])) // 2
        self.node = int(phi["inner_child"][self.root, 0])
        self.leaf = int(phi["inner_child"][self.node, 0])
        self.start, self.size = phi["leaf_span"][self.leaf].tolist()
        self.member = int(phi["leaf_whole"][self.leaf, self.start, forest.SLOT])

    def set(self, name: str, place: Any, value: Any) -> None:
        """Write into an array."""
        self.phi[name][place] = value

    def add(self, name: str, place: Any, value: Any) -> None:
        """Add to a number."""
        self.phi[name][place] += value


DAMAGE: dict[str, tuple[str, Callable[[Parts], None]]] = {
    "scratch is missing": (
        "counters",
        lambda p: p.phi.update(counters=p.phi["counters"][:16].copy()),
    ),
    "an array is shorter": ("counters", lambda p: p.phi.update(keys=p.phi["keys"][:-1].copy())),
    "a slot too few": ("counters", lambda p: p.phi.update(links=p.phi["links"][:-1].copy())),
    "free cells in a circle": (
        "list",
        lambda p: p.set(
            "cells",
            (p.phi["counters"][density.CELLS_FREE], density.HEAD),
            p.phi["counters"][density.CELLS_FREE],
        ),
    ),
    "no hash table": ("hash", lambda p: p.phi.update(table=p.phi["table"][:0].copy())),
    "a hash table without an empty place": (
        "hash",
        lambda p: p.phi.update(table=p.phi["table"][p.phi["table"] >= 0].copy()),
    ),
    "an entry twice": (
        "hash",
        lambda p: p.set("table", np.flatnonzero(p.phi["table"] >= 0)[:2], p.tree_cell),
    ),
    "one key for two cells": (
        "hash",
        lambda p: p.set("keys", p.ring_cell, p.phi["keys"][p.tree_cell]),
    ),
    "a long ring": ("ring", lambda p: p.set("cells", (p.ring_cell, density.COUNT), 49)),
    "a ring that is shorter": ("ring", lambda p: p.add("cells", (p.ring_cell, density.COUNT), 1)),
    "a ring that is longer": ("ring", lambda p: p.add("cells", (p.ring_cell, density.COUNT), -1)),
    "a ring that leaves": ("ring", lambda p: p.set("links", (p.ring_slot, 1), 2**31 - 1)),
    "a ring with another's slot": ("ring", lambda p: p.set("links", (p.ring_slot, 1), p.member)),
    "no number in a ring": ("ring", lambda p: p.set("rewards", p.ring_slot, np.nan)),
    "a root outside": ("tree", lambda p: p.set("cells", (p.tree_cell, density.HEAD), -(2**31))),
    "a root too high": ("tree", lambda p: p.set("inner_size", (p.root, 1), forest.MOST_LEVELS)),
    "a root without children": ("tree", lambda p: p.set("inner_size", (p.root, 0), 0)),
    "a root with too many children": ("tree", lambda p: p.set("inner_size", (p.root, 0), 33)),
    "another count of a tree": ("tree", lambda p: p.add("cells", (p.tree_cell, density.COUNT), 1)),
    "a child that is its parent": ("tree", lambda p: p.set("inner_child", (p.root, 0), p.root)),
    "a node that is too high": ("tree", lambda p: p.set("inner_size", (p.node, 1), 2)),
    "a node for two": (
        "tree",
        lambda p: p.set("inner_child", (p.root, 1), p.phi["inner_child"][p.root, 0]),
    ),
    "a leaf for two": (
        "tree",
        lambda p: p.set("inner_child", (p.node, 1), p.phi["inner_child"][p.node, 0]),
    ),
    "an upper bound below those under it": (
        "tree",
        lambda p: p.add("inner_high", (p.root, 0), -1e-9),
    ),
    "a lower bound above those under it": (
        "tree",
        lambda p: p.add("inner_real", (p.root, 0, forest.LO), 1e-9),
    ),
    "an upper bound below a member": ("tree", lambda p: p.add("inner_high", (p.node, 0), -1.0)),
    "upper bounds older than a member": (
        "tree",
        lambda p: p.set("inner_whole", (p.node, slice(None), forest.HI_STAMP), -1),
    ),
    "an upper bound above the next": (
        "tree",
        lambda p: p.set("inner_high", (p.node, 0), p.phi["inner_high"][p.node, 1]),
    ),
    "a bound without end": (
        "tree",
        lambda p: p.set("inner_real", (p.root, 0, forest.LO), -np.inf),
    ),
    "a moment without end": (
        "tree",
        lambda p: p.set("inner_real", (p.node, 0, forest.FIRST_MOMENT), np.inf),
    ),
    "another count of a leaf": (
        "tree",
        lambda p: p.add("inner_whole", (p.node, 0, forest.COUNT), 1),
    ),
    "another oldest": ("tree", lambda p: p.add("inner_oldest", (p.node, 0), 1)),
    "another slot of the oldest": (
        "tree",
        lambda p: p.add("inner_whole", (p.node, 0, forest.OLDEST_SLOT), 1),
    ),
    "an empty leaf": ("tree", lambda p: p.set("leaf_span", (p.leaf, forest.SIZE), 0)),
    "a leaf that begins outside": ("tree", lambda p: p.set("leaf_span", (p.leaf, 0), -1)),
    "a leaf that ends outside": ("tree", lambda p: p.set("leaf_span", (p.leaf, 0), 128)),
    "members not in order of age": (
        "tree",
        lambda p: p.set("leaf_whole", (p.leaf, p.start + 1, forest.STAMP), 0),
    ),
    "a member from the future": (
        "tree",
        lambda p: p.set("counters", forest.CLOCK, p.phi["links"][p.member, 1]),
    ),
    "a member's slot outside": (
        "tree",
        lambda p: p.set("leaf_whole", (p.leaf, p.start + 1, forest.SLOT), 2**31 - 1),
    ),
    "a member's slot that is another's": (
        "tree",
        lambda p: p.set("leaf_whole", (p.leaf, p.start + 1, forest.SLOT), p.ring_slot),
    ),
    "another stamp of a member": ("tree", lambda p: p.add("links", (p.member, 1), 1)),
    "another reward of a member": ("tree", lambda p: p.add("rewards", p.member, 1e-9)),
    "a member that is not a number": ("tree", lambda p: p.set("rewards", p.member, np.nan)),
    "a leaf that nobody has": (
        "part of a tree",
        lambda p: p.set(
            "counters",
            forest.LEAF_FREE,
            p.phi["leaf_whole"][p.phi["counters"][forest.LEAF_FREE], 0, 0],
        ),
    ),
    "a slot that nobody has": (
        "slot",
        lambda p: p.set("links", (np.flatnonzero(p.phi["links"][:, 0] < 0)[0], 0), p.ring_cell),
    ),
}


@pytest.mark.pure_python
@pytest.mark.parametrize("name", DAMAGE)
def test_what_would_lead_a_kernel_astray_is_refused(name: str) -> None:
    word, change = DAMAGE[name]
    state = copy.deepcopy(mixed_state())
    change(Parts(state["phi"]))
    f = FrugalFilter.from_state_dict(mixed_state())
    before = f._memory.phi
    with pytest.raises(ValueError, match=f"the filter's memory of rewards is damaged: .*{word}"):
        f._memory.load_state_dict(state["phi"])
    assert f._memory.phi is before
