"""Several environments mean the same as one, and their failures are told in full."""

from __future__ import annotations

import numpy as np
import pytest

from frugalrl.training import BrokenEnvironmentError, train
from frugalrl.training.environments import find_environment
from frugalrl.training.vector import AsyncGroup, SyncGroup


def test_the_last_observation_is_the_true_one_not_the_resets():
    group = SyncGroup(find_environment("FrugalPoint-v0", {"push": 0.01}), 3, "fields")
    observations = group.reset([1, 2, 3])
    for number in range(1, 60):
        step = group.step(np.full((3, 1), 0.3, np.float32))
        ended = step.terminated | step.truncated
        assert ended.all() == (number % 25 == 0)
        # One step moves by a tenth of the velocity; a reset would jump.
        moved = observations[:, 0] + np.float32(0.1) * step.next_observations[:, 1]
        np.testing.assert_allclose(step.next_observations[:, 0], moved, atol=1e-5)
        same = (step.observations == step.next_observations).all(axis=1)
        np.testing.assert_array_equal(same, ~ended)
        observations = step.observations


def test_one_environment_is_a_row_of_many():
    factory = find_environment("FrugalPoint-v0")
    one, many = SyncGroup(factory, 1, "fields"), SyncGroup(factory, 2, "fields")
    np.testing.assert_array_equal(one.reset([5])[0], many.reset([5, 6])[0])
    for _ in range(40):
        single = one.step(np.full((1, 1), -0.7, np.float32))
        double = many.step(np.full((2, 1), -0.7, np.float32))
        for ours, theirs in zip(single[:5], double[:5], strict=True):
            if isinstance(ours, bool):
                continue
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours.dtype == theirs.dtype


def test_workers_give_the_same_bits_as_this_process(tiny, tmp_path):
    changes = {"env": "FrugalOpaque-v0", "envs": 2, "admission": "fac"}
    here = train(tiny(workers="sync", **changes))
    there = train(tiny(workers="async", **changes, out=tmp_path / "run"))
    assert here.fingerprint == there.fingerprint


def test_workers_states_are_captured_and_restored():
    factory = find_environment("FrugalOpaque-v0")
    group = AsyncGroup(factory, 2, "replay", 30.0)
    copy = SyncGroup(factory, 2, "replay")
    try:
        group.reset([1, 2])
        actions = np.array([[0.3], [-0.2]], np.float32)
        for _ in range(30):
            group.step(actions)
        states = group.capture()
        assert all(0 < len(state["actions"]) < 25 for state in states)
        copy.reset([7, 8])
        copy.restore(states, [7, 8])
        ahead = group.step(actions)
        np.testing.assert_array_equal(ahead.next_observations, copy.step(actions)[0])
        # and back into the workers, after they went on
        group.restore(states, [7, 8])
        np.testing.assert_array_equal(ahead.next_observations, group.step(actions)[0])
    finally:
        group.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", r"worker \d raised:\n(.|\n)*the wheels came off"),
        ("exit", r"a.* worker died: worker \d ended with exit code 3"),
        ("hang", r"no answer within 1\.5 s(.|\n)*training_worlds\.py"),
    ],
)
def test_a_worker_that_fails_is_told_in_full(fault, message):
    factory = find_environment("FrugalFaulty-v0", {"fault": fault, "at": 5})
    group = AsyncGroup(factory, 2, "fields", timeout=30.0)
    group.reset([1, 2])
    group._timeout = 1.5
    for _ in range(4):
        group.step(np.zeros((2, 1), np.float32))
    with pytest.raises(BrokenEnvironmentError, match=message):
        group.step(np.zeros((2, 1), np.float32))
    assert not any(process.is_alive() for process in group.processes)


def test_an_environment_here_raises_as_itself(tiny):
    with pytest.raises(ZeroDivisionError, match="the wheels came off"):
        train(tiny(env="FrugalFaulty-v0", env_kwargs={"fault": "raise", "at": 30}))
