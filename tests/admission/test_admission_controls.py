"""AdmitAll and RandomAdmit, and the conformance check on ours and on broken filters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import frugalrl
from frugalrl.admission.protocol import DROP, REPLACE, STORE, Decisions


def offer(f: Any, rows: int, free: list[int]) -> Decisions:
    return f.offer(np.zeros((rows, 2)), np.zeros(rows), np.array(free, dtype=np.int64))


def test_admit_all_stores_until_slots_run_out() -> None:
    decisions = offer(frugalrl.AdmitAll(), 4, [5, 9])
    assert decisions.codes.tolist() == [STORE, STORE, STORE]
    assert decisions.slots.tolist() == [5, 9, -1]


def test_random_admit_keeps_its_rate_and_its_seed() -> None:
    slots = list(range(5000))
    first = offer(frugalrl.RandomAdmit(rate=0.4, seed=3), 5000, slots)
    again = offer(frugalrl.RandomAdmit(rate=0.4, seed=3), 5000, slots)
    other = offer(frugalrl.RandomAdmit(rate=0.4, seed=4), 5000, slots)
    assert first.codes.tolist() == again.codes.tolist() != other.codes.tolist()
    assert np.mean(first.codes == STORE) == pytest.approx(0.4, abs=0.03)
    assert first.codes[0] == STORE


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.5, float("nan")])
def test_random_admit_refuses_no_probability(rate: float) -> None:
    with pytest.raises(ValueError, match="rate="):
        frugalrl.RandomAdmit(rate=rate)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"rate": "x"}, "rate='x' is no number; use 0 < rate <= 1"),
        ({"rate": True}, "rate=True is no number; use 0 < rate <= 1"),
        ({"seed": 1.5}, "seed=1.5 is no integer; use one from 0"),
        ({"seed": -1}, "seed=-1 is out of range; use an integer from 0"),
    ],
)
def test_random_admit_names_bad_arguments(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        frugalrl.RandomAdmit(**arguments)


def test_random_admit_takes_numpy_numbers() -> None:
    f = frugalrl.RandomAdmit(rate=np.float32(0.5), seed=np.int64(3))
    assert json.dumps(f.state_dict())
    assert repr(f) == "RandomAdmit(rate=0.5, seed=3)"


@pytest.mark.parametrize(
    "make",
    [
        frugalrl.AdmitAll,
        lambda: frugalrl.RandomAdmit(rate=0.3, seed=1),
        lambda: frugalrl.FrugalFilter(warmup_steps=50),
        lambda: frugalrl.FrugalFilter.paper(warmup_steps=50),
        lambda: frugalrl.FrugalFilter(warmup_steps=200, warmup="filter"),
        # Longer than the buffer holds, so that the end of the warm-up finds it full.
        lambda: frugalrl.FrugalFilter(warmup_steps=156, warmup="filter", bins=1),
        lambda: frugalrl.FrugalFilter(
            warmup_steps=100, warmup="filter", on_equivalent="discard", outside="extend"
        ),
        lambda: frugalrl.FrugalFilter(warmup_steps=80, kernel="gaussian", reward_scale="auto"),
    ],
)
def test_our_filters_conform(make: Any) -> None:
    frugalrl.check_filter(make)
    assert make().nbytes >= 0


class _Broken(frugalrl.AdmitAll):
    """Departs from the contract in a way that a subclass chooses."""


class _WrongSlots(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        made = super().offer(observations, rewards, free)
        return made._replace(slots=made.slots + 1)


class _ReplacesNothing(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        return Decisions(np.full(len(rewards), REPLACE, np.int8), np.zeros(len(rewards), np.int64))


class _StoresNothing(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        return Decisions(np.full(len(rewards), DROP, np.int8), np.full(len(rewards), -1))


class _UnknownCode(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        return Decisions(np.full(len(rewards), 9, np.int8), np.full(len(rewards), -1))


class _Forgetful(frugalrl.RandomAdmit):
    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Any:
        return cls(rate=state["rate"], seed=state["seed"])


class _UnsaveableState(_Broken):
    def state_dict(self) -> dict[str, Any]:
        return {"anything": object()}


class _DependsOnBatches(frugalrl.RandomAdmit):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        wanted = self._generator.random() < 0.5 or not self._anything_offered
        self._anything_offered = True
        if wanted:
            return frugalrl.AdmitAll().offer(observations, rewards, free)
        return Decisions(np.full(len(rewards), DROP, np.int8), np.full(len(rewards), -1))


class _WritesObservations(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        observations[...] = 0.0
        return super().offer(observations, rewards, free)


class _WritesRewards(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        rewards *= 0.1
        return super().offer(observations, rewards, free)


class _WritesWhenPlaced(_Broken):
    def place(self, observation: Any, reward: float, slot: int) -> None:
        observation.sort()


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (_WrongSlots, "free slots in order"),
        (_ReplacesNothing, "holds nothing"),
        (_StoresNothing, "nothing was ever stored"),
        (_UnknownCode, "DROP, STORE or REPLACE"),
        (_Forgetful, "a copy made by state_dict"),
        (_UnsaveableState, "is a object"),
        (_DependsOnBatches, "decided otherwise"),
        (_WritesObservations, "offer writes into the arrays it is given"),
        (_WritesRewards, "offer writes into the arrays it is given"),
        (_WritesWhenPlaced, "place writes into the arrays it is given"),
        (dict, "lacks a part of the protocol"),
    ],
)
def test_broken_filters_are_found_out(broken: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        frugalrl.check_filter(broken)


class _Fails(_Broken):
    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        raise ValueError("a mistake of its own")


def test_a_filters_own_errors_are_shown_as_they_are() -> None:
    with pytest.raises(ValueError, match="a mistake of its own"):
        frugalrl.check_filter(_Fails)
