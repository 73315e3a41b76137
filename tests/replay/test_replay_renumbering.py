"""Errors told after slots were renumbered reach the transitions they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import Batch, ReplayBuffer
from frugalrl.replay.renumbering import Renumbering
from frugalrl.replay.samplers import Prioritized

SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)


def make(capacity: int | None, admission: FrugalFilter, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        capacity,
        observation_space=SPACE,
        action_space=SPACE,
        admission=admission,
        sampler="prioritized",
        **options,
    )


def fill(buffer: ReplayBuffer, first: int, last: int, spread: float = 0.1) -> None:
    """Add transitions of which the reward tells which is which."""
    for i in range(first, last):
        rng = np.random.default_rng(i)
        state, next_state, action = rng.uniform(-1, 1, (3, 2))
        buffer.add(state, action, rng.uniform(0, spread), next_state, False, False)


def tell_errors(buffer: ReplayBuffer, batch: Batch) -> None:
    """Feed errors back by which the transition can be told, and check that they reached it."""
    buffer.feedback(batch.slots, batch.rewards + 2.0)
    sampler, held = buffer.sampler, buffer.transitions()
    assert isinstance(sampler, Prioritized)
    drawn = np.isin(held.rewards, batch.rewards)
    expected = (held.rewards[drawn] + 2.0 + sampler.epsilon) ** sampler.alpha
    assert sampler.priorities(held.slots[drawn]) == pytest.approx(expected)


def was_renumbered(buffer: ReplayBuffer) -> bool:
    return buffer._intake.renumbering._names is not None


def test_feedback_finds_its_transitions_after_a_filtered_warmup() -> None:
    buffer = make(200, FrugalFilter(warmup_steps=50, bins=2, warmup="filter"))
    fill(buffer, 0, 49)
    earlier, last = buffer.sample(40), buffer.sample(40)
    fill(buffer, 49, 50)
    assert was_renumbered(buffer)
    assert len(buffer) < 45
    assert last.slots.max() >= len(buffer), "a number that is out of range by now"
    tell_errors(buffer, last)
    tell_errors(buffer, earlier)
    with pytest.raises(ValueError, match="slots must lie from 0 to 49"):
        buffer.feedback([50], [1.0])


def test_feedback_finds_its_transitions_when_a_byte_limit_packs_anew() -> None:
    buffer = make(None, FrugalFilter(warmup_steps=50, bins=2), capacity_bytes="35kB")
    fill(buffer, 0, 60, spread=200.0)
    renumbered = 0
    for i in range(60, 1000):
        batch = buffer.sample(32)
        assert not was_renumbered(buffer), "a draw gives out the present numbers"
        fill(buffer, i, i + 1, spread=200.0)
        renumbered += was_renumbered(buffer)
        tell_errors(buffer, batch)
    assert renumbered > 0


def test_renumbering_follows_one_after_the_other() -> None:
    renumbering = Renumbering()
    renumbering.follow(np.array([1, 0, -1]))
    assert renumbering.known(7) == 7, "nothing was drawn, so nothing is remembered"
    renumbering.give_out()
    renumbering.follow(np.array([2, -1, 0, 1, -1]))
    renumbering.follow(np.array([-1, 1, 0, 2, -1]))
    assert renumbering.known(4) == 4
    slots, errors = renumbering.present(np.array([3, 1, 0, 2]), np.array([3.0, 1.0, 0.0, 2.0]))
    assert slots.tolist() == [1, 0]
    assert errors.tolist() == [3.0, 0.0]
    renumbering.give_out()
    assert renumbering.known(3) == 3
