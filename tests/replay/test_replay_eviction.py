"""Which transition goes when the buffer is full."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

import frugalrl
from frugalrl.replay.storage import RUN_LENGTH

CAPACITY, STEPS = 400, 4_000


def filled(eviction: str, split: int | None = None, **settings: object) -> frugalrl.ReplayBuffer:
    """Add `STEPS` transitions whose reward is their number, saved and loaded before one of them."""
    buffer = frugalrl.ReplayBuffer(
        CAPACITY,
        observation_space=Box(-1.0, 1.0, (2,)),
        action_space=Box(-1.0, 1.0, (1,)),
        eviction=eviction,
        **settings,
    )
    states = np.random.default_rng(0).uniform(-1.0, 1.0, (STEPS + 1, 2)).astype(np.float32)
    for i in range(STEPS):
        if i == split:
            buffer = frugalrl.ReplayBuffer.from_state_dict(buffer.state_dict())
        buffer.add(states[i], np.zeros(1), float(i), states[i + 1], False, False)
    return buffer


def test_random_eviction_keeps_old_and_new() -> None:
    held = filled("random").transitions().rewards
    assert len(held) == CAPACITY
    assert held[-1] == STEPS - 1
    # Ages are geometric with mean CAPACITY: about one in e**2 is older than twice that.
    old = np.count_nonzero(held < STEPS - 2 * CAPACITY)
    assert 1 <= old <= CAPACITY // 3


def test_random_eviction_takes_runs_of_neighbours() -> None:
    held = filled("random").transitions().rewards.astype(int)
    gone = np.setdiff1d(np.arange(STEPS), held)
    runs = np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1)
    # The steps are whole runs; where two of them met they are one gap.
    assert all(len(run) % RUN_LENGTH == 0 for run in runs)
    assert len(runs) > 5


def test_random_eviction_shares_states_nearly_as_well_as_the_ring() -> None:
    states = {
        eviction: len(filled(eviction).state_dict()["storage"]["observations"])
        for eviction in ("oldest", "random")
    }
    assert states["oldest"] == CAPACITY + 1
    assert states["random"] <= 1.05 * states["oldest"]


def test_oldest_is_the_default() -> None:
    expected = np.arange(STEPS - CAPACITY, STEPS)
    np.testing.assert_array_equal(filled("oldest").transitions().rewards, expected)


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("frugal", [False, True])
def test_random_eviction_resumes_exactly(sampler: str, frugal: bool) -> None:
    def run(split: int | None) -> frugalrl.ReplayBuffer:
        admission = frugalrl.FrugalFilter(warmup_steps=30, half_width=0.4) if frugal else None
        return filled("random", split, sampler=sampler, admission=admission)

    whole, resumed = run(None), run(STEPS // 2)
    np.testing.assert_array_equal(whole.transitions().rewards, resumed.transitions().rewards)
    np.testing.assert_array_equal(whole.sample(32).slots, resumed.sample(32).slots)


def test_unknown_eviction_is_refused() -> None:
    with pytest.raises(ValueError, match="eviction='newest' is unknown"):
        filled("newest")
