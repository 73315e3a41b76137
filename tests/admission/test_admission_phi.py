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
from frugalrl.admission.density_kernels import KERNELS, reward_density
from frugalrl.admission.phi import FAN, SCANNED, Arrays
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


class Stream:
    """A filter with a buffer's slots, offered rewards in a few cells."""

    def __init__(self, kernel: str = "epanechnikov", threshold: float = 5.0) -> None:
        self.filter = FrugalFilter(
            warmup_steps=1,
            bounds=([0.0], [100.0]),
            bins=100,
            kernel=kernel,
            density_threshold=threshold,
            decay=1e9,
        )
        self.filter.begin(None)
        self.generator = np.random.Generator(np.random.PCG64(7))
        self.occupied: set[int] = set()
        self.offer([0], np.zeros(1))

    def offer(self, cells: list[int], rewards: np.ndarray) -> list[tuple[int, int]]:
        """Offer rewards to cells by chance."""
        states = self.generator.choice(cells, size=(len(rewards), 1)) + 0.5
        last = max(self.occupied, default=-1) + len(rewards) + 1
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
        state = twins.fast._phase.arrays.state
        if step % 200 == 199:
            state["clock"] = 2**31 - 100
        twins.offer(int(generator.integers(2)), round(float(generator.normal() * 4), 1))
        if len(twins.slots) > 300:
            twins.evict(float(generator.random()))
        if step % 200 == 198 and step > 200:
            assert state["clock"] < 1000
    twins.compare()


@pytest.mark.pure_python
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("spread", "grid", "threshold", "steps", "capacity"),
    [
        (2.0, 0.0, 5.0, 600, 400),  # a dense cell: several levels of buckets, emptied and filled
        (500.0, 0.0, 0.2, 500, 300),  # far apart: every bucket is wider than the kernel
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
        (5.0, 0.1, 0.0213),  # few distinct rewards: equal ones fill whole buckets
        (5_000.0, 0.0, 0.00001),  # far apart: often none is within reach, the nearest goes
    ],
)
def test_many_levels_of_buckets_decide_as_brute_force(
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


def test_many_levels_of_buckets_agree_with_the_plain_sum() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    rewards = generator.normal(size=60_000) * 3
    f = FrugalFilter(warmup_steps=1, density_threshold=1e9, bounds=([0.0], [1.0]))
    f.admit(np.full((60_000, 1), 0.5), rewards)
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
    for reward in np.unique(rewards):
        expected = reward_density(rewards, float(reward), kernel=kernel)
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(expected, abs=1e-9)


def bucket_members(
    arrays: Arrays, block: int, low: float, high: float, blocks: list[int]
) -> list[int]:
    """Check a block against the slots below it, which are returned; collects all blocks."""
    found: list[int] = []
    blocks.append(block)
    end = low
    width = arrays.buckets["high"][block + 1] - arrays.buckets["low"][block + 1]
    for i in range(FAN):
        bucket = arrays.buckets[block + i]
        assert bucket["low"] == end
        end = bucket["high"]
        is_open = not np.isfinite(bucket["low"] + bucket["high"])
        if bucket["block"]:
            inner = arrays.buckets[bucket["block"] + 1]
            below = width * FAN if is_open else width / FAN
            assert inner["high"] - inner["low"] == pytest.approx(below, rel=1e-12)
            slots = bucket_members(arrays, bucket["block"], bucket["low"], end, blocks)
            assert len(slots) > SCANNED
        else:
            slots = list_members(arrays, bucket["oldest"], bucket["youngest"])
            assert len(slots) <= SCANNED or width < max(1e-6, 1e-12 * abs(bucket["low"]))
        rewards = arrays.slots["reward"][slots]
        stamps = arrays.slots["stamp"][slots]
        assert len(slots) == bucket["count"]
        assert ((rewards >= bucket["low"]) & (rewards < bucket["high"])).all()
        if len(slots):
            assert (bucket["stamp"], bucket["oldest"]) == (stamps.min(), slots[stamps.argmin()])
        if not is_open:
            assert bucket["high"] - bucket["low"] == pytest.approx(width, rel=1e-12)
            shares = (rewards - (bucket["low"] + width / 2)) / width
            for power, name in enumerate(("sum", "square", "cube"), start=1):
                assert bucket[name] == pytest.approx(
                    np.sum(shares**power), abs=1e-12 * (1 + len(slots))
                )
        found += slots
    assert end == high
    return found


def list_members(arrays: Arrays, oldest: int, youngest: int) -> list[int]:
    """Follow a list, whose stamps must rise, and whose links must fit both ways."""
    slots: list[int] = []
    slot = int(oldest)
    while slot >= 0:
        assert arrays.slots["older"][slot] == (slots[-1] if slots else -1)
        slots.append(slot)
        slot = int(arrays.slots["younger"][slot])
    assert youngest == (slots[-1] if slots else -1)
    assert (np.diff(arrays.slots["stamp"][slots]) > 0).all()
    return slots


def check_structure(f: FrugalFilter) -> None:
    """Check that lists and buckets are those of the slots."""
    arrays = f._phase.arrays
    held = 0
    blocks: list[int] = []
    for number in range(1, len(arrays.cells)):
        cell = arrays.cells[number]
        if cell["count"] == 0:
            continue
        if cell["block"]:
            slots = bucket_members(arrays, cell["block"], -np.inf, np.inf, blocks)
            second = arrays.buckets[cell["block"] + 1]
            assert second["low"] == -3 * (second["high"] - second["low"])
        else:
            slots = list_members(arrays, cell["oldest"], cell["youngest"])
        assert (len(slots) > SCANNED) == (cell["block"] > 0)
        assert len(slots) == cell["count"]
        assert (arrays.slots["cell"][slots] == number).all()
        held += len(slots)
    assert held == f.stored == np.count_nonzero(arrays.slots["cell"])
    assert blocks_in_use(arrays) == len(set(blocks)) == len(blocks)


def blocks_in_use(arrays: Arrays) -> int:
    """Count the blocks that are not free."""
    free = set()
    block = int(arrays.buckets["block"][0])
    while block:
        assert block not in free
        free.add(block)
        block = int(arrays.buckets["block"][block])
    return int(arrays.state["blocks_begun"][0]) // FAN - 1 - len(free)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("spread", "grid"), [(5.0, 0.0), (5.0, 0.1), (1e4, 0.0), (0.0, 0.0)])
def test_lists_and_buckets_are_those_of_the_slots(kernel: str, spread: float, grid: float) -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    stream = Stream(kernel, threshold=0.02)
    check_structure(stream.filter)
    for count in (60, 3_000, 6_000):
        rewards = generator.normal(size=count) * spread
        stream.offer([0, 1, 2], np.round(rewards / grid) * grid if grid else rewards)
        check_structure(stream.filter)
    while len(stream.occupied) > 20:
        stream.evict(len(stream.occupied) * 2 // 3)
        check_structure(stream.filter)
        other = stream.reload()
        check_structure(other.filter)
        arrays, others = stream.filter._phase.arrays, other.filter._phase.arrays
        assert arrays.state["cells"][0] == others.state["cells"][0]
        assert blocks_in_use(arrays) == blocks_in_use(others)
        for pool, other_pool in zip(arrays, others, strict=True):
            assert len(pool) == len(other_pool)


@pytest.mark.parametrize("others", [1, 4])
def test_a_bucket_divided_for_a_newcomer_is_joined_with_the_others_when_its_equivalent_goes(
    others: int,
) -> None:
    """The equivalent that is replaced lies in another bucket, and with it the block was needed."""
    rewards = np.append(np.full(others, -0.01), np.full(SCANNED, 0.01))
    fast = FrugalFilter(warmup_steps=len(rewards), bins=1)
    fast.begin(None)
    states = np.zeros((len(rewards), 1))
    fast.offer(states, rewards, np.arange(len(rewards)))
    for slot in range(len(rewards)):  # each is the oldest equivalent once
        made = fast.offer(states[:1], np.array([0.01]), np.array([100]))
        assert (made.codes.tolist(), made.slots.tolist()) == ([REPLACE], [slot])
        check_structure(fast)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])  # noqa: S301
def test_a_copy_has_a_memory_of_its_own(copied: Callable[[FrugalFilter], FrugalFilter]) -> None:
    generator = np.random.Generator(np.random.PCG64(2))
    states, rewards = np.full((500, 1), 0.5), generator.normal(size=500)
    original = FrugalFilter(warmup_steps=1, density_threshold=1e9, bounds=([0.0], [1.0]))
    original.admit(states, rewards)
    before = original.state_dict()["phi"]
    other = copied(original)
    other.admit(states, rewards + 1)
    np.testing.assert_equal(original.state_dict()["phi"], before)
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
    rewards = f.state_dict()["phi"]["rewards"]
    slow = SlowPhi(kernel=kernel, density_threshold=0.05, decay=1e9, bandwidth=0.3, half_width=0.2)
    for slot, reward in enumerate(rewards):
        slow.insert(0, slot, float(reward))
    for reward in generator.normal(size=10) * 3:
        expected = slow.mass(0, float(reward))
        assert f.reward_mass([0.5], float(reward)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("most", [8, 33, 60, 100])
def test_state_is_small_whatever_the_other_cells_hold(most: int, kernel: str) -> None:
    generator = np.random.Generator(np.random.PCG64(23))
    # 80 % of the cells hold one reward; the others that many, which is about where buckets begin.
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
    assert f.nbytes / f.stored <= 48


@pytest.mark.pure_python
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 70)), max_size=8),
    st.sampled_from(KERNELS),
    st.sampled_from([0.0, 0.05, 5.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_a_loaded_filter_decides_as_the_original(
    steps: list[tuple[int, int]], kernel: str, threshold: float, grid: float
) -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    stream = Stream(kernel, threshold)
    for kind, count in steps:
        if kind == 3:
            stream.evict(min(count, len(stream.occupied)))
        else:
            rewards = generator.normal(size=count) * 4
            if grid:
                rewards = np.round(rewards / grid) * grid
            stream.offer([[0], [0, 1], list(range(100))][kind], rewards)
    other = stream.reload()
    assert other.filter.nbytes == stream.filter.nbytes
    for _ in range(3):
        rewards = generator.normal(size=30) * 4
        assert other.offer([0, 1], rewards) == stream.offer([0, 1], rewards)
        assert other.filter.nbytes == stream.filter.nbytes
    np.testing.assert_equal(other.filter.state_dict()["phi"], stream.filter.state_dict()["phi"])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_density_at_its_limit_is_decided_by_the_contents(kernel: str) -> None:
    """Where rounding could decide, it is that of a sum whose order does not matter."""
    generator = np.random.Generator(np.random.PCG64(29))
    f = FrugalFilter(
        warmup_steps=1, bounds=([0.0], [1.0]), kernel=kernel, density_threshold=1e9, decay=np.inf
    )
    f.begin(None)
    rewards = np.round(generator.normal(size=3_000), 1)
    f.offer(np.full((1, 1), 0.5), rewards[:1], np.arange(1))
    f.offer(np.full((2_999, 1), 0.5), rewards[1:], np.arange(1, 3_000))
    for slot in generator.permutation(3_000)[:1_000].tolist():
        f.forget(slot)
    for reward in np.unique(rewards):
        state = f.state_dict()
        # The threshold is the density itself, give or take a last bit.
        exact = f.reward_mass([0.5], float(reward))
        for threshold in (np.nextafter(exact, 0), exact, np.nextafter(exact, 1)):
            state["settings"]["density_threshold"] = float(threshold)
            codes = []
            for order in (np.arange(2_000), np.arange(2_000)[::-1], generator.permutation(2_000)):
                state["phi"] = {
                    name: values if name == "room" else values[order]
                    for name, values in f.state_dict()["phi"].items()
                }
                loaded = FrugalFilter.from_state_dict(state)
                made = loaded.offer(
                    np.full((1, 1), 0.5), np.array([reward]), np.arange(5_000, 5_001)
                )
                codes.append(int(made.codes[0]))
            assert len(set(codes)) == 1


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


def test_many_of_the_largest_rewards() -> None:
    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=1e9, decay=1e9)
    f.admit(np.full((100, 1), 0.5), np.full(100, 0.1))
    f.admit(np.full((4_000, 1), 0.5), np.full(4_000, 1.7e308))
    check_structure(f)
    assert f.reward_mass([0.5], 1.7e308) == pytest.approx(23 / 27 * 4_000 / 4_100)
    assert f.reward_mass([0.5], 0.1) == pytest.approx(23 / 27 * 100 / 4_100)


def phi_state(**changes: object) -> dict[str, object]:
    """The state of a phi with three rewards in two cells."""
    good = {
        "slots": np.array([4, 0, 2]),
        "rewards": np.array([0.5, 0.1, -3.0]),
        "keys": np.array([7, 7, 9], dtype=np.uint64),
        "room": [16, 17, 8],
    }
    return {**good, **changes}


@pytest.mark.pure_python
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"slots": np.array([4, 0])}, "not of one length"),
        ({"keys": np.zeros((3, 1), np.uint64)}, "not of one length"),
        ({"slots": np.array([4, 0, 4])}, "a slot twice"),
        ({"slots": np.array([4, -1, 2])}, "slots of the filter go to 4"),
        ({"slots": np.array([4, 0, 16])}, "go to 16, where there are 16"),
        ({"slots": np.array([4, 0, 2**40])}, "go to 1099511627776"),
        ({"room": [2**40, 17, 8]}, "where there are 1099511627776"),
        ({"room": [16, 2**40, 8]}, "which cannot be"),
        ({"room": [16, 17, 2**40]}, "which cannot be"),
        ({"room": [16, 17, 12]}, "which cannot be"),
        ({"room": [16, 0, 8]}, "which cannot be"),
        ({"slots": np.array([4.0, 0.0, 2.0])}, "wrong type"),
        ({"keys": np.array([7, 7, 9])}, "wrong type"),
        ({"rewards": np.array([0.5, np.nan, 1.0])}, "not within"),
        ({"rewards": np.array([0.5, np.inf, 1.0])}, "not within"),
    ],
)
def test_a_state_that_cannot_be_is_refused(changes: dict[str, object], complaint: str) -> None:
    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]))
    f.admit([[0.5]], [0.0])
    state = f.state_dict()
    state["phi"] = phi_state()
    assert FrugalFilter.from_state_dict(state).stored == 3
    state["phi"] = phi_state(**changes)
    with pytest.raises(ValueError, match=complaint):
        FrugalFilter.from_state_dict(state)
