"""The ledger against the obvious: a list of transitions with their ages, and a phi rebuilt."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from frugalrl import AdmitAll, FrugalFilter, RandomAdmit, ReplayBuffer, reward_density
from frugalrl.adapters import AdmissionLedger
from frugalrl.replay.results import REFUSED

FILTERS = {
    "all": AdmitAll,
    "random": lambda: RandomAdmit(0.5, seed=3),
    "replace": lambda: FrugalFilter(warmup_steps=6, bins=3),
    "discard": lambda: FrugalFilter(warmup_steps=6, bins=3, on_equivalent="discard"),
    "filtered warm-up": lambda: FrugalFilter(warmup_steps=9, bins=2, warmup="filter"),
}


class Shelf:
    """A storage that knows nothing but slots."""

    def __init__(self, capacity, admission, eviction="oldest"):
        self.ledger = AdmissionLedger(capacity, admission, eviction=eviction)
        self.rows = [None] * capacity

    def offer(self, observations, rewards):
        def write(rows, slots):
            assert len(set(slots.tolist())) == len(slots)
            for row, slot in zip(rows, slots, strict=True):
                self.rows[slot] = (*observations[row], rewards[row])

        return self.ledger.offer(observations, rewards, write, self.move)

    def move(self, sources, targets):
        assert not set(sources.tolist()) & set(targets.tolist())
        for source, target in zip(sources, targets, strict=True):
            self.rows[target] = self.rows[source]
        in_use = len(self.ledger)
        self.rows[in_use:] = [None] * (len(self.rows) - in_use)

    def contents(self):
        return [self.rows[slot] for slot in self.ledger.oldest_first()]


def stream(steps, seed):
    generator = np.random.default_rng(seed)
    return generator.random((steps, 2)).round(1), generator.random(steps).round(1)


@pytest.mark.parametrize("name", FILTERS)
@settings(max_examples=15)
@given(
    capacity=st.integers(1, 30),
    eviction=st.sampled_from(["oldest", "random"]),
    cuts=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    seed=st.integers(0, 50),
)
def test_batches_decide_as_single_rows(name, capacity, eviction, cuts, seed):
    batched, single = (Shelf(capacity, FILTERS[name](), eviction) for _ in range(2))
    observations, rewards = stream(sum(cuts), seed)
    start = 0
    for cut in cuts:
        rows = slice(start, start + cut)
        outcome = batched.offer(observations[rows], rewards[rows])
        for row in range(start, start + cut):
            single.offer(observations[row : row + 1], rewards[row : row + 1])
        for row, slot in enumerate(outcome.slots):
            if slot >= 0:
                expected = (*observations[start + row], rewards[start + row])
                assert batched.rows[slot] == expected
        start += cut
    assert batched.contents() == single.contents()
    assert batched.ledger.stats == single.ledger.stats
    stats = batched.ledger.stats
    assert stats.offered == stats.stored + stats.replaced + stats.dropped == sum(cuts)
    assert len(batched.ledger) == stats.stored - stats.evicted
    assert sorted(batched.ledger.oldest_first().tolist()) == list(range(len(batched.ledger)))


@settings(max_examples=15)
@given(
    name=st.sampled_from(["all", "random", "replace", "discard"]),
    capacity=st.integers(1, 150),
    rows=st.integers(1, 60),
    eviction=st.sampled_from(["oldest", "random"]),
)
def test_evicts_what_the_buffer_evicts(name, capacity, rows, eviction):
    shelf = Shelf(capacity, FILTERS[name](), eviction)
    buffer = ReplayBuffer(
        capacity,
        observation_space=Box(-np.inf, np.inf, (2,)),
        action_space=Box(-1.0, 1.0, (1,)),
        admission=FILTERS[name](),
        eviction=eviction,
    )
    observations, rewards = (part.astype(np.float32) for part in stream(600, capacity))
    no, nothing = np.zeros(rows, np.bool_), np.zeros((rows, 1))
    for start in range(0, 600, rows):
        part, given = observations[start : start + rows], rewards[start : start + rows]
        shelf.offer(part, given)
        buffer.add(part, nothing[: len(part)], given, part, no[: len(part)], no[: len(part)])
    held = buffer.transitions()
    expected = np.column_stack([held.observations, held.rewards])
    np.testing.assert_array_equal(np.array(shelf.contents()), expected)
    assert shelf.ledger.stats == buffer.stats


def test_random_eviction_keeps_old_and_new():
    ages = {}
    for eviction in ("oldest", "random"):
        shelf = Shelf(400, AdmitAll(), eviction)
        shelf.offer(np.zeros((4_000, 1)), np.arange(4_000.0))
        ages[eviction] = 3_999 - np.array(shelf.contents())[:, 1]
    assert ages["oldest"].tolist() == list(range(400))[::-1]
    assert ages["random"].min() == 0
    # They are geometric with mean 400: about one in e**2 is older than twice that.
    assert 1 <= np.count_nonzero(ages["random"] > 800) <= 130


@pytest.mark.parametrize("eviction", ["oldest", "random"])
def test_phi_mirrors_the_shelf_through_eviction(eviction):
    bounded = FrugalFilter(warmup_steps=10, bins=4, bounds=([0, 0], [1, 1]))
    shelf = Shelf(40, bounded, eviction)
    observations, rewards = stream(300, 1)
    shelf.offer(observations, rewards)
    assert shelf.ledger.stats.evicted > 0
    assert shelf.ledger.stats.replaced > 0
    contents = np.array(shelf.contents())
    admission = shelf.ledger.admission
    assert admission.stored == len(contents) == 40
    for state in observations[:50]:
        cell = admission.cell_ids([state])[0]
        held = contents[admission.cell_ids(contents[:, :2]) == cell][:, 2]
        expected = reward_density(held, 0.5) if len(held) else 0.0
        assert admission.reward_mass(state, 0.5) == pytest.approx(expected, abs=1e-9)


def test_refuses_what_is_not_finite_and_warns_once():
    shelf = Shelf(10, AdmitAll())
    observations, rewards = stream(4, 0)
    observations[1, 0], rewards[2] = np.nan, np.inf
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        outcome = shelf.offer(observations, rewards)
    assert outcome.codes.tolist() == [1, REFUSED, REFUSED, 1]
    assert outcome.slots.tolist() == [0, -1, -1, 1]
    shelf.offer(observations, rewards)  # a second warning would be an error
    assert shelf.ledger.stats.rejected_nonfinite == 4
    assert shelf.ledger.stats.offered == 8


@pytest.mark.parametrize("eviction", ["oldest", "random"])
@pytest.mark.parametrize("name", FILTERS)
def test_goes_on_identically_from_a_state(name, eviction):
    observations, rewards = stream(400, 5)
    one = Shelf(25, FILTERS[name](), eviction)
    one.offer(observations[:40], rewards[:40])
    other = Shelf(25, FILTERS[name](), eviction)
    other.ledger.load_state_dict(one.ledger.state_dict())
    other.rows = list(one.rows)
    for shelf in (one, other):
        shelf.offer(observations[40:], rewards[40:])
    assert one.contents() == other.contents()
    assert one.ledger.stats == other.ledger.stats


def test_a_cleared_ledger_evicts_as_a_new_one():
    one, other = (Shelf(25, AdmitAll(), "random") for _ in range(2))
    one.offer(*stream(100, 1))
    one.ledger.clear()
    for shelf in (one, other):
        shelf.offer(*stream(200, 2))
    assert one.contents() == other.contents()


def test_slots_given_up_leave_no_gaps_and_are_used_again():
    filtered = FrugalFilter(warmup_steps=20, bins=2, warmup="filter", on_equivalent="discard")
    shelf = Shelf(60, filtered)
    observations, rewards = stream(400, 3)
    for row in range(400):
        shelf.offer(observations[row : row + 1], rewards[row : row + 1])
        if row == 19:
            assert 0 < len(shelf.ledger) < 20
        assert None not in shelf.contents()
        assert shelf.rows[len(shelf.ledger) :] == [None] * (60 - len(shelf.ledger))
    assert shelf.ledger.stats.stored == len(shelf.ledger)


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("slots", [0, 0], "do not fit together"),
        ("slots", [0, 9], "do not fit together"),
        ("positions", [0, 2], "do not belong together"),
        ("books", None, "made before 0.1.0"),
        ("victims", None, "not the state of a ledger"),
        ("counters", {}, "not the state of a ledger"),
        ("run", 3, "not the state of a ledger"),
    ],
)
def test_refuses_a_damaged_state(part, value, complaint):
    shelf = Shelf(5, AdmitAll())
    shelf.offer(*stream(2, 0))
    state = shelf.ledger.state_dict()
    if value is None:
        del state[part]
    else:
        given = np.array(value) if isinstance(value, list) else value
        (state if part in state else state["books"])[part] = given
    with pytest.raises(ValueError, match=complaint):
        shelf.ledger.load_state_dict(state)
    assert len(shelf.ledger) == 2


def test_a_copy_goes_on_as_the_original():
    one = AdmissionLedger(5, FrugalFilter(warmup_steps=6, bins=3), eviction="random")
    other = copy.deepcopy(one)
    for _ in range(2):
        outcomes = [
            ledger.offer(*stream(30, 0), lambda *_: None, lambda *_: None)
            for ledger in (one, other)
        ]
        np.testing.assert_array_equal(*(outcome.slots for outcome in outcomes))
        other = pickle.loads(pickle.dumps(other))  # noqa: S301
    assert one.stats == other.stats


def test_refuses_another_eviction():
    with pytest.raises(ValueError, match="eviction='newest' is unknown"):
        AdmissionLedger(5, AdmitAll(), eviction="newest")
    oldest, random = (Shelf(5, AdmitAll(), eviction) for eviction in ("oldest", "random"))
    for one, other in ((oldest, random), (random, oldest)):
        with pytest.raises(ValueError, match=f"a buffer with eviction='{one.ledger.eviction}'"):
            other.ledger.load_state_dict(one.ledger.state_dict())
    random.offer(*stream(12, 0))
    state = random.ledger.state_dict()
    for run in ([7, 3], [2, 0], [2, 50]):
        state["books"]["run"] = run
        with pytest.raises(ValueError, match="none of what is held"):
            random.ledger.load_state_dict(state)


def test_refuses_another_filters_state():
    state = AdmissionLedger(5, AdmitAll()).state_dict()
    with pytest.raises(ValueError, match="'all' with capacity 5"):
        AdmissionLedger(5, RandomAdmit(0.5)).load_state_dict(state)
    with pytest.raises(ValueError, match="capacity 5"):
        AdmissionLedger(6, AdmitAll()).load_state_dict(state)
