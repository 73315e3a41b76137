"""Samplers draw what they should, reproducibly, and follow what the buffer does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from frugalrl.admission.controls import RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.replay.samplers import LargeBatch, Prioritized, Uniform, _set

SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)


def make(capacity: int | None = 40, count: int = 100, **options: Any) -> ReplayBuffer:
    """A buffer with `count` transitions offered; the reward tells which is which."""
    buffer = ReplayBuffer(capacity, observation_space=SPACE, action_space=SPACE, **options)
    fill(buffer, 0, count)
    return buffer


def fill(buffer: ReplayBuffer, first: int, last: int) -> None:
    rng = np.random.default_rng(first)
    for i in range(first, last):
        state, next_state, action = rng.uniform(-1, 1, (3, 2))
        buffer.add(state, action, float(i), next_state, False, False)


def priorities(values: list[float]) -> Prioritized:
    """A sampler with these priorities, set one by one."""
    sampler = Prioritized()
    sampler.resize(len(values))
    for slot, value in enumerate(values):
        _set(*sampler._parts, np.array([slot]), np.array([value]), False)
    return sampler


class Marks:
    """Gives out what it is told instead of random numbers."""

    def __init__(self, *marks: float) -> None:
        self.random = lambda size: np.array(marks)


@pytest.mark.pure_python
@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=200),
    st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=20),
)
def test_draws_agree_with_plain_sums(values: list[float], shares: list[float]) -> None:
    sampler, plain = priorities(values), np.array(values)
    held = np.flatnonzero(plain)
    assert sampler.fits(held, len(values))
    assert np.array_equal(sampler.priorities(np.arange(len(values))), plain)
    assert sampler.nbytes == sampler.nbytes_for(len(values))
    if not len(held):
        return
    ends = np.cumsum(plain)
    slack = 1e-9 * ends[-1]
    found, weights = sampler.draw(None, Marks(*shares), 1, len(shares), 0)  # type: ignore[arg-type]
    marks = (np.arange(len(shares)) + shares) * (ends[-1] / len(shares))
    assert (plain[found] > 0).all()
    assert (marks <= ends[found] + slack).all()
    assert (marks >= ends[found] - plain[found] - slack).all()
    assert weights == pytest.approx((plain[found] / plain[held].min()) ** -0.4, rel=1e-6)


def test_the_very_end_is_found_too() -> None:
    values = [0.0] * 300
    values[3], values[50] = 0.1, 0.2
    sampler = priorities(values)
    for mark in (0.0, 0.33, 0.34, 1.0 - 2.0**-53, 1.0, 7.0):
        found, _ = sampler.draw(None, Marks(mark), 1, 1, 0)  # type: ignore[arg-type]
        assert found.tolist() == [3 if mark < 1 / 3 else 50]


@pytest.mark.parametrize("slots", [0, 1, 64, 65, 1000])
def test_priorities_stay_when_their_number_changes(slots: int) -> None:
    sampler = priorities([1.0 + i for i in range(slots)])
    sampler.resize(slots + 700)
    assert sampler._parts[1].sum() == slots * (slots + 1) / 2
    assert np.array_equal(sampler.priorities(np.arange(slots)), 1.0 + np.arange(slots))
    assert not sampler.priorities(np.arange(slots, slots + 700)).any()
    sampler.resize(slots // 2)
    assert sampler.fits(np.arange(slots // 2), slots // 2)


def test_sums_do_not_drift() -> None:
    """A million changes of very different size leave every sum exactly that of its parts."""
    sampler = priorities([1.0] * 64)
    rng = np.random.default_rng(0)
    for _ in range(100):
        slots = rng.integers(0, 64, 10_000)
        _set(*sampler._parts, slots, 10.0 ** rng.uniform(-9, 9, 10_000), False)
    _set(*sampler._parts, np.arange(64), np.full(64, 0.1), False)
    for part, fresh in zip(sampler._parts, priorities([0.1] * 64)._parts, strict=True):
        assert np.array_equal(part, fresh)


def test_uniform_is_uniform() -> None:
    buffer = make()
    counts = np.bincount(buffer.sample(40_000).slots, minlength=40)
    assert chisquare(counts).pvalue > 1e-3


def test_uniform_passes_over_holes() -> None:
    """A byte limit leaves free slots between occupied ones; none of them is drawn."""
    buffer = make(capacity=None, count=4000, capacity_bytes=24_000, admission=RandomAdmit(0.5))
    storage = buffer._storage
    for _ in range(len(storage) // 3):
        buffer._intake.evict()
    assert not storage.dense
    batch = buffer.sample(60_000)
    held = storage.oldest_first()
    counts = np.bincount(batch.slots, minlength=storage.limit)
    assert counts.sum() == counts[held].sum() == 60_000
    assert chisquare(counts[held]).pvalue > 1e-3


def test_large_batch_draws_a_multiple() -> None:
    assert make(sampler="large_batch").sample(8).rewards.shape == (32,)
    batch = make(sampler=LargeBatch(multiple=3)).sample(8, batches=2)
    assert batch.observations.shape == (2, 24, 2)
    assert (batch.weights == 1).all()


def test_new_transitions_have_the_greatest_priority() -> None:
    buffer = make(capacity=200, count=50, sampler="prioritized")
    sampler = buffer.sampler
    assert isinstance(sampler, Prioritized)
    assert (sampler.priorities(np.arange(50)) == 1.0).all()
    buffer.feedback(np.arange(50), np.linspace(0.0, 9.0, 50))
    fill(buffer, 50, 60)
    greatest = (9.0 + sampler.epsilon) ** sampler.alpha
    assert sampler.priorities(np.arange(50, 60)) == pytest.approx(greatest)
    buffer.feedback(np.arange(60), np.full(60, 0.5))
    fill(buffer, 60, 61)
    assert sampler.priorities(np.array([60])) == pytest.approx(greatest)


def test_prioritized_draws_in_proportion() -> None:
    buffer = make(sampler=Prioritized(alpha=0.7, epsilon=1e-3))
    errors = np.random.default_rng(1).exponential(size=40)
    buffer.feedback(np.arange(40), -errors)
    share = (errors + 1e-3) ** 0.7
    slots = buffer.sample(256, batches=200).slots.reshape(-1)
    counts = np.bincount(slots, minlength=40)
    # Stratified draws vary less than independent ones, so this may not be far off either way.
    assert chisquare(counts, share / share.sum() * counts.sum()).pvalue > 1e-3


def test_importance_weights_are_those_of_the_paper() -> None:
    buffer = make(capacity=40, count=1000, sampler=Prioritized(anneal_steps=4000))
    errors = np.random.default_rng(2).exponential(size=40)
    buffer.feedback(np.arange(40), errors)
    priority = (errors + 1e-6) ** 0.6
    beta = 0.4 + 0.6 * 1000 / 4000
    weights = (40 * priority / priority.sum()) ** -beta
    batch = buffer.sample(64)
    assert batch.weights == pytest.approx((weights / weights.max())[batch.slots], rel=1e-5)


def test_beta_follows_environment_steps_not_what_is_stored() -> None:
    sampler = Prioritized(beta=0.4, beta_final=1.0, anneal_steps=200)
    make(count=100, sampler=sampler, admission=RandomAdmit(0.1))
    assert sampler.beta_at(100) == pytest.approx(0.7)
    assert sampler.beta_at(10_000) == 1.0


@pytest.mark.parametrize("mode", ["evict", "replace"])
def test_priorities_follow_eviction_and_replacement(mode: str) -> None:
    admission = FrugalFilter(warmup_steps=20, bins=2) if mode == "replace" else None
    buffer = ReplayBuffer(
        30, observation_space=SPACE, action_space=SPACE, admission=admission, sampler="prioritized"
    )
    sampler = buffer.sampler
    assert isinstance(sampler, Prioritized)
    rng = np.random.default_rng(0)
    for i in range(300):
        state = rng.uniform(-1, 1, 2)
        outcome = buffer.add(state, state, rng.choice([0.0, 0.05]), -state, False, False)
        slot = int(outcome.slots[0])
        if slot >= 0:
            assert sampler.priorities(np.array([slot]))[0] == sampler._greatest
            buffer.feedback([slot], [i % 7])
    held = buffer._storage.oldest_first()
    everything = np.arange(len(sampler._parts[0]))
    positive = everything[sampler.priorities(everything) > 0]
    assert positive.tolist() == sorted(held.tolist())
    assert (buffer.stats.replaced if mode == "replace" else buffer.stats.evicted) > 100


def test_feedback_passes_over_slots_emptied_meanwhile() -> None:
    buffer = make(capacity=20, count=20, sampler="prioritized")
    gone = buffer._intake.evict()
    buffer.feedback([gone, 5], [3.0, 3.0])
    sampler = buffer.sampler
    assert isinstance(sampler, Prioritized)
    assert sampler.priorities(np.array([gone]))[0] == 0.0
    assert gone not in buffer.sample(500).slots


def test_extreme_errors_leave_every_sum_finite() -> None:
    sampler = Prioritized(alpha=3.0)
    buffer = make(sampler=sampler)
    buffer.feedback(np.arange(40), np.full(40, 1e200))
    fill(buffer, 100, 110)
    assert np.isfinite(sampler._parts[1]).all()
    assert np.isfinite(buffer.sample(64).weights).all()
    assert ReplayBuffer.from_state_dict(buffer.state_dict()).sampler.fits(np.arange(40), 40)


def test_a_transition_without_error_stays_drawable_under_any_alpha() -> None:
    sampler = Prioritized(alpha=80.0)
    buffer = make(sampler=sampler)
    buffer.feedback(np.arange(40), np.zeros(40))
    assert (sampler.priorities(np.arange(40)) > 0.0).all()
    assert (buffer.sample(64).weights == 1.0).all()


def test_a_prioritized_sampler_serves_one_buffer() -> None:
    sampler = Prioritized()
    with pytest.raises(ValueError, match="capacity_bytes=100 has no room"):
        make(capacity_bytes=100, sampler=sampler)
    make(sampler=sampler)
    with pytest.raises(ValueError, match="already draws for a buffer; make a new Prioritized"):
        make(sampler=sampler)


def test_alpha_zero_is_uniform() -> None:
    buffer = make(sampler=Prioritized(alpha=0.0))
    buffer.feedback(np.arange(40), np.linspace(0, 100, 40))
    batch = buffer.sample(4000)
    assert (batch.weights == 1.0).all()
    assert np.bincount(batch.slots, minlength=40).tolist() == [100] * 40


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "large_batch"])
def test_draws_are_reproducible_and_seeds_differ(sampler: str) -> None:
    first, second = (make(sampler=sampler, seed=7).sample(64) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one, other)
    assert not np.array_equal(first.rewards, make(sampler=sampler, seed=8).sample(64).rewards)


def test_batches_drawn_at_once_are_those_drawn_in_turn() -> None:
    one, other = make(seed=3), make(seed=3)
    together = one.sample(16, batches=5)
    for i in range(5):
        assert np.array_equal(together.rewards[i], other.sample(16).rewards)


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "large_batch"])
@pytest.mark.parametrize("admission", ["all", "random", "fac"])
def test_admission_and_sampling_combine_freely(sampler: str, admission: str) -> None:
    made: Any = {
        "all": None,
        "random": RandomAdmit(0.5),
        "fac": FrugalFilter(warmup_steps=10, bins=4),
    }[admission]
    buffer = make(sampler=sampler, admission=made)
    for _ in range(3):
        batch = buffer.sample(16, batches=2)
        buffer.feedback(batch.slots, np.ones(batch.slots.shape))
        fill(buffer, 100, 140)
    held = buffer.transitions()
    assert set(batch.rewards.reshape(-1).tolist()) <= {float(i) for i in range(140)}
    assert len(held.rewards) == len(buffer) <= 40


def test_drawn_arrays_are_fresh() -> None:
    buffer = make()
    before = buffer.transitions()
    batch = buffer.sample(256)
    for array in batch[:-1]:
        assert array.flags.writeable
        assert array.flags.c_contiguous
        array[...] = 0
    for one, other in zip(before, buffer.transitions(), strict=True):
        assert np.array_equal(one, other)


def test_uniform_feedback_changes_nothing() -> None:
    buffer = make(sampler=Uniform())
    buffer.feedback([0], [np.nan])
    assert buffer.sample(4).weights.tolist() == [1.0] * 4
