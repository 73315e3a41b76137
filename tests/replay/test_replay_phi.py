"""phi mirrors the buffer: rebuilt from what is stored, it gives the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import ReplayBuffer

SPACE = spaces.Box(-4.0, 4.0, (3,), np.float64)
ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)


def rebuilt(buffer: ReplayBuffer) -> FrugalFilter:
    """The same partition, emptied and filled again from the stored transitions, oldest first."""
    old = buffer.admission
    assert isinstance(old, FrugalFilter)
    fresh = FrugalFilter.from_state_dict(old.state_dict())
    held = buffer.transitions()
    for slot in held.slots:
        fresh.forget(int(slot))
    assert fresh.stored == 0
    assert fresh.cells == 0
    for observation, reward, slot in zip(held.observations, held.rewards, held.slots, strict=True):
        fresh.place(observation, float(reward), int(slot))
    return fresh


def check_mirror(buffer: ReplayBuffer, rng: np.random.Generator) -> None:
    """Masses, cells and counts agree."""
    old, new = buffer.admission, rebuilt(buffer)
    assert isinstance(old, FrugalFilter)
    assert old.stored == new.stored == len(buffer)
    assert old.cells == new.cells
    held = buffer.transitions()
    for i in rng.integers(0, len(buffer), 30):
        for reward in (held.rewards[i], held.rewards[i] + rng.normal()):
            one = old.reward_mass(held.observations[i], float(reward))
            assert one == pytest.approx(
                new.reward_mass(held.observations[i], float(reward)), abs=1e-9
            )


@pytest.mark.parametrize("limit", [{"capacity": 400}, {"capacity_bytes": 100_000}])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "options",
    [
        {"on_equivalent": "replace"},
        {"on_equivalent": "discard"},
        {"warmup": "filter"},
        {"kernel": "gaussian", "outside": "extend"},
        {"bins": 1, "reward_scale": "auto"},
    ],
)
def test_phi_mirrors_the_buffer_at_every_moment(
    options: dict[str, Any], dtype: str, limit: dict[str, int]
) -> None:
    admission = FrugalFilter(**({"warmup_steps": 150, "bins": 6} | options))
    buffer = ReplayBuffer(
        observation_space=SPACE,
        action_space=ACTION,
        admission=admission,
        dtype=dtype,
        environments=3,
        **limit,
    )
    rng = np.random.default_rng(0)
    state = rng.standard_normal((3, 3))
    for step in range(500):
        next_state = 0.9 * state + 0.6 * rng.standard_normal((3, 3))
        flags = rng.random((2, 3)) < 0.05
        reward = next_state[:, 0] * 2 + rng.standard_normal(3)
        buffer.add(state, next_state[:, :1], reward, next_state, *flags)
        state = next_state
        if step % 90 == 89:
            check_mirror(buffer, rng)
    check_mirror(buffer, rng)
    stats = buffer.stats
    assert stats.evicted + stats.replaced + stats.dropped > 0


@pytest.mark.pure_python
def test_the_end_of_a_filtered_warm_up_frees_slots_and_renumbers_none() -> None:
    admission = FrugalFilter(warmup_steps=100, bins=2, warmup="filter")
    buffer = ReplayBuffer(
        1000,
        observation_space=SPACE,
        action_space=ACTION,
        admission=admission,
        sampler="prioritized",
    )
    rng = np.random.default_rng(0)
    states = rng.uniform(-4, 4, (101, 3))
    for i in range(100):
        outcome = buffer.add(states[i], [0.0], rng.choice([0.0, 1.0]), states[i + 1], False, False)
        if i == 50:
            buffer.feedback(np.arange(51), np.arange(51.0))
    kept = len(buffer)
    assert 1 < kept < 60
    held = buffer.transitions()
    # Every row of the warm-up went into the slot of its number.
    rows = [int(np.flatnonzero((states.astype(np.float32) == o).all(axis=1))[0]) for o in
            held.observations]  # fmt: skip
    assert held.slots.tolist() == rows
    assert buffer.stats.stored == kept
    assert buffer.stats.dropped == 100 - kept
    if outcome.codes[0]:
        assert outcome.slots[0] == 99
    assert np.array_equal(buffer.slots(), np.sort(held.slots))
    # Each kept transition still has the neighbour state it was added with.
    for observation, following in zip(held.observations, held.next_observations, strict=True):
        (i,) = np.flatnonzero((states.astype(np.float32) == observation).all(axis=1))
        assert np.array_equal(states[i + 1].astype(np.float32), following)
    check_mirror(buffer, rng)
    assert set(buffer.sample(500).slots.tolist()) <= set(rows)
    free = sorted(set(range(100)) - set(rows))
    for slot in free:  # freed slots are used again
        rewards = 5.0 + rng.random()
        outcome = buffer.add(states[0], [0.0], rewards, states[1], False, False)
        if outcome.codes[0] == 1:
            assert outcome.slots[0] == slot
            break
    else:
        raise AssertionError("nothing was stored")
