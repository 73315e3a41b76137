"""What a buffer holds, on buffers small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.agents import make_agent
from frugalrl.agents.settings import AgentSettings
from frugalrl.bench import contents
from frugalrl.bench.runs import make_run
from frugalrl.bench.suites import load_suite
from frugalrl.bench.worker import describe_buffer, train_config
from frugalrl.replay.buffer import ReplayBuffer

SPACE = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = Box(-1, 1, (1,), np.float32)


def filled(states: np.ndarray, rewards: np.ndarray, capacity: int = 1_000) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, observation_space=SPACE, action_space=ACTIONS)
    for state, reward in zip(states.astype(np.float32), rewards, strict=True):
        buffer.add(state, np.zeros(1, np.float32), reward, state, False, False)
    return buffer


def test_powers_of_two() -> None:
    assert contents.power_histogram(np.array([1, 1, 2, 3, 4, 7, 8])) == [2, 2, 2, 1]


def test_describe_counts_cells_and_equivalents() -> None:
    # One important dimension (the first), range [0, 1] cut into 2 cells by the given bounds.
    observations = np.array([[0.1, 0.0], [0.2, 0.0], [0.9, 0.0], [0.8, 0.0]])
    rewards = np.array([0.0, 0.1, 0.0, 1.0])
    bounds = ([0.0, 0.0], [1.0, 1.0])
    partition = FrugalFilter(warmup_steps=4, bins=2, bounds=bounds)
    partition.begin(None)
    partition.offer(observations, rewards, np.arange(4))
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


def test_the_map_counts_visited_and_stored_states() -> None:
    rng = np.random.default_rng(5)
    visited = rng.normal(size=(400, 2)) * [3.0, 0.5]
    found = contents.state_map(visited, visited[::4], 100)
    assert found["dimensions"] == [0, 1]
    assert np.sum(found["visited"]) == 400
    assert np.sum(found["stored"]) == 100
    assert found["ranges"][0] == pytest.approx([visited[:, 0].min(), visited[:, 0].max()])


def test_the_map_of_a_single_dimension_that_never_moves() -> None:
    found = contents.state_map(np.ones((10, 1)), np.ones((10, 1)), 10)
    assert found["ranges"] == [[0.5, 1.5], [0.5, 1.5]]
    assert np.sum(found["visited"]) == 10


def test_all_methods_of_a_task_and_seed_are_judged_by_the_same_cells() -> None:
    rng = np.random.default_rng(0)
    states, rewards = rng.choice([-1.0, 1.0], size=(900, 3)), np.zeros(900)
    suite = load_suite("smoke")
    found = {}
    for method in ("baseline", "fac"):
        run = make_run(suite, suite.tasks[0], method, seed=0)
        buffer = filled(states, rewards, 600)  # which has lost its beginning
        found[method] = describe_buffer(buffer, run, train_config(run, {}, None), None)
    for key in ("dimensions", "cells", "measures"):
        assert found["baseline"][key] == found["fac"][key]
    assert np.sum(found["baseline"]["map"]["visited"]) == 600
    assert (
        np.sum(found["baseline"]["map"]["stored"]) == 500
    )  # a warm-up of 500; the rest is like it


def test_of_an_empty_buffer_only_the_sizes_are_told() -> None:
    suite = load_suite("smoke")
    run = make_run(suite, suite.tasks[0], "fac", seed=0)
    empty = filled(np.empty((0, 3)), np.empty(0))
    found = describe_buffer(empty, run, train_config(run, {}, None), None)
    assert found == {"observations": 3, "actions": ACTIONS.shape[0]}


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_the_variance_of_gradients_by_hand(algo: str) -> None:
    rng = np.random.default_rng(0)
    settings = AgentSettings(
        **{**AgentSettings.defaults(algo).to_dict(), "net_arch": (8,), "batch_size": 16}
    )
    agent = make_agent(settings, SPACE, ACTIONS, seed=0)
    before = agent.state_dict()["learner"]["critics"].copy()
    one = filled(np.ones((50, 3)), np.zeros(50))
    many = filled(rng.normal(size=(50, 3)), rng.normal(size=50))
    # Minibatches of one and the same transition differ in nothing but the noise of TD3 and SAC,
    # which is held fixed, but differs from row to row.
    variances = [
        contents.gradient_variance(agent, buffer, 16, np.random.default_rng(1))
        for buffer in (one, many)
    ]
    assert variances[0] == pytest.approx(0.0, abs=1e-9)
    assert variances[1] > 1e-4
    np.testing.assert_array_equal(agent.state_dict()["learner"]["critics"], before)
