"""Bad input is an error that says what would work, or a counted refusal; the state stays whole."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.controls import AdmitAll, RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import DROP, REPLACE, STORE, Decisions
from frugalrl.replay.buffer import ReplayBuffer, _bytes_from
from frugalrl.replay.results import REFUSED
from frugalrl.replay.samplers import LargeBatch, Prioritized

SPACE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)


def make(**options: Any) -> ReplayBuffer:
    settings: dict[str, Any] = {
        "capacity": 50,
        "observation_space": SPACE,
        "action_space": ACTION,
    }
    return ReplayBuffer(**(settings | options))


def rows(count: int = 2, **changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "observations": np.arange(2.0 * count).reshape(count, 2),
        "actions": np.zeros((count, 1), np.float32),
        "rewards": np.arange(float(count)),
        "next_observations": np.arange(2.0 * count).reshape(count, 2) + 0.5,
        "terminated": np.zeros(count, bool),
        "truncated": np.zeros(count, bool),
    }
    return good | changes


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"capacity": 0}, ValueError, "capacity=0 is out of range; use an integer from 1"),
        ({"capacity": -3}, ValueError, "capacity=-3"),
        ({"capacity": 2.5}, TypeError, "capacity=2.5 is no integer"),
        ({"capacity": True}, TypeError, "capacity=True is no integer"),
        ({"capacity": 2**40}, ValueError, "use at most"),
        ({"capacity": None}, ValueError, "capacity_bytes"),
        ({"capacity_bytes": "many"}, ValueError, "capacity_bytes='many' is no size; write it as"),
        ({"capacity_bytes": "3XB"}, ValueError, "no size"),
        ({"capacity_bytes": 0}, ValueError, "capacity_bytes=0"),
        ({"capacity_bytes": 1.5}, TypeError, "capacity_bytes=1.5"),
        ({"dtype": "float23"}, ValueError, "dtype='float23' is unknown; did you mean 'float32'"),
        ({"dtype": np.float64}, ValueError, "dtype"),
        ({"sampler": "prioritised"}, ValueError, "did you mean 'prioritized'"),
        ({"sampler": 3}, TypeError, "sampler=3 is no sampler"),
        ({"admission": "fac"}, TypeError, "admission='fac' is no filter"),
        ({"sampler": Prioritized}, TypeError, r"sampler=Prioritized is a class.*Prioritized\(\)"),
        ({"admission": FrugalFilter}, TypeError, "admission=FrugalFilter is a class; use an"),
        ({"environments": 0}, ValueError, "environments=0"),
        ({"seed": -1}, ValueError, "seed=-1"),
        ({"observation_space": spaces.Discrete(3)}, TypeError, "FlattenObservation"),
        ({"observation_space": spaces.MultiDiscrete([3])}, TypeError, "not supported"),
        ({"observation_space": spaces.Dict({"a": SPACE})}, TypeError, "not supported"),
        ({"observation_space": spaces.Tuple([SPACE])}, TypeError, "not supported"),
        ({"observation_space": spaces.Box(0, 255, (8, 8, 3), np.uint8)}, TypeError, "images"),
        ({"observation_space": spaces.Box(0, 1, (0,))}, ValueError, "holds no numbers"),
        ({"observation_space": None}, TypeError, "observation_space=None"),
        ({"action_space": spaces.Box(0, 1, (0,))}, ValueError, "holds no numbers"),
        ({"action_space": spaces.Dict({"a": ACTION})}, TypeError, "action_space=.*Discrete"),
        ({"action_space": spaces.Box(0, 2**63, (1,), np.uint64)}, TypeError, "not supported"),
    ],
)
def test_wrong_settings_are_refused_at_once(
    options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(**options)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"observations": np.zeros((2, 3))}, ValueError, r"observations has shape \(2, 3\)"),
        ({"observations": np.zeros(5)}, ValueError, "for one transition"),
        ({"observations": 3.0}, ValueError, "observations has shape"),
        ({"next_observations": np.zeros((1, 2))}, ValueError, "next_observations has shape"),
        ({"actions": np.zeros(2)}, ValueError, r"actions has shape \(2,\); expected \(2, 1\)"),
        ({"rewards": np.zeros((2, 1))}, ValueError, "rewards has shape"),
        ({"rewards": 1.0}, ValueError, "rewards has shape"),
        ({"terminated": False}, ValueError, "terminated has shape"),
        ({"truncated": np.zeros(3, bool)}, ValueError, "truncated has shape"),
        ({"truncated": np.zeros(2)}, TypeError, "truncated has dtype float64; expected booleans"),
        (
            {"terminated": np.array([0, 2])},
            ValueError,
            "terminated holds values from 0 to 2; expected booleans",
        ),
        ({"observations": np.full((2, 2), "x")}, TypeError, "observations has dtype"),
        ({"actions": np.full((2, 1), 1j)}, TypeError, "actions has dtype complex"),
        ({"rewards": np.array([None, 1.0])}, TypeError, "rewards has dtype object"),
    ],
)
def test_wrong_rows_are_refused_and_nothing_is_stored(
    changes: dict[str, Any], error: type[Exception], match: str
) -> None:
    buffer = make()
    buffer.add(**rows())
    before = buffer.stats
    with pytest.raises(error, match=match):
        buffer.add(**rows(**changes))
    assert buffer.stats == before
    assert buffer.transitions().rewards.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (np.array([0, 4]), ValueError),
        (np.array([-1, 0]), ValueError),
        (np.array([0.0, 1.0]), TypeError),
        (np.array([[0], [1]]), ValueError),
    ],
)
def test_discrete_actions_are_checked(actions: Any, error: type[Exception]) -> None:
    buffer = make(action_space=spaces.Discrete(4))
    with pytest.raises(error, match="actions"):
        buffer.add(**rows(actions=actions))
    buffer.add(**rows(actions=np.array([0, 3])))
    with pytest.raises(error, match="actions"):  # also after others that could be taken
        buffer.add(**rows(actions=actions))
    assert buffer.transitions().actions.tolist() == [0, 3]


def test_flags_as_integers_are_checked_each_time() -> None:
    buffer = make()
    buffer.add(**rows(terminated=np.array([0, 1])))
    with pytest.raises(ValueError, match="terminated holds values from 0 to 7"):
        buffer.add(**rows(terminated=np.array([0, 7])))
    assert buffer.transitions().terminated.tolist() == [False, True]


@pytest.mark.pure_python
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("admission", [AdmitAll, lambda: RandomAdmit(1.0)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "next_observations"])
def test_what_is_not_finite_is_refused_counted_and_warned_of_once(
    name: str, value: float, admission: Any, dtype: str
) -> None:
    buffer = make(admission=admission(), dtype=dtype)
    bad = rows(3)
    bad["actions"] = bad["actions"].astype(np.float64)
    bad[name][1] = value
    with pytest.warns(RuntimeWarning, match=r"refused 1 transition.*row 1.*rejected_nonfinite"):
        outcome = buffer.add(**bad)
    assert outcome.codes.tolist() == [STORE, REFUSED, STORE]
    assert outcome.slots.tolist() == [0, -1, 1]
    assert (outcome.stored, outcome.refused, outcome.dropped, outcome.replaced) == (2, 1, 0, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What compiled code does silently, the same code says aloud when Numba is off.
        warnings.filterwarnings("ignore", "overflow encountered in cast")
        buffer.add(**bad)
    assert buffer.stats.rejected_nonfinite == 2
    assert buffer.stats.offered == 6
    assert np.isfinite(buffer.transitions().observations).all()
    assert len(buffer) == 4


class Lenient(FrugalFilter):
    """Decides like its parent, but is not taken for it: the buffer goes the long way."""


@pytest.mark.parametrize("kind", [None, RandomAdmit, FrugalFilter, Lenient])
@pytest.mark.parametrize("before", [0, 1, 9])
def test_the_warning_points_at_the_callers_line(kind: Any, before: int) -> None:
    options = {"warmup_steps": 5} if kind in (FrugalFilter, Lenient) else {}
    buffer = make(admission=kind(**options) if kind else None)
    for _ in range(before):
        buffer.add(**rows())
    with pytest.warns(RuntimeWarning, match="refused 1") as caught:
        buffer.add(**rows(rewards=np.array([0.0, np.nan])))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", [None, FrugalFilter])
def test_a_warning_raised_as_an_error_leaves_everything_counted(kind: Any) -> None:
    buffer = make(admission=kind(warmup_steps=5) if kind else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="first in row 1"):
            buffer.add(**rows(rewards=np.array([3.0, np.nan])))
        buffer.add(**rows(rewards=np.array([np.nan, 4.0])))
    stats = buffer.stats
    assert (stats.offered, stats.stored, stats.rejected_nonfinite) == (4, 2, 2)
    assert buffer.transitions().rewards.tolist() == [3.0, 4.0]


def test_large_values_fit_float32_but_not_float16() -> None:
    large = rows(1, observations=np.array([[1e30, -1e30]]), rewards=np.array([1e30]))
    buffer = make()
    buffer.add(**large)
    assert buffer.transitions().observations.tolist() == [[np.float32(1e30), np.float32(-1e30)]]
    with pytest.warns(RuntimeWarning, match="beyond 65504"):
        make(dtype="float16").add(**large)


def test_sampling_needs_something_to_sample() -> None:
    buffer = make()
    with pytest.raises(ValueError, match="buffer is empty"):
        buffer.sample(4)
    buffer.add(**rows())
    for size in (0, -1):
        with pytest.raises(ValueError, match="batch_size="):
            buffer.sample(size)
    with pytest.raises(TypeError, match=r"batch_size=1\.5"):
        buffer.sample(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batches=0"):
        buffer.sample(4, batches=0)
    assert len(buffer.sample(np.int64(7)).rewards) == 7  # type: ignore[arg-type]


def test_feedback_is_checked() -> None:
    buffer = make(sampler="prioritized")
    buffer.add(**rows())
    with pytest.raises(ValueError, match="1 values for 2 slots"):
        buffer.feedback([0, 1], [1.0])
    with pytest.raises(ValueError, match=f"slots must lie from 0 to {buffer.capacity - 1}"):
        buffer.feedback([0, buffer.capacity], [1.0, 1.0])
    with pytest.raises(ValueError, match="NaN or infinity"):
        buffer.feedback([0, 1], [1.0, np.nan])
    for slots in ([0.5, 1.0], [True, False], ["0", "1"]):
        with pytest.raises(TypeError, match=r"slots has dtype .*; expected integers"):
            buffer.feedback(slots, [1.0, 1.0])
    buffer.feedback([], [])
    assert buffer.sample(3).weights.tolist() == [1.0] * 3


def test_feedback_about_what_was_cleared_is_passed_over() -> None:
    buffer = make(sampler="prioritized")
    buffer.add(**rows())
    buffer.clear()
    buffer.feedback([0, 1], [1.0, 1.0])
    buffer.add(**rows())
    assert sorted(set(buffer.sample(64).slots.tolist())) == [0, 1]


def test_small_numbers_are_no_error_where_numpy_is_told_to_raise() -> None:
    for dtype in ("float32", "float16"):
        buffer = make(dtype=dtype)
        with np.errstate(all="raise"):
            buffer.add(**rows(observations=np.full((2, 2), 1e-46)))
        assert buffer.transitions().observations.tolist() == [[0.0, 0.0]] * 2


def test_booleans_fit_the_largest_integers() -> None:
    buffer = make(extra_fields=[("mark", (), np.uint64)])
    buffer.add(**rows(), mark=np.array([True, False]))
    assert buffer.transitions().extra["mark"].tolist() == [1, 0]


def test_what_is_gathered_is_the_callers_own() -> None:
    buffer = make()
    buffer.add(**rows())
    slots = np.array([1, 0])
    assert not np.shares_memory(buffer.gather(slots).slots, slots)


class Keeps(AdmitAll):
    """Admits a state that is none of those it has kept."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        state = observations[0]
        is_new = not any(np.array_equal(state, other) for other in self.kept)
        self.kept.append(state)
        slot = free[:1] if is_new else np.array([-1])
        return Decisions(np.array([STORE if is_new else DROP]), slot)


def test_filters_may_keep_what_they_are_shown() -> None:
    buffer = make(admission=Keeps())
    for state in (0.0, 1.0, 2.0, 1.0):
        buffer.add(**rows(1, observations=np.full((1, 2), state)))
    assert len(buffer) == 3


@pytest.mark.parametrize("slot", [-1, 2, 7, 49, 50, 10**9])
def test_slots_that_were_never_used_hold_nothing(slot: int) -> None:
    buffer = make()
    buffer.add(**rows())
    assert buffer.gather([1, 0]).rewards.tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match=f"slot {slot} holds no transition"):
        buffer.gather([0, slot])


def test_slots_to_gather_are_checked() -> None:
    buffer = make()
    assert len(buffer.gather([]).rewards) == 0
    buffer.add(**rows())
    with pytest.raises(ValueError, match=r"slots has shape \(1, 2\); expected \(n,\)"):
        buffer.gather([[0, 1]])
    with pytest.raises(TypeError, match="slots has dtype float64; expected integers"):
        buffer.gather([0.9])
    assert buffer.gather(np.array([1], np.uint8)).slots.tolist() == [1]


@pytest.mark.parametrize(
    ("sampler", "options", "error"),
    [
        (Prioritized, {"alpha": -1.0}, ValueError),
        (Prioritized, {"beta": np.nan}, ValueError),
        (Prioritized, {"beta": "x"}, TypeError),
        (Prioritized, {"beta_final": None}, TypeError),
        (Prioritized, {"epsilon": 0.0}, ValueError),
        (Prioritized, {"epsilon": np.inf}, ValueError),
        (Prioritized, {"anneal_steps": 0}, ValueError),
        (Prioritized, {"anneal_steps": 1.5}, TypeError),
        (LargeBatch, {"multiple": 0}, ValueError),
        (LargeBatch, {"multiple": 1.5}, TypeError),
    ],
)
def test_samplers_check_their_settings(
    sampler: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    ((name, value),) = options.items()
    with pytest.raises(error, match=f"{name}={value!r}"):
        sampler(**options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MB", 512_000_000),
        ("1e6", 1_000_000),
        ("2GiB", 2 * 1024**3),
        ("1.5 kb", 1500),
        ("100", 100),
        ("7B", 7),
        (99, 99),
        ("1TiB", 1024**4),
    ],
)
def test_sizes_are_read(text: Any, expected: int) -> None:
    assert _bytes_from(text) == expected


@pytest.mark.pure_python
def test_inputs_of_many_kinds_are_taken() -> None:
    """Lists, other float types, integers, strided views, single transitions."""
    buffer = make(observation_space=spaces.Box(-9, 9, (2, 3), np.float64))
    wide = np.arange(24.0).reshape(2, 2, 6)
    outcome = buffer.add(
        wide[:, :, ::2], [[0.5], [1]], [1, 2], wide[:, :, 1::2].astype(np.float32), [0, 1], [1, 0]
    )
    assert outcome.slots.tolist() == [0, 1]
    buffer.add(np.ones((2, 3), int), [0.25], 3, np.zeros((2, 3), np.float16), False, np.True_)
    held = buffer.transitions()
    assert held.observations.shape == (3, 2, 3)
    assert np.array_equal(held.observations[:2], wide[:, :, ::2])
    assert np.array_equal(held.next_observations[:2], wide[:, :, 1::2])
    assert held.actions.tolist() == [[0.5], [1.0], [0.25]]
    assert held.rewards.tolist() == [1.0, 2.0, 3.0]
    assert held.terminated.tolist() == [False, True, False]
    assert held.truncated.tolist() == [True, False, True]


def test_no_rows_are_no_error() -> None:
    buffer = make()
    outcome = buffer.add(**rows(0))
    assert len(outcome.codes) == 0
    assert buffer.stats.offered == 0
    assert buffer.stats.acceptance_rate == 0.0


def test_constant_rows_are_stored() -> None:
    buffer = make()
    same = rows(1, next_observations=rows(1)["observations"])
    for _ in range(60):
        buffer.add(**same)
    assert len(buffer) == 50
    assert (buffer.transitions().observations == [0.0, 1.0]).all()


class Wrong(AdmitAll):
    """Decides what cannot be carried out."""

    def __init__(self, codes: list[int], slots: list[int], released: Any = None) -> None:
        where = np.array(slots, np.int64)
        self.answer = Decisions(np.array(codes, np.int8), where, released=released)

    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        return self.answer


@pytest.mark.pure_python
@pytest.mark.parametrize(
    ("codes", "slots", "released", "match"),
    [
        ([STORE], [3], None, "next free slot"),
        ([REPLACE], [0], None, "holds nothing"),
        ([REPLACE], [-1], None, "holds nothing"),
        ([9], [0], None, "is not DROP, STORE or REPLACE"),
        ([], [], None, "0 codes and 0 slots where 2 rows are left"),
        ([DROP] * 3, [-1] * 3, None, "2 rows are left"),
        ([DROP], [], None, "0 slots"),
        ([STORE, STORE], [0, 1], np.array([0, 7]), "gives up slots from 0 to 7"),
        ([STORE, STORE], [0, 1], np.array([-1]), "gives up slots from -1 to -1"),
    ],
)
def test_impossible_decisions_of_a_filter_are_errors(
    codes: list[int], slots: list[int], released: Any, match: str
) -> None:
    buffer = make(admission=Wrong(codes, slots, released))
    with pytest.raises(RuntimeError, match=match):
        buffer.add(**rows(2))
    with pytest.raises(RuntimeError, match=match):  # what cannot be finished is not passed over
        buffer.add(**rows(2))
