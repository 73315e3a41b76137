"""Many transitions at once, extra fields, an emptied buffer, and what a buffer says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from replay_soundness import check_storage

from frugalrl import FrugalFilter, RandomAdmit, ReplayBuffer

FILTERS: dict[str, Any] = {
    "all": lambda: None,
    "random": lambda: RandomAdmit(0.5),
    "fac": lambda: FrugalFilter(warmup_steps=100, bins=4),
    "filter": lambda: FrugalFilter(warmup_steps=100, bins=4, warmup="filter"),
}


def make(capacity: int | None = 500, admission: str = "all", **options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        capacity,
        observation_space=Box(-9.0, 9.0, (3,)),
        action_space=Box(-1.0, 1.0, (2,)),
        admission=FILTERS[admission](),
        **options,
    )


def episodes(steps: int) -> tuple[np.ndarray, ...]:
    """Steps of several episodes of one environment."""
    random = np.random.default_rng(0)
    states = random.standard_normal((steps + 1, 3)).cumsum(axis=0) * 0.1
    ends = np.arange(steps) % 60 == 59
    observations = np.where(np.append(False, ends[:-1])[:, None], 0.0, states[:-1])
    rewards = states[1:, 0].round(1)
    return observations, states[1:, :2] / 9.0, rewards, states[1:], ends, ~ends & (rewards > 2.0)


@pytest.mark.parametrize("limit", [{"capacity": 700}, {"capacity": None, "capacity_bytes": "40kB"}])
@pytest.mark.parametrize("admission", FILTERS)
def test_extending_decides_as_adding_one_by_one(admission: str, limit: dict[str, Any]) -> None:
    columns = episodes(2500)
    at_once, one_by_one = make(admission=admission, **limit), make(admission=admission, **limit)
    outcome = at_once.extend(*columns)
    expected = [one_by_one.add(*(column[i] for column in columns)) for i in range(2500)]
    if admission != "filter":  # which gives up earlier rows of the same block
        assert np.array_equal(outcome.codes, [one.codes[0] for one in expected])
        assert np.array_equal(outcome.slots, [one.slots[0] for one in expected])
    assert at_once.stats == one_by_one.stats
    assert len(at_once) == len(one_by_one)
    for one, other in zip(at_once.transitions(), one_by_one.transitions(), strict=True):
        assert np.array_equal(one, other)
    # Then one row again: the two have come to the same state, and the same states are shared.
    assert np.array_equal(at_once.sample(50).slots, one_by_one.sample(50).slots)
    held = [len(b._storage.states) - b._storage.free_states for b in (at_once, one_by_one)]
    assert held[0] == held[1]


@pytest.mark.parametrize("admission", FILTERS)
def test_extending_leaves_no_more_idle_than_adding_one_by_one(admission: str) -> None:
    columns = episodes(1500)
    at_once, one_by_one = make(2000, admission), make(2000, admission)
    at_once.extend(*columns)
    for i in range(1500):
        one_by_one.add(*(column[i] for column in columns))
    assert at_once.nbytes <= 1.05 * one_by_one.nbytes
    at_once.extend(*(column[:700] for column in columns))
    assert at_once.stats.offered == 2200
    check_storage(at_once._storage)


def test_extending_by_nothing_is_no_error() -> None:
    buffer = make()
    assert len(buffer.extend(*(column[:0] for column in episodes(3))).codes) == 0
    assert buffer.stats.offered == 0


def test_extending_wants_as_many_of_everything() -> None:
    columns = list(episodes(10))
    columns[2] = columns[2][:9]
    with pytest.raises(ValueError, match=r"as many rows of everything.*\(9,\)"):
        make().extend(*columns)
    with pytest.raises(ValueError, match="as many rows of everything"):
        make().extend(*(column[0] for column in episodes(2)))


@pytest.mark.parametrize("admission", FILTERS)
def test_a_cleared_buffer_begins_anew(admission: str) -> None:
    buffer = make(admission=admission, sampler="prioritized")
    empty = buffer.nbytes - buffer.admission.nbytes
    buffer.extend(*episodes(400))
    before = buffer.stats
    held = len(buffer)
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.stats.evicted == before.evicted + held
    assert buffer.nbytes - buffer.admission.nbytes == empty
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    outcome = buffer.extend(*episodes(50))
    assert outcome.slots.max() < 50
    assert len(buffer) == buffer.stats.stored - buffer.stats.evicted
    if isinstance(buffer.admission, FrugalFilter):
        assert buffer.admission.is_fitted
        assert np.array_equal(buffer.admission.slots_held(), buffer.slots())


FIELDS = [("discount", (), np.float32), ("hidden", (2, 2), "float16"), ("step", (), np.uint16)]


def test_extra_fields_are_drawn_and_saved_with_the_rest(tmp_path: Any) -> None:
    buffer = make(extra_fields=FIELDS, admission="random")
    columns, steps = episodes(300), np.arange(300)
    hidden = np.ones((300, 2, 2)) * steps[:, None, None]
    buffer.extend(*columns, discount=0.5**steps, hidden=hidden, step=steps)
    one = {"discount": 0.25, "hidden": np.zeros((2, 2)), "step": 7}
    while buffer.add(*(column[0] for column in columns), **one).codes[0] != 1:
        pass
    buffer.save(tmp_path / "buffer")
    for held in (buffer.transitions(), ReplayBuffer.load(tmp_path / "buffer").transitions()):
        assert {name: array.dtype.name for name, array in held.extra.items()} == {
            "discount": "float32", "hidden": "float16", "step": "uint16",
        }  # fmt: skip
        assert np.array_equal(held.rewards[:-1], columns[2][held.extra["step"][:-1]].astype("f4"))
        assert np.array_equal(held.extra["hidden"][:-1, 1, 1], held.extra["step"][:-1])
        assert held.extra["discount"][-1] == 0.25
    assert buffer.sample(5, batches=3).extra["hidden"].shape == (3, 5, 2, 2)
    assert buffer.extra_fields[0] == ("discount", (), np.dtype(np.float32))
    assert make().transitions().extra == {}


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ([("discount", ())], TypeError, "is not .name, shape, dtype."),
        ([("discount", (), "words")], TypeError, "is not .name, shape, dtype."),
        ([("discount", (0,), "f4")], TypeError, "is not .name, shape, dtype."),
        ([("discount", (), object)], ValueError, "use bool, an integer or a float type"),
        ([("rewards", (), "f4")], ValueError, "cannot be the name"),
        ([("two words", (), "f4")], ValueError, "cannot be the name"),
        ([("a", (), "f4"), ("a", (), "f4")], ValueError, "stands twice"),
        ([("a", (2**30,), "f4")], ValueError, "bytes; the most is"),
    ],
)
def test_wrong_fields_are_refused(fields: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(extra_fields=fields)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({}, TypeError, "discount= is missing"),
        ({"discont": 1.0}, TypeError, "did you mean 'discount'"),
        ({"discount": 1.0}, TypeError, "count= is missing"),
        ({"discount": "x", "count": 1}, TypeError, "discount has dtype"),
        ({"discount": [1.0, 2.0], "count": 1}, ValueError, "discount has shape"),
        ({"discount": 1.0, "count": 1.5}, TypeError, "float64; expected integers from -128 to 127"),
        ({"discount": 1.0, "count": 300}, ValueError, "count holds values from 300 to 300; exp"),
    ],
)
def test_wrong_values_of_fields_are_refused(given: Any, error: type[Exception], match: str) -> None:
    buffer = make(extra_fields=[("discount", (), "f4"), ("count", (), "i1")])
    with pytest.raises(error, match=match):
        buffer.add(*(column[0] for column in episodes(2)), **given)
    assert buffer.stats.offered == 0


def test_a_field_that_is_not_finite_refuses_its_row() -> None:
    buffer = make(extra_fields=[("discount", (), "f2")])
    with pytest.warns(RuntimeWarning, match="refused 2"):
        outcome = buffer.extend(*episodes(4), discount=[0.5, np.nan, 1e9, 0.25])
    assert outcome.codes.tolist() == [1, 3, 3, 1]
    assert buffer.transitions().extra["discount"].tolist() == [0.5, 0.25]


def test_a_buffer_says_what_it_is_in_one_line() -> None:
    buffer = make(admission="fac", sampler="prioritized", eviction="random")
    buffer.extend(*episodes(300))
    assert repr(buffer) == (
        f"ReplayBuffer({len(buffer)} of 500 transitions, 0.0 MB, admission=FrugalFilter, "
        "sampler='prioritized', eviction='random')"
    )
    assert "transitions, 0.0 of 1.0 MB" in repr(make(None, capacity_bytes="1MB"))
    assert len(repr(buffer.stats)) < 200
