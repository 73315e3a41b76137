"""FrugalFilter decides as brute force over all stored rewards does, after anything that happens."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl import FrugalFilter
from frugalrl.admission import density, forest
from frugalrl.admission.kernels import KERNELS, reward_density
from frugalrl.admission.protocol import DROP, REPLACE, STORE
from reference.admission import OneCell, SlowPhi

CODES = {"store": STORE, "replace": REPLACE, "drop": DROP}


class Twins:
    """The filter and its slow twin, fed with the same transitions; every answer is compared."""

    def __init__(
        self,
        kernel: str = "epanechnikov",
        density_threshold: float = 0.2,
        decay: float = 1e5,
        on_equivalent: str = "replace",
        bandwidth: float = 0.3,
        half_width: float = 0.2,
    ) -> None:
        numbers = {
            "kernel": kernel,
            "density_threshold": density_threshold,
            "decay": decay,
            "bandwidth": bandwidth,
            "half_width": half_width,
        }
        self.fast = FrugalFilter(
            warmup_steps=1,
            bounds=([0.0], [100.0]),
            bins=100,
            on_equivalent=on_equivalent,
            **numbers,
        )
        self.fast.begin(None)
        self.slow = SlowPhi(replaces=on_equivalent == "replace", **numbers)
        self.slots: list[int] = [0]  # occupied, in no order
        self.free: list[int] = []
        self.fast.offer(np.array([[0.5]]), np.array([0.0]), np.array([0]))
        self.slow.insert(0, 0, 0.0)

    def offer(self, cell: int, reward: float) -> None:
        """Offer to both and compare mass, decision and slot."""
        state = np.array([[cell + 0.5]])
        expected = self.slow.mass(cell, reward)
        assert self.fast.reward_mass(state[0], reward) == pytest.approx(expected, abs=1e-9)
        if abs(self.slow.margin(cell, reward)) < 1e-12:
            return  # rounding decides: both answers are right
        slot = self.free[-1] if self.free else len(self.slots)
        made = self.fast.offer(state, np.array([reward]), np.array([slot]))
        kind, chosen = self.slow.decide(cell, reward, slot)
        assert (int(made.codes[0]), int(made.slots[0])) == (CODES[kind], chosen)
        if kind == "store":
            self.slots.append(slot)
            if self.free:
                self.free.pop()

    def evict(self, which: float) -> None:
        """Evict one of the occupied slots, given as a fraction of the list."""
        if len(self.slots) > 1:
            slot = self.slots.pop(int(which * len(self.slots)))
            self.fast.forget(slot)
            self.slow.remove(slot)
            self.free.append(slot)

    def compare(self) -> None:
        """Compare what is left of it all."""
        assert self.fast.stored == len(self.slots) == sum(map(len, self.slow.cells.values()))
        assert self.fast.cells == len(self.slow.cells)
        counts = sorted(len(held) for held in self.slow.cells.values())
        assert sorted(self.fast.cell_counts().tolist()) == counts


STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.integers(-20, 20).map(lambda k: k / 8)),
        st.tuples(st.integers(0, 99), st.floats(-1e30, 1e30)),
        st.tuples(st.just(-1), st.floats(0, 0.999)),
    ),
    max_size=80,
)


@pytest.mark.pure_python
@given(
    STEPS,
    st.sampled_from(KERNELS),
    st.sampled_from([0.0, 0.05, 0.2, 2.0]),
    st.sampled_from([5.0, 1e5]),
    st.sampled_from(["replace", "discard"]),
    st.sampled_from([(0.3, 0.2), (0.1, 0.4), (0.25, 0.25)]),
)
def test_any_mix_of_insert_replace_and_evict(
    steps: list[tuple[int, float]],
    kernel: str,
    density_threshold: float,
    decay: float,
    on_equivalent: str,
    widths: tuple[float, float],
) -> None:
    twins = Twins(kernel, density_threshold, decay, on_equivalent, *widths)
    for cell, number in steps:
        if cell < 0:
            twins.evict(number)
        else:
            twins.offer(cell, number)
    twins.compare()


def test_stamps_that_run_out_are_given_anew() -> None:
    generator = np.random.Generator(np.random.PCG64(11))
    twins = Twins(density_threshold=0.05, decay=1e9)
    for step in range(1500):
        if step % 200 == 199:
            counters = twins.fast._memory.phi.forest.counters
            counters[forest.CLOCK] = density.LAST_STAMP - 100
        twins.offer(int(generator.integers(2)), round(float(generator.normal() * 4), 1))
        if len(twins.slots) > 300:
            twins.evict(float(generator.random()))
        clock = twins.fast._memory.phi.forest.counters[forest.CLOCK]
        if step % 200 == 198 and step > 200:
            assert clock < 1000
    twins.compare()


@pytest.mark.pure_python
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("spread", "grid", "threshold", "steps", "capacity"),
    [
        (2.0, 0.0, 5.0, 600, 400),  # a dense cell: trees of several levels, emptied and filled
        (500.0, 0.0, 0.2, 500, 300),  # far apart: every leaf is wider than the kernel
        (2.0, 0.5, 5.0, 500, 300),  # few distinct rewards, each many times
        (0.0, 0.0, 5.0, 400, 250),  # one reward, over and over
        (2.0, 0.0, 0.02, 500, 300),  # mostly replaced
    ],
)
def test_crowded_cells(
    kernel: str, spread: float, grid: float, threshold: float, steps: int, capacity: int
) -> None:
    generator = np.random.Generator(np.random.PCG64(7))
    twins = Twins(kernel, threshold)
    for step in range(steps):
        reward = float(generator.normal() * spread)
        twins.offer(0, round(reward / grid) * grid if grid else reward)
        if len(twins.slots) > capacity:
            twins.evict(float(generator.random()))
        if step in (steps // 2, steps - 10):
            while len(twins.slots) > 5:
                twins.evict(float(generator.random()))
    twins.compare()


@pytest.mark.parametrize(
    ("spread", "grid", "threshold"),
    [
        (5.0, 0.0, 0.0213),  # new at the edges, equivalent in the middle
        (5.0, 0.1, 0.0213),  # few distinct rewards: equal ones fill whole nodes
        (5_000.0, 0.0, 0.00001),  # far apart: often none is within reach, the nearest goes
    ],
)
def test_a_tree_of_many_levels_decides_as_brute_force(
    spread: float, grid: float, threshold: float
) -> None:
    generator = np.random.Generator(np.random.PCG64(17))
    count, batch, last_free = 12_000, 50, 20_000

    def draw(size: int) -> np.ndarray:
        rewards = generator.normal(size=size) * spread
        return np.round(rewards / grid) * grid if grid else rewards

    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=1e9, decay=1e9)
    f.begin(None)
    slow = OneCell(last_free)
    rewards = draw(count)
    f.offer(np.full((1, 1), 0.5), rewards[:1], np.array([0]))
    f.offer(np.full((count - 1, 1), 0.5), rewards[1:], np.arange(1, count))
    for slot, reward in enumerate(rewards):
        slow.put(slot, reward)
    state = f.state_dict()
    state["settings"]["density_threshold"] = threshold
    f = FrugalFilter.from_state_dict(state)
    assert f._memory.phi.forest.inner_size[(-1 - f._memory.phi.cells[0, density.HEAD]) // 2, 1] >= 2

    free = np.arange(count, last_free)
    kinds = set()
    for step in range(60):
        rewards = draw(batch)
        made = f.offer(np.full((batch, 1), 0.5), rewards, free)
        for reward, code, slot in zip(rewards, made.codes, made.slots, strict=True):
            if slow.mass(reward) < threshold * np.exp(-f.stored / 1e9):
                assert (code, slot) == (STORE, free[0])
                free = free[1:]
            else:
                assert (code, slot) == (REPLACE, slow.victim(reward))
            slow.put(slot, reward)
            kinds.add(int(code))
        if step % 4 == 3:
            for slot in generator.choice(np.flatnonzero(~np.isnan(slow.rewards)), 20, False):
                f.forget(int(slot))
                slow.forget(slot)
    assert kinds == {STORE, REPLACE}
    for reward in draw(20):
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(slow.mass(reward), abs=1e-9)


def test_a_tree_of_many_levels_agrees_with_the_plain_sum() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    rewards = generator.normal(size=60_000) * 3
    f = FrugalFilter(warmup_steps=1, density_threshold=1e9, bounds=([0.0], [1.0]))
    f.admit(np.full((60_000, 1), 0.5), rewards)
    arrays = f._memory.phi.forest
    assert arrays.inner_size[(-1 - f._memory.phi.cells[0, density.HEAD]) // 2, 1] >= 3
    for reward in (*generator.normal(size=20) * 3, 50.0, rewards[7]):
        t = np.clip((reward + np.array([[0.2], [-0.2]]) - rewards) / 0.3, -1, 1)
        upper, lower = 0.5 + 0.75 * t - 0.25 * t**3
        expected = float(np.mean(upper - lower))
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("height", [0.0, 1e7, 1e10, 1e13, 1e16, 1e30, -1e30])
def test_rewards_far_from_zero_lose_nothing(height: float, kernel: str) -> None:
    generator = np.random.Generator(np.random.PCG64(19))
    rewards = height + generator.choice([0.0, 0.05, 0.1, 0.6], size=700)
    if abs(height) > 1e20:
        rewards *= generator.integers(1, 4, size=700)
    f = FrugalFilter(
        warmup_steps=1, kernel=kernel, density_threshold=1e9, decay=1e9, bounds=([0.0], [1.0])
    )
    f.admit(np.full((700, 1), 0.5), rewards)
    assert f._memory.phi.cells[0, density.HEAD] < 0  # a tree
    for reward in np.unique(rewards):
        expected = reward_density(rewards, float(reward), kernel=kernel)
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("density_threshold", [0.01, 0.02])
def test_summaries_hold_what_lies_below(density_threshold: float) -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    f = FrugalFilter(
        warmup_steps=1, density_threshold=density_threshold, decay=1e9, bounds=([0.0], [1.0])
    )
    # Enough for full nodes beside full ones, on every level, with gaps where rewards have left.
    for _ in range(8):
        f.admit(np.full((300_000, 1), 0.5), generator.normal(size=300_000) * 5)
    phi = f._memory.phi
    arrays = phi.forest

    def members(leaf: int) -> list[tuple[float, int]]:
        start, size = arrays.leaf_span[leaf]
        places = slice(start, start + size)
        stamps = arrays.leaf_whole[leaf, places, forest.STAMP].tolist()
        assert stamps == sorted(stamps)
        return sorted(zip(arrays.leaf_reward[leaf, places].tolist(), stamps, strict=True))

    def walk(node: int) -> list[tuple[float, int]]:
        """All (reward, stamp) below a node, in the order of the tree."""
        found: list[tuple[float, int]] = []
        for c in range(arrays.inner_size[node, 0]):
            child = int(arrays.inner_child[node, c])
            below = members(child) if arrays.inner_size[node, 1] == 1 else walk(child)
            high = arrays.inner_high[node, c]
            assert arrays.inner_real[node, c, forest.LO] <= below[0][0]
            assert below[-1] <= (high, arrays.inner_whole[node, c, forest.HI_STAMP])
            assert arrays.inner_whole[node, c, forest.COUNT] == len(below)
            oldest = min(stamp for _, stamp in below)
            assert arrays.inner_oldest[node, c] == oldest
            found += below
        return found

    found = walk((-1 - int(phi.cells[0, density.HEAD])) // 2)
    assert found == sorted(found)
    assert len({stamp for _, stamp in found}) == len(found) == f.stored


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])  # noqa: S301
def test_a_copy_has_a_memory_of_its_own(copied: Callable[[FrugalFilter], FrugalFilter]) -> None:
    generator = np.random.Generator(np.random.PCG64(2))
    states, rewards = np.full((500, 1), 0.5), generator.normal(size=500)
    original = FrugalFilter(warmup_steps=1, density_threshold=1e9, bounds=([0.0], [1.0]))
    original.admit(states, rewards)
    before = original.state_dict()["phi"]
    other = copied(original)
    other.admit(states, rewards + 1)
    for name, array in original.state_dict()["phi"].items():
        np.testing.assert_equal(array, before[name])
    assert (original.stored, other.stored) == (500, 1000)
    del original
    assert other.reward_mass([0.5], 0.3) > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_rounding_does_not_pile_up(kernel: str) -> None:
    generator = np.random.Generator(np.random.PCG64(13))
    f = FrugalFilter(
        warmup_steps=1, bounds=([0.0], [1.0]), kernel=kernel, density_threshold=0.05, decay=1e9
    )
    for _ in range(400):  # new and equivalent ones; the masses are asked for exactly in between
        f.admit(np.full((256, 1), 0.5), generator.normal(size=256) * 3)
        f.reward_mass([0.5], float(generator.normal()))
    phi = f._memory.phi
    rewards = phi.rewards[phi.links[:, density.CELL] >= 0]
    slow = SlowPhi(kernel=kernel, density_threshold=0.05, decay=1e9, bandwidth=0.3, half_width=0.2)
    for slot, reward in enumerate(rewards):
        slow.insert(0, slot, float(reward))
    for reward in generator.normal(size=10) * 3:
        expected = slow.mass(0, float(reward))
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("most", [8, 49, 60, 100])
def test_state_is_small_whatever_the_other_cells_hold(most: int, kernel: str) -> None:
    generator = np.random.Generator(np.random.PCG64(23))
    # 80 % of the cells hold one reward; the others that many, which is about where trees begin.
    counts = np.where(generator.random(5_000) < 0.8, 1, most)
    states = np.repeat(generator.integers(0, 50, size=(5_000, 16)) + 0.5, counts, axis=0)
    states = generator.permutation(states)
    f = FrugalFilter(
        warmup_steps=100,
        dimension_threshold=1e-9,
        density_threshold=1e9,
        kernel=kernel,
        bounds=(np.zeros(16), np.full(16, 50.0)),
    )
    f.admit(states, generator.normal(size=len(states)))
    assert f.stored == len(states)
    assert f.nbytes / f.stored <= 64
