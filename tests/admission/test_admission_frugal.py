"""FrugalFilter from the outside: warm-up, replace, scale, state, memory, bad input."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl import FrugalFilter, ReplayBuffer
from frugalrl.admission.protocol import DROP, REPLACE, STORE


def stream(n: int, seed: int = 0, dimensions: int = 3) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.normal(size=(n, dimensions)).round(1), generator.normal(size=n).round(1)


def buffer_of(f: FrugalFilter, capacity: int = 100, **arguments: Any) -> ReplayBuffer:
    space = spaces.Box(-10, 10, (3,))
    return ReplayBuffer(
        capacity, observation_space=space, action_space=space, admission=f, **arguments
    )


def add(buffer: ReplayBuffer, observation: np.ndarray, reward: float) -> tuple[int, int]:
    outcome = buffer.add(observation, np.zeros(3), reward, observation, False, False)
    return int(outcome.codes[0]), int(outcome.slots[0])


SETTINGS: list[dict[str, Any]] = [
    {},
    {"on_equivalent": "discard"},
    {"warmup": "filter"},
    {"warmup": "filter", "on_equivalent": "discard", "outside": "extend"},
    {"reward_scale": "auto", "kernel": "gaussian"},
]


@pytest.mark.pure_python
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_batch_is_decided_as_its_rows_one_by_one(settings: dict[str, Any]) -> None:
    observations, rewards = stream(300)
    whole = FrugalFilter(warmup_steps=100, bins=4, **settings)
    single = FrugalFilter(warmup_steps=100, bins=4, **settings)
    mask = whole.admit(observations, rewards)
    one_by_one = [single.admit(observations[i : i + 1], rewards[i : i + 1])[0] for i in range(300)]
    assert mask.tolist() == one_by_one
    assert whole.stored == single.stored
    assert whole.cells == single.cells
    assert mask[:100].all()
    assert 0 < mask[100:].sum() < 200


def test_warmup_keep_holds_everything_and_filter_what_is_new() -> None:
    observations, rewards = stream(200)
    kept = FrugalFilter(warmup_steps=200, bins=1)
    kept.admit(observations, rewards)
    filtered = FrugalFilter(warmup_steps=200, bins=1, warmup="filter")
    filtered.admit(observations, rewards)
    assert (kept.stored, kept.cells) == (200, 1)
    # The same rows as a stream into one cell, the first of which is always new.
    streamed = FrugalFilter(warmup_steps=3, bins=1, warmup="filter")
    streamed.admit(observations[:3], rewards[:3])
    streamed.admit(observations[3:], rewards[3:])
    assert filtered.cells == 1
    assert filtered.stored == streamed.stored < 200


@pytest.mark.pure_python
def test_replace_takes_the_oldest_equivalent_and_makes_it_the_youngest() -> None:
    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=0.04)
    f.begin(None)
    state = np.array([[0.5]])

    def offer(reward: float, slot: int) -> tuple[int, int]:
        made = f.offer(state, np.array([reward]), np.array([slot]))
        return int(made.codes[0]), int(made.slots[0])

    assert offer(0.0, 0) == (STORE, 0)
    assert offer(5.0, 1) == (STORE, 1)
    assert offer(0.1, 2) == (REPLACE, 0)
    assert offer(0.0, 2) == (REPLACE, 0)
    assert offer(9.0, 2) == (STORE, 2)
    assert offer(0.35, 3) == (REPLACE, 0)  # none within 0.2: the nearest
    assert f.stored == 3
    f.forget(1)
    assert offer(5.0, 1) == (STORE, 1)


def test_the_oldest_equivalents_rotate() -> None:
    f = FrugalFilter(warmup_steps=3, bounds=([0.0], [1.0]), density_threshold=0.2)
    f.begin(None)
    f.offer(np.full((3, 1), 0.5), np.array([0.0, 0.05, 0.1]), np.arange(3))
    made = f.offer(np.full((6, 1), 0.5), np.full(6, 0.05), np.arange(3, 9))
    assert made.slots.tolist() == [0, 1, 2, 0, 1, 2]


def test_paper_drops_equivalents() -> None:
    f = FrugalFilter.paper(warmup_steps=2, bins=1)
    assert f.settings.on_equivalent == "discard"
    assert f.settings.min_dimension_fraction == 0.0
    assert FrugalFilter.paper(warmup="observe").settings.warmup == "observe"
    assert f.admit([[0.0], [1.0], [0.5]], [0.0, 0.0, 0.0]).tolist() == [True, True, False]
    assert f.stored == 2


def test_reward_scale() -> None:
    observations, rewards = stream(300)
    plain = FrugalFilter(warmup_steps=100, bins=3)
    scaled = FrugalFilter(warmup_steps=100, bins=3, reward_scale=1000.0)
    fitted = FrugalFilter(warmup_steps=100, bins=3, reward_scale="auto")
    expected = plain.admit(observations, rewards)
    # 1024 would do without rounding; 1000 shows that decisions do not hang on the last bit.
    assert scaled.admit(observations, rewards * 1000.0).tolist() == expected.tolist()
    fitted.admit(observations, rewards * 1000.0)
    assert fitted.reward_scale_ == pytest.approx(float(np.std(rewards[:100] * 1000.0)))


def test_constant_rewards_and_observations() -> None:
    f = FrugalFilter(warmup_steps=10, reward_scale="auto")
    with pytest.warns(RuntimeWarning, match="all rewards of the warm-up are equal"):
        mask = f.admit(np.zeros((20, 4)), np.ones(20))
    assert mask.tolist() == [True] * 10 + [False] * 10
    assert f.reward_scale_ == 1.0
    assert f.cells == 1


@pytest.mark.parametrize("value", [1e30, -1e30])
def test_huge_values_are_decided_like_any(value: float) -> None:
    f = FrugalFilter(warmup_steps=4)
    observations = np.array([[0.0, 1.0], [value, 2.0], [3.0, value], [1.0, 1.0], [value, value]])
    mask = f.admit(observations, np.array([0.0, value, 1.0, 2.0, value]))
    assert mask[:4].all()
    assert f.stored >= 4
    assert f.reward_mass(observations[1], value) > 0.5


def test_nonfinite_rows_are_refused_counted_and_warned_of_once() -> None:
    observations, rewards = stream(60)
    clean = FrugalFilter(warmup_steps=20, bins=3)
    dirty = FrugalFilter(warmup_steps=20, bins=3)
    expected = clean.admit(observations, rewards)
    bad_rows = [5, 40, 41]
    more = np.insert(observations, bad_rows, 0.0, axis=0)
    values = np.insert(rewards, bad_rows, 0.0)
    spoilt = [5, 41, 43]
    more[spoilt[0], 1] = np.nan
    more[spoilt[1], 0] = np.inf
    values[spoilt[2]] = -np.inf
    with pytest.warns(RuntimeWarning, match="refused") as caught:
        mask = dirty.admit(more, values)
    assert len(caught) == 1
    assert dirty.rejected_nonfinite == 3
    assert not mask[spoilt].any()
    assert np.delete(mask, spoilt).tolist() == expected.tolist()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seen", [0, 50, 100, 250])
def test_a_copy_through_the_state_goes_on_identically(settings: dict[str, Any], seen: int) -> None:
    observations, rewards = stream(500)
    original = FrugalFilter(warmup_steps=100, bins=2, **settings)
    original.admit(observations[:seen], rewards[:seen])
    copy = FrugalFilter.from_state_dict(original.state_dict())
    assert copy.admit(observations[seen:], rewards[seen:]).tolist() == (
        original.admit(observations[seen:], rewards[seen:]).tolist()
    )
    assert (copy.stored, copy.cells) == (original.stored, original.cells)
    assert copy.important_dimensions_.tolist() == original.important_dimensions_.tolist()


def test_state_is_small_where_most_cells_hold_one_reward() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    # 16 important dimensions; 80 % of the cells hold one reward, the others two to eight.
    cells = generator.integers(0, 50, size=(60_000, 16)) + 0.5
    repeats = np.where(generator.random(60_000) < 0.8, 1, generator.integers(2, 9, 60_000))
    observations = np.repeat(cells, repeats, axis=0)[:100_000]
    rewards = np.tile(np.arange(8.0), len(observations) // 8 + 1)[: len(observations)]
    f = FrugalFilter(
        warmup_steps=100, dimension_threshold=1e-9, bounds=(np.zeros(16), np.full(16, 50.0))
    )
    f.admit(observations, rewards)
    assert len(f.important_dimensions_) == 16
    counts = f.cell_counts()
    assert np.mean(counts == 1) > 0.75
    assert f.stored == len(observations)
    assert f.nbytes / f.stored <= 64


def test_one_filter_serves_one_owner() -> None:
    f = FrugalFilter(warmup_steps=5)
    f.begin(spaces.Box(-1, 1, (2,)))
    with pytest.raises(ValueError, match="already decides for a buffer"):
        f.admit(np.zeros((1, 2)), np.zeros(1))
    f.offer(np.zeros((1, 2)), np.zeros(1), np.arange(1))
    with pytest.raises(ValueError, match="make a new FrugalFilter"):
        f.begin(spaces.Box(-1, 1, (2,)))
    f.forget(7)  # which holds nothing, so nothing happens
    assert f.stored == 1


@pytest.mark.parametrize("rows", [3, 12])
def test_a_filter_in_two_buffers_is_refused(rows: int) -> None:
    f = FrugalFilter(warmup_steps=10, bins=2)
    first, second = buffer_of(f), buffer_of(f)
    observations, rewards = stream(rows)
    for row in range(rows):
        add(first, observations[row], rewards[row])
    for _ in range(2):
        with pytest.raises(ValueError, match="already decides for a buffer"):
            add(second, observations[0], rewards[0])
    assert len(first) == f.stored
    add(first, np.full(3, 9.0), 99.0)
    assert len(first) == f.stored
    with pytest.raises(ValueError, match="already decides for a buffer"):
        buffer_of(f)


@pytest.mark.parametrize("warmup", ["keep", "filter"])
def test_a_buffer_that_was_refused_can_be_made_again_with_the_same_filter(warmup: str) -> None:
    f = FrugalFilter(warmup_steps=10, bins=2, warmup=warmup)
    with pytest.raises(ValueError, match="capacity_bytes"):
        buffer_of(f, capacity_bytes=100)
    retried = buffer_of(f, capacity=15)
    plain = buffer_of(FrugalFilter(warmup_steps=10, bins=2, warmup=warmup), capacity=15)
    for observation, reward in zip(*stream(80), strict=True):
        assert add(retried, observation, reward) == add(plain, observation, reward)


def test_a_retried_buffer_smaller_than_the_warmup() -> None:
    f = FrugalFilter(warmup_steps=10, bins=2, warmup="filter")
    with pytest.raises(ValueError, match="capacity_bytes"):
        buffer_of(f, capacity_bytes=100)
    retried = buffer_of(f, capacity=6)
    plain = buffer_of(FrugalFilter(warmup_steps=10, bins=2, warmup="filter"), capacity=6)
    for observation, reward in zip(*stream(80), strict=True):
        assert add(retried, observation, reward) == add(plain, observation, reward)


def test_what_is_learnt_is_not_known_before_the_warmup_ends() -> None:
    f = FrugalFilter(warmup_steps=10)
    assert not hasattr(f, "important_dimensions_")
    f.admit(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(AttributeError, match="3 of 10"):
        _ = f.important_dimensions_
    assert (f.stored, f.cells) == (3, 0)
    assert "warmup_steps=10" in repr(f)


def test_a_buffer_smaller_than_the_warmup() -> None:
    f = FrugalFilter(warmup_steps=6, bins=2, warmup="filter")
    f.begin(None)
    states = np.array([[0.0], [0.9], [0.1], [0.8], [0.2], [0.7], [0.3]])
    rewards = np.array([0.0, 0.0, 5.0, 5.0, 0.1, 5.1, 9.0])
    nowhere = np.empty(0, np.int64)
    f.offer(states[:3], rewards[:3], np.arange(3))
    for row in range(3, 5):
        made = f.offer(states[row : row + 1], rewards[row : row + 1], nowhere)
        assert made.slots.tolist() == [-1]
        assert made.released is None
        f.forget(row - 3)
        for _ in range(2):  # the second time nothing happens
            f.place(states[row], rewards[row], row - 3)
    # Row 5, the last, takes the slot of row 3, to which it is equivalent: nothing has to go.
    made = f.offer(states[5:6], rewards[5:6], nowhere)
    assert (made.codes.tolist(), made.slots.tolist()) == ([REPLACE], [0])
    assert made.released is None
    assert f.is_fitted
    copied = FrugalFilter.from_state_dict(f.state_dict())
    for asked in (f, copied):
        assert asked.slots_held().tolist() == [0, 1, 2]
        made = asked.offer(states[6:], rewards[6:], np.array([3]))
        assert (made.codes.tolist(), made.slots.tolist()) == ([STORE], [3])


def test_the_last_row_of_a_warmup_takes_a_released_slot_or_is_placed() -> None:
    settings: Any = {"warmup_steps": 3, "bounds": ([0.0], [1.0]), "warmup": "filter"}
    states = np.full((3, 1), 0.5)
    for rewards, code, slot, released, held in (
        ([0.0, 0.0, 5.0], REPLACE, 0, None, [0, 1]),
        ([0.0, 4.0, 8.0], STORE, -1, None, [0, 1]),
        ([5.0, 0.0, 0.0], REPLACE, 1, None, [0, 1]),
    ):
        f = FrugalFilter(**settings)
        f.begin(None)
        f.offer(states[:2], np.array(rewards[:2]), np.arange(2))
        made = f.offer(states[2:], np.array(rewards[2:]), np.empty(0, np.int64))
        assert (made.codes.tolist(), made.slots.tolist()) == ([code], [slot])
        assert made.released is released
        if slot < 0:
            f.forget(0)
            f.place(states[2], rewards[2], 0)
        assert f.slots_held().tolist() == held


def test_the_last_row_of_a_warmup_is_dropped_if_it_does_not_pass() -> None:
    f = FrugalFilter(
        warmup_steps=4, bounds=([0.0], [1.0]), warmup="filter", on_equivalent="discard"
    )
    f.begin(None)
    states, rewards = np.full((4, 1), 0.5), np.array([0.0, 5.0, 5.0, 5.0])
    f.offer(states[:3], rewards[:3], np.arange(3))
    last = states[3:], rewards[3:], np.empty(0, np.int64)
    for _ in range(2):  # an interrupt may have kept the owner from hearing the first answer
        made = f.offer(*last)
        assert (made.codes.tolist(), made.slots.tolist()) == ([DROP], [-1])
        assert made.released is not None
        assert made.released.tolist() == [2]
        assert (f.slots_held().tolist(), f.cell_counts().tolist()) == ([0, 1], [2])


def test_the_warmup_can_be_observed_only() -> None:
    observations, rewards = stream(200)
    f = FrugalFilter(warmup_steps=100, bins=4, warmup="observe")
    kept = FrugalFilter(warmup_steps=100, bins=4)
    mask = f.admit(observations, rewards)
    kept.admit(observations, rewards)
    assert not mask[:100].any()
    assert mask[100]  # the first one into an empty buffer
    assert f.stored == mask.sum() < kept.stored
    assert f.important_dimensions_.tolist() == kept.important_dimensions_.tolist()
    single = FrugalFilter(warmup_steps=100, bins=4, warmup="observe")
    single.begin(None)
    made = single.offer(observations[:150], rewards[:150], np.arange(150))
    assert made.codes.tolist() == [DROP] * 100
    assert single.stored == 0
    assert single.is_fitted


@pytest.mark.parametrize("settings", [{}, {"warmup": "filter"}, {"warmup": "observe"}])
def test_an_offer_made_again_gets_the_same_answer(settings: dict[str, Any]) -> None:
    """An interrupt may have kept the first answer from the owner."""

    class Repeated(FrugalFilter):
        def offer(self, *offer: Any) -> Any:
            return [super(Repeated, self).offer(*offer) for _ in range(3)][-1]

    observations, rewards = stream(300)
    space = spaces.Box(-np.inf, np.inf, observations.shape[1:])
    plain, repeated = (
        ReplayBuffer(
            60,
            observation_space=space,
            action_space=spaces.Discrete(2),
            admission=made_by(warmup_steps=50, bins=2, **settings),
        )
        for made_by in (FrugalFilter, Repeated)
    )
    no = np.zeros(7, dtype=np.bool_)
    for row in range(0, 294, 7):
        states, values = observations[row : row + 7], rewards[row : row + 7]
        for buffer in (plain, repeated):
            buffer.extend(states, no, values, states, no, no)
        for one, other in zip(plain.transitions()[:8], repeated.transitions()[:8], strict=True):
            np.testing.assert_array_equal(one, other)
        assert plain.slots().tolist() == repeated.admission.slots_held().tolist()


def test_one_free_array_may_serve_for_several_offers() -> None:
    f = FrugalFilter(warmup_steps=1, bounds=([0.0], [1.0]), density_threshold=0.04)
    f.begin(None)
    free = np.array([0, 1, 2])
    made = f.offer(np.full((1, 1), 0.5), np.array([0.0]), free[:1])
    free = free[1:]
    codes = [int(f.offer(np.full((1, 1), 0.5), np.array([r]), free).codes[0]) for r in (0.1, 5.0)]
    assert [*made.codes.tolist(), *codes] == [STORE, REPLACE, STORE]


def test_the_state_of_an_empty_filter_is_small() -> None:
    f = FrugalFilter()
    f.begin(spaces.Box(-1, 1, (3,)))
    state = f.state_dict()
    assert sum(np.asarray(part).nbytes for part in state["bounds"].values()) < 100
    assert set(state) == {"settings", "owner", "rejected_nonfinite", "bounds"}


def test_a_state_claims_no_memory_that_it_does_not_fill() -> None:
    observations, rewards = stream(20)
    original = FrugalFilter(warmup_steps=100)
    original.admit(observations, rewards)
    state = original.state_dict()
    state["settings"]["warmup_steps"] = 2**60  # more than any machine has
    f = FrugalFilter.from_state_dict(state)
    assert f.admit(observations, rewards).all()
    assert f.stored == 40


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"warmup_steps": 0}, "warmup_steps=0"),
        ({"warmup_steps": 2.5}, "warmup_steps=2.5"),
        ({"bins": 0}, "bins=0"),
        ({"dimension_threshold": 0.0}, "dimension_threshold=0.0"),
        ({"min_dimension_fraction": -1.0}, "min_dimension_fraction=-1.0"),
        ({"kernel": "epanechnikow"}, "did you mean 'epanechnikov'"),
        ({"bandwidth": -1.0}, "bandwidth=-1.0"),
        ({"half_width": 0.0}, "half_width=0.0"),
        ({"density_threshold": float("nan")}, "density_threshold=nan"),
        ({"decay": 0.0}, "decay=0.0"),
        ({"outside": "clamp"}, "outside='clamp'"),
        ({"on_equivalent": "drop"}, "on_equivalent='drop'"),
        ({"warmup": "none"}, "warmup='none'"),
        ({"reward_scale": "std"}, "reward_scale='std'"),
        ({"reward_scale": 0.0}, "reward_scale=0.0"),
        ({"bounds": "space"}, "bounds='space'"),
        ({"bounds": ([0.0], [1.0, 2.0])}, "must have one shape"),
        ({"bounds": ([2.0], [1.0])}, "must nowhere exceed"),
        ({"bounds": 3}, "neither"),
        ({"warmup_steps": True}, "warmup_steps=True is no integer; use one from 1"),
        ({"bins": np.int64(0)}, "out of range; use an integer from 1"),
        ({"bins": "5"}, "bins='5'"),
        ({"dimension_threshold": None}, "dimension_threshold=None is no number; use 0 <"),
        ({"min_dimension_fraction": "x"}, "min_dimension_fraction='x' is no number; use 0 to 1"),
        ({"bandwidth": "a"}, "bandwidth='a' is no number; use a number above 0"),
        ({"half_width": True}, "half_width=True is no number; use a number above 0"),
        ({"density_threshold": None}, "density_threshold=None is no number; use 0 (only"),
        ({"decay": "x"}, "decay='x' is no number; use a number above 0 (infinity"),
        ({"decay": 10**400}, "is out of range; use a number above 0 (infinity"),
        ({"reward_scale": None}, "reward_scale=None is no number; use a number above 0 or"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(complaint)):
        FrugalFilter(**settings)


@pytest.mark.parametrize(
    ("observations", "rewards", "error", "complaint"),
    [
        (np.zeros(3), np.zeros(3), ValueError, "(n, dimensions)"),
        (np.zeros((3, 2)), np.zeros(2), ValueError, "(n,)"),
        (np.zeros((3, 5)), np.zeros(3), ValueError, "5 dimensions"),
        ([["a", "b"]], [0.0], TypeError, "arrays of numbers, but observations is of type <U1"),
        ([["1", "2"]], [0.0], TypeError, "observations is of type <U1"),
        (np.array([["1", 2]], dtype=object), [0.0], TypeError, "observations is of type object"),
        ([[1.0, 2.0j]], [0.0], TypeError, "observations is of type complex128"),
        ([[1.0, 2.0]], [1.0 + 0.0j], TypeError, "rewards is of type complex128"),
        ([[1.0, 2.0]], ["3"], TypeError, "rewards is of type <U1"),
        ([[1.0, 2.0]], [{}], TypeError, "rewards is something else"),
        ([[1.0, 2.0], [3.0]], [0.0, 0.0], TypeError, "observations is something else"),
        (np.zeros((1, 0)), [0.0], ValueError, "nothing to observe"),
    ],
)
def test_bad_rows_are_named_and_change_nothing(
    observations: Any, rewards: Any, error: type[Exception], complaint: str
) -> None:
    f = FrugalFilter(warmup_steps=4)
    f.admit(np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(error, match=re.escape(complaint)):
        f.admit(observations, rewards)
    assert f.stored == 1


def test_settings_that_do_not_fit_the_observation() -> None:
    with pytest.raises(ValueError, match="warmup_steps=3 is fewer than the observation's 5"):
        FrugalFilter(warmup_steps=3).begin(spaces.Box(-1, 1, (5,)))
    with pytest.raises(ValueError, match="bounds has 1 dimensions"):
        FrugalFilter(warmup_steps=9, bounds=([0.0], [1.0])).admit(np.zeros((1, 5)), np.zeros(1))
    with pytest.raises(ValueError, match="must not offer rows with NaN"):
        FrugalFilter(warmup_steps=1).offer(np.full((1, 1), np.nan), np.zeros(1), np.arange(1))


@pytest.mark.parametrize("use", ["admit", "begin", "offer"])
def test_settings_that_do_not_fit_are_refused_every_time(use: str) -> None:
    f = FrugalFilter(warmup_steps=3)
    uses = {
        "admit": lambda: f.admit(np.zeros((1, 8)), [0.0]),
        "begin": lambda: f.begin(spaces.Box(-1, 1, (8,))),
        "offer": lambda: f.offer(np.zeros((1, 8)), np.zeros(1), np.arange(1)),
    }
    before = repr(f.state_dict())
    for _ in range(2):
        with pytest.raises(ValueError, match="warmup_steps=3 is fewer than the observation's 8"):
            uses[use]()
        assert repr(f.state_dict()) == before
    # Nothing was settled: neither the dimensions nor to whom the filter belongs.
    f.admit(np.zeros((1, 2)), [0.0])


def test_a_stream_refused_by_a_buffers_filter_leaves_its_bounds() -> None:
    f = FrugalFilter(warmup_steps=5)
    f.begin(spaces.Box(-1, 1, (2,)))
    before = repr(f.state_dict())
    with pytest.raises(ValueError, match="already decides for a buffer"):
        f.admit(np.zeros((1, 2)), np.zeros(1))
    assert repr(f.state_dict()) == before


@pytest.mark.parametrize("reward", [0.0, 0.1, -1e200, 5e-324])
def test_equal_rewards_are_not_scaled(reward: float) -> None:
    f = FrugalFilter(warmup_steps=1000, reward_scale="auto")
    with pytest.warns(RuntimeWarning, match="all rewards of the warm-up are equal"):
        f.admit(stream(1000)[0], np.full(1000, reward))
    assert f.reward_scale_ == 1.0


@pytest.mark.parametrize("largest", [1e200, 1.7e308, 1.0, 1e-200, 1e-300])
def test_rewards_of_any_size_are_scaled(largest: float) -> None:
    f = FrugalFilter(warmup_steps=100, reward_scale="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.admit(stream(100)[0], np.tile([largest, -largest], 50))
    assert f.reward_scale_ == pytest.approx(largest)


def test_the_scale_is_the_standard_deviation_to_the_last_bit() -> None:
    observations, rewards = stream(100)
    f = FrugalFilter(warmup_steps=100, reward_scale="auto")
    f.admit(observations, rewards)
    assert f.reward_scale_ == np.std(rewards)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_stream_goes_on_after_a_warning_made_an_error(rows: int) -> None:
    observations, rewards = stream(20)
    rewards[:5] = 0.3
    make = {"warmup_steps": 5, "reward_scale": "auto", "warmup": "filter"}
    f, undisturbed = FrugalFilter(**make), FrugalFilter(**make)
    f.admit(observations[:4], rewards[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="are equal"):
            f.admit(observations[4 : 4 + rows], rewards[4 : 4 + rows])
        mask = f.admit(observations[4 + rows :], rewards[4 + rows :])  # it is said once
    with pytest.warns(RuntimeWarning, match="are equal"):
        expected = undisturbed.admit(observations, rewards)
    assert mask.tolist() == expected[4 + rows :].tolist()
    assert f.stored == undisturbed.stored


@pytest.mark.parametrize("capacity", [100, 4])
@pytest.mark.parametrize("warmup", ["keep", "filter", "observe"])
def test_a_buffer_goes_on_after_a_warning_made_an_error(capacity: int, warmup: str) -> None:
    observations, rewards = stream(60)
    rewards[:8] = 0.1
    make = {"warmup_steps": 8, "bins": 2, "reward_scale": "auto", "warmup": warmup}
    disturbed = buffer_of(FrugalFilter(**make), capacity)
    undisturbed = buffer_of(FrugalFilter(**make), capacity)
    for row in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = add(undisturbed, observations[row], rewards[row])
            warnings.simplefilter("error")
            if row == 7:
                with pytest.raises(RuntimeWarning, match="are equal"):
                    add(disturbed, observations[row], rewards[row])
            else:
                assert add(disturbed, observations[row], rewards[row]) == expected
        assert disturbed.admission.stored == len(disturbed) == len(undisturbed)


def test_refused_rows_are_counted_where_warnings_are_errors() -> None:
    observations, rewards = stream(20)
    rewards[[2, 12]] = np.nan
    f, undisturbed = FrugalFilter(warmup_steps=5), FrugalFilter(warmup_steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="NaN or infinity"):
            f.admit(observations, rewards)
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        undisturbed.admit(observations, rewards)
    assert f.rejected_nonfinite == undisturbed.rejected_nonfinite == 2
    assert f.stored == undisturbed.stored


def test_numpy_numbers_are_settings_and_become_plain_ones() -> None:
    f = FrugalFilter(
        warmup_steps=np.int64(100),
        bins=np.int32(50),
        bandwidth=np.float64(0.5),
        half_width=1,
        decay=np.inf,
        reward_scale=np.float32(2.0),
    )
    values = asdict(f.settings)
    json.dumps(values)
    assert {type(value) for value in values.values()} == {int, float, str}
    assert (values["warmup_steps"], values["half_width"], values["reward_scale"]) == (100, 1.0, 2.0)
