"""Which states a filter keeps, on streams small enough to follow."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.bench import kept
from frugalrl.bench.runs import make_run
from frugalrl.bench.suites import load_suite
from frugalrl.bench.worker import describe_buffer, train_config
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.replay.contents import fit_partition


def stream(steps: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    observations = (rng.normal(size=(steps, 2)) * [3.0, 0.5]).astype(np.float32)
    return observations, rng.choice([0.0, 1.0, 5.0], size=steps).astype(np.float32)


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
    partition = fit_partition(observations, rewards, space, warmup_steps=50, **settings)
    rows = kept.replay_through(partition, observations, rewards, 50)
    expected = np.sort(np.round(buffer.transitions().actions[:, 0] * 1000).astype(int))
    np.testing.assert_array_equal(rows, expected)
    assert len(rows) < len(rewards)


def test_the_map_counts_visited_and_kept_states() -> None:
    observations, _ = stream()
    rows = np.arange(0, 400, 4)
    found = kept.state_map(observations, rows, 100)
    assert found["dimensions"] == [0, 1]
    assert np.sum(found["visited"]) == 400
    assert np.sum(found["stored"]) == 100
    assert found["ranges"][0] == pytest.approx([observations[:, 0].min(), observations[:, 0].max()])


def test_a_baseline_that_lost_its_beginning_has_a_map_of_the_rest() -> None:
    suite = load_suite("smoke")
    run = make_run(suite, suite.tasks[0], "baseline", seed=0)
    space = Box(-np.inf, np.inf, (3,), np.float32)
    buffer = ReplayBuffer(600, observation_space=space, action_space=Box(-1, 1, (1,), np.float32))
    rng = np.random.default_rng(0)
    for _ in range(900):
        state = rng.choice([-1.0, 1.0], size=3).astype(np.float32)
        buffer.add(state, np.zeros(1, np.float32), 0.0, state, False, False)
    final = {"buffer": {"evicted": buffer.stats.evicted}}
    found = describe_buffer(buffer, run, train_config(run, {}, None), final)
    assert np.sum(found["map"]["visited"]) == 600
    assert np.sum(found["map"]["stored"]) == 500  # a warm-up of 500; the rest is like it


def test_the_map_of_a_single_dimension_that_never_moves() -> None:
    found = kept.state_map(np.ones((10, 1)), np.arange(10), 10)
    assert found["ranges"] == [[0.5, 1.5], [0.5, 1.5]]
    assert np.sum(found["visited"]) == 10
