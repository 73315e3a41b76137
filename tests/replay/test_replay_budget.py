"""A limit in bytes holds at every moment and is well used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_soundness import check_storage

from frugalrl.admission.controls import RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import ReplayBuffer

FILTERS: dict[str, Any] = {
    "all": lambda: None,
    "random": lambda: RandomAdmit(0.5),
    "fac": lambda: FrugalFilter(warmup_steps=200),
    "coarse": lambda: FrugalFilter(warmup_steps=200, bins=3),
    "filter": lambda: FrugalFilter(warmup_steps=200, bins=8, warmup="filter"),
}


LIMITS = {
    "all": "60kB",
    "random": "50kB",
    "fac": "120kB",
    "coarse": "250kB",
    "filter": "100kB",
}


class Stream:
    """Random walks of several environments, which go on wherever they were left."""

    def __init__(self, environments: int, width: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.state = self.random.standard_normal((environments, width))

    def rows(self) -> tuple[Any, ...]:
        """One step of each environment."""
        state = self.state
        step = 0.1 * self.random.standard_normal(state.shape)
        self.state = 0.99 * state + step
        flags = self.random.random((2, len(state))) < 0.02
        self.state[flags.any(axis=0)] = 0.0
        return state, step[:, :1], 3 * state[:, 0], 0.99 * state + step, *flags


def make(limit: int | str, width: int, admission: str, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        capacity_bytes=limit,
        observation_space=spaces.Box(-np.inf, np.inf, (width,), np.float64),
        action_space=spaces.Box(-1.0, 1.0, (1,), np.float32),
        admission=FILTERS[admission](),
        **options,
    )


@given(
    limit=st.integers(40_000, 90_000),
    width=st.sampled_from([2, 11, 40]),
    admission=st.sampled_from(sorted(FILTERS)),
    sampler=st.sampled_from(["uniform", "prioritized"]),
    environments=st.integers(1, 4),
    capacity=st.sampled_from([None, 300]),
)
@settings(max_examples=12)
def test_the_limit_is_never_exceeded(
    limit: int, width: int, admission: str, sampler: str, environments: int, capacity: int | None
) -> None:
    if admission not in ("all", "random"):
        limit += 200 * (width * 8 + 16)  # the warm-up that the filter remembers
    buffer = make(
        limit, width, admission, sampler=sampler, environments=environments, capacity=capacity
    )
    stream = Stream(environments, width)
    for _ in range(2000 // environments):
        buffer.add(*stream.rows())
        assert buffer.nbytes <= limit
    storage = buffer._storage
    check_storage(storage)
    assert len(buffer) <= (capacity or 10**9)
    assert len(buffer.sample(100).rewards) == 100


@pytest.mark.parametrize("admission", sorted(FILTERS))
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_the_limit_is_well_used(admission: str, sampler: str) -> None:
    buffer = make("300kB", 11, admission, sampler=sampler)
    stream = Stream(1, 11)
    while buffer.stats.evicted < 100:
        buffer.add(*stream.rows())
    assert 0.85 * 300_000 < buffer.nbytes <= 300_000


def test_the_ratio_of_states_to_transitions_follows_the_stream() -> None:
    """Where nothing is shared the pool grows to two states a transition, and gives them back."""
    buffer = make(200_000, 8, "all")
    rng = np.random.default_rng(0)
    for _ in range(4000):
        buffer.add(rng.random(8), np.zeros(1), 0.0, rng.random(8), False, False)
    apart = len(buffer)
    stream = Stream(1, 8)
    for _ in range(8000):
        buffer.add(*stream.rows())
    assert len(buffer) > 1.3 * apart
    assert buffer.nbytes <= 200_000


def refuse_all_but(row: int, buffer: ReplayBuffer, rows: tuple[Any, ...]) -> None:
    """Add one environment's transition alone, in its own place."""
    state, action, reward, *others = rows
    spoilt = np.where(np.arange(len(reward)) == row, reward, np.nan)
    buffer.add(state, action, spoilt, *others)


@pytest.mark.filterwarnings("ignore:refused")
@pytest.mark.parametrize("admission", sorted(FILTERS))
def test_several_environments_decide_as_one_by_one(admission: str) -> None:
    together, apart = (make(LIMITS[admission], 4, admission, environments=3) for _ in range(2))
    stream = Stream(3, 4)
    for _ in range(900):
        rows = stream.rows()
        together.add(*rows)
        for i in range(3):
            refuse_all_but(i, apart, rows)
    assert together.stats.evicted == apart.stats.evicted
    assert together.nbytes == apart.nbytes
    for one, other in zip(together.transitions(), apart.transitions(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("admission", sorted(FILTERS))
def test_saving_in_the_middle_changes_nothing(admission: str) -> None:
    buffer = make(LIMITS[admission], 4, admission, sampler="prioritized")
    stream, other = Stream(1, 4), Stream(1, 4)
    for _ in range(1800):
        buffer.add(*stream.rows())
        other.rows()
    loaded = ReplayBuffer.from_state_dict(buffer.state_dict())
    assert loaded.nbytes == buffer.nbytes
    for _ in range(600):
        one, two = buffer.add(*stream.rows()), loaded.add(*other.rows())
        assert one.codes.tolist() == two.codes.tolist()
        assert one.slots.tolist() == two.slots.tolist()
        assert loaded.nbytes == buffer.nbytes
    assert np.array_equal(buffer.sample(64).slots, loaded.sample(64).slots)


@pytest.mark.pure_python
def test_states_move_when_the_pool_shrinks() -> None:
    buffer = make("1MB", 3, "all", environments=2)
    stream = Stream(2, 3)
    for _ in range(40):
        buffer.add(*stream.rows())
    for _ in range(50):
        buffer._intake.evict()
    before = buffer.transitions()
    storage = buffer._storage
    live = len(storage.states) - storage.free_states
    storage.resize_states(live)
    assert storage.free_states == 0
    check_storage(storage)
    for one, other in zip(before, buffer.transitions(), strict=True):
        assert np.array_equal(one, other)
    buffer.add(*stream.rows())
    # The environments still share their states.
    assert len(storage.states) - storage.free_states == live + 2
    assert len(buffer) == 32


@pytest.mark.pure_python
def test_both_limits_apply() -> None:
    buffer = make("1MB", 3, "all", capacity=50)
    stream = Stream(1, 3)
    for _ in range(200):
        buffer.add(*stream.rows())
    assert len(buffer) == 50
    assert buffer.capacity == 50
    assert buffer.capacity_bytes == 1_000_000


def test_a_limit_too_small_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"no room for 4 transitions .*; use at least"):
        make(100, 3, "all")


def test_the_warm_up_counts_and_what_the_error_asks_for_is_enough() -> None:
    with pytest.raises(ValueError, match="use at least") as error:
        make(20_000, 40, "fac")
    enough = int(str(error.value).rpartition(" ")[2])
    buffer, stream = make(enough, 40, "fac"), Stream(1, 40)
    for _ in range(500):
        buffer.add(*stream.rows())
        assert buffer.nbytes <= enough
    assert len(buffer) > 0


def test_more_environments_than_the_limit_allows_are_refused_and_nothing_is_lost() -> None:
    buffer, stream = make(20_000, 3, "all"), Stream(1, 3)
    for _ in range(50):
        buffer.add(*stream.rows())
    with pytest.raises(ValueError, match="use at least"):
        buffer.add(*Stream(1000, 3).rows())
    assert len(buffer) == 50
    buffer.add(*stream.rows())
    buffer.add(*Stream(5, 3).rows())
    assert (len(buffer), buffer.stats.offered) == (56, 56)


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
@pytest.mark.parametrize("bins", [1, 3, 20])
@pytest.mark.parametrize("limit", [20_000, 35_000, 60_000])
def test_a_filter_that_has_grown_too_large_is_packed_anew(
    limit: int, bins: int, kernel: str, sampler: str
) -> None:
    buffer = ReplayBuffer(
        capacity_bytes=limit,
        observation_space=spaces.Box(-np.inf, np.inf, (1,), np.float64),
        action_space=spaces.Box(-1.0, 1.0, (1,), np.float32),
        admission=FrugalFilter(warmup_steps=50, bins=bins, kernel=kernel),
        sampler=sampler,
    )
    stream = Stream(1, 1)
    for step in range(1500):
        state, action, reward, *rest = stream.rows()
        outcome = buffer.add(state, action, 30 * reward, *rest)
        assert buffer.nbytes <= limit
        slot = int(outcome.slots[0])
        if slot >= 0:
            assert buffer._storage.occupied(np.array([slot]))[0]
        if step % 100 == 99:
            assert buffer.admission.stored == len(buffer)
            held = buffer.transitions()
            masses = [
                buffer.admission.reward_mass(state, float(reward))
                for state, reward in zip(held.observations[:20], held.rewards[:20], strict=True)
            ]
            assert min(masses) > 0.0  # each finds at least itself
    buffer.sample(16)
