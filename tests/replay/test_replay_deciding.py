"""Frugal's decision within one compiled call gives what the way step by step gives, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from frugalrl import FrugalFilter, ReplayBuffer


class StepByStep(FrugalFilter):
    """The same filter, which the buffer does not know and so asks by the protocol."""


def make_buffer(kind: type[FrugalFilter], environments: int, **settings: Any) -> ReplayBuffer:
    """A buffer whose filter has a short warm-up."""
    chosen = {"warmup_steps": 20, "bins": 3, "density_threshold": 0.5} | settings.pop("fac", {})
    return ReplayBuffer(
        **({"capacity": 10_000, "seed": 3} | settings),
        observation_space=Box(-2, 2, (3,), np.float32),
        action_space=Box(-1, 1, (2,), np.float32),
        admission=kind(**chosen),
        environments=environments,
    )


def steps(environments: int, count: int, seed: int, bad: float) -> list[tuple[Any, ...]]:
    """Consecutive transitions of some environments, a share of whose rewards is NaN."""
    generator = np.random.Generator(np.random.PCG64(seed))
    states = generator.uniform(-1, 1, (environments, 3)).astype(np.float32)
    made = []
    for _ in range(count):
        following = generator.uniform(-1, 1, (environments, 3)).astype(np.float32)
        rewards = generator.normal(size=environments).round(1)
        rewards[generator.random(environments) < bad] = np.nan
        ended = generator.random(environments) < 0.1
        actions = generator.uniform(-1, 1, (environments, 2)).astype(np.float32)
        made.append((states, actions, rewards, following, ended, np.zeros_like(ended)))
        reset = generator.uniform(-1, 1, (environments, 3)).astype(np.float32)
        states = np.where(ended[:, None], reset, following)
    return made


@pytest.mark.filterwarnings("ignore:refused")
@pytest.mark.parametrize("environments", [1, 4])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sampler": "prioritized"},
        {"capacity": 60},
        {"fac": {"on_equivalent": "discard"}},
        {"fac": {"warmup": "filter"}},
        {"fac": {"bins": 1, "density_threshold": 5.0}},  # crowded: rings become trees
        {"capacity": None, "capacity_bytes": "1MB"},
    ],
    ids=str,
)
def test_same_as_step_by_step(environments: int, settings: dict[str, Any]) -> None:
    quick = make_buffer(FrugalFilter, environments, **settings)
    slow = make_buffer(StepByStep, environments, **settings)
    for step in steps(environments, 300, 5, bad=0.02):
        fast, reference = quick.add(*step), slow.add(*step)
        np.testing.assert_array_equal(fast.codes, reference.codes)
        np.testing.assert_array_equal(fast.slots, reference.slots)
    assert quick.stats == slow.stats
    assert quick.stats.stored < quick.stats.offered
    for ours, theirs in zip(quick.transitions(), slow.transitions(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(quick.sample(32).rewards, slow.sample(32).rewards)


def test_other_types_and_numbers_of_rows_in_between() -> None:
    quick, slow = (make_buffer(kind, 2) for kind in (FrugalFilter, StepByStep))
    for i, step in enumerate(steps(2, 120, 8, bad=0.0)):
        if i % 10 == 7:
            step = tuple(column.tolist() for column in step)
        elif i % 10 == 8:
            step = tuple(column[:1] for column in step)
        elif i % 10 == 9:
            step = tuple(
                column.astype(np.float64) if j < 4 else column for j, column in enumerate(step)
            )
        np.testing.assert_array_equal(quick.add(*step).slots, slow.add(*step).slots)
    with pytest.raises(ValueError, match="rewards"):
        quick.add(*step[:2], np.zeros(5), *step[3:])
    assert quick.stats == slow.stats


def test_a_loaded_buffer_goes_on_identically(tmp_path: Any) -> None:
    stream = steps(1, 200, 9, bad=0.0)
    whole = make_buffer(FrugalFilter, 1)
    for step in stream[:120]:
        whole.add(*step)
    whole.save(tmp_path / "buffer")
    loaded = ReplayBuffer.load(tmp_path / "buffer")
    for step in stream[120:]:
        np.testing.assert_array_equal(whole.add(*step).slots, loaded.add(*step).slots)


@pytest.mark.filterwarnings("ignore:refused")
@pytest.mark.parametrize("environments", [1, 4])
@pytest.mark.parametrize("kind", [FrugalFilter, StepByStep])
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_filter_and_storage_agree_when_a_warmup_ends_in_a_full_buffer(
    environments: int, kind: type[FrugalFilter], sampler: str
) -> None:
    """The last row of the warm-up has no free slot, so the filter tells what it keeps later."""
    fac = {"warmup_steps": 50, "warmup": "filter", "bins": 1, "density_threshold": 0.2}
    buffer = make_buffer(kind, environments, capacity=20, sampler=sampler, fac=fac)
    fewest = 20
    for step in steps(environments, 60, 5, bad=0.05):
        outcome = buffer.add(*step)
        assert len(buffer) == buffer.admission.stored
        if buffer.admission.is_fitted:
            fewest = min(fewest, len(buffer))
            assert len(buffer.sample(8).rewards) == 8
        # A later row of the same call may have pushed an earlier one out again.
        if environments == 1 and outcome.slots[0] >= 0:
            assert buffer.gather(outcome.slots).rewards[0] == np.float32(step[2][0])
    stats = buffer.stats
    assert stats.stored - stats.evicted == len(buffer)
    assert fewest < 20, "the end of the warm-up left something out"


def test_a_fault_after_the_first_decision_is_not_taken_for_an_unknown_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows before are in the filter already: offering them again would count them twice."""
    buffer = make_buffer(FrugalFilter, 2)
    stream = steps(2, 40, 5, bad=0.0)
    for step in stream[:-1]:
        buffer.add(*step)
    answers = iter([(1, 1, 1, 0)])

    def stop_after_one_row(*_: Any) -> tuple[int, int, int, int]:
        for answer in answers:
            return answer
        raise TypeError("a fault")

    monkeypatch.setattr("frugalrl.replay.intake.add_decided_rows", stop_after_one_row)
    monkeypatch.setattr(buffer.admission, "grow", lambda *_: ())
    with pytest.raises(TypeError, match="a fault"):
        buffer.add(*stream[-1])
