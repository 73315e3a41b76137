"""What a buffer holds, on streams small enough to follow."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.bench import contents
from frugalrl.replay.buffer import ReplayBuffer


def stream(steps: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    observations = (rng.normal(size=(steps, 2)) * [3.0, 0.5]).astype(np.float32)
    return observations, rng.choice([0.0, 1.0, 5.0], size=steps).astype(np.float32)


def test_powers_of_two() -> None:
    assert contents.power_histogram(np.array([1, 1, 2, 3, 4, 7, 8])) == [2, 2, 2, 1]


def test_describe_counts_cells_and_equivalents() -> None:
    # One important dimension (the first), range [0, 1] cut into 2 cells by the given bounds.
    observations = np.array([[0.1, 0.0], [0.2, 0.0], [0.9, 0.0], [0.8, 0.0]])
    rewards = np.array([0.0, 0.1, 0.0, 1.0])
    bounds = ([0.0, 0.0], [1.0, 1.0])
    partition = contents.fit_partition(observations, rewards, None, bins=2, bounds=bounds)
    found = contents.describe_contents(
        observations, rewards, partition, 2, np.random.default_rng(0)
    )
    assert found["dimensions"] == [0]
    assert found["cells"] == 2
    assert found["rewards_a_cell"] == [0, 2]
    assert found["most_rewards_a_cell"] == 2
    # Rewards 0.0 and 0.1 share a bin of width 0.4; 0.0 and 1.0 do not.
    assert found["measures"]["surplus"] == 1
    assert found["observations"] == 2


@pytest.mark.parametrize("mode", ["replace", "discard"])
def test_replaying_a_stream_keeps_what_a_buffer_would(mode: str) -> None:
    observations, rewards = stream()
    space = Box(-np.inf, np.inf, (2,), np.float32)
    settings = {"on_equivalent": mode, "bins": 5}
    buffer = ReplayBuffer(
        1_000,
        observation_space=space,
        action_space=Box(-1, 1, (1,), np.float32),
        admission=FrugalFilter(warmup_steps=50, **settings),
    )
    # The action numbers the transition, so that what is kept can be named.
    for row, (state, reward) in enumerate(zip(observations, rewards, strict=True)):
        buffer.add(state, np.array([row / 1000], np.float32), reward, state, False, False)
    partition = contents.fit_partition(observations, rewards, space, warmup_steps=50, **settings)
    kept = contents.replay_through(partition, observations, rewards, 50)
    expected = np.sort(np.round(buffer.transitions().actions[:, 0] * 1000).astype(int))
    np.testing.assert_array_equal(kept, expected)
    assert len(kept) < len(rewards)


def test_the_map_counts_visited_and_kept_states() -> None:
    observations, _ = stream()
    kept = np.arange(0, 400, 4)
    found = contents.state_map(observations, kept, 100)
    assert found["dimensions"] == [0, 1]
    assert np.sum(found["visited"]) == 400
    assert np.sum(found["stored"]) == 100
    assert found["ranges"][0] == pytest.approx([observations[:, 0].min(), observations[:, 0].max()])


def test_the_map_of_a_single_dimension_that_never_moves() -> None:
    found = contents.state_map(np.ones((10, 1)), np.arange(10), 10)
    assert found["ranges"] == [[0.5, 1.5], [0.5, 1.5]]
    assert np.sum(found["visited"]) == 10
