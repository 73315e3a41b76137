"""The state of an environment can be put into a copy that then goes on with the same bits."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from frugalrl.state_io import load_state, save_state
from frugalrl.training import env_state
from frugalrl.training.environments import find_environment

METHODS = {
    "Pendulum-v1": "fields",
    "MountainCarContinuous-v0": "fields",
    "Hopper-v5": "fields",
    "Reacher-v4": "fields",  # its reward comes from positions that lag behind the state
    "Ant-v5": "fields",
    "Humanoid-v5": "fields",
    "LunarLanderContinuous-v3": "replay",
    "ReacherBulletEnv-v0": "replay",
    "BipedalWalker-v3": "renew",
    "FrugalPoint-v0": "fields",
    "FrugalOpaque-v0": "replay",
    "FrugalHoarder-v0": "renew",
    "FrugalMoody-v0": "fresh",
}


@pytest.mark.parametrize("env_id", METHODS)
def test_the_first_way_that_works_is_found(env_id):
    assert env_state.choose_method(find_environment(env_id)) == METHODS[env_id]


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Humanoid-v5", "Pendulum-v1", "BipedalWalker-v3"])
def test_a_state_survives_a_file_and_another_process_goes_on_alike(env_id, tmp_path):
    factory = find_environment(env_id)
    method = METHODS[env_id]
    original = env_state.prepare(factory, method)
    generator = np.random.default_rng(5)
    space = original.action_space
    original.reset(seed=3)
    for _ in range(17):
        *_, terminated, truncated, _ = original.step(generator.uniform(-1, 1, space.shape))
        if terminated or truncated:
            original.reset()
    save_state(tmp_path / "state", env_state.capture(original, method), "environment", 1)

    copy = env_state.prepare(factory, method)
    copy.reset(seed=99)
    env_state.restore(copy, load_state(tmp_path / "state", "environment", 1), method)
    for _ in range(30):
        action = generator.uniform(-1, 1, space.shape)
        ours, theirs = original.step(action), copy.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
        if ours[2] or ours[3]:
            np.testing.assert_array_equal(original.reset()[0], copy.reset()[0])


def test_the_time_limit_goes_on_counting():
    factory = find_environment("FrugalPoint-v0")
    original = factory.make()
    original.reset(seed=0)
    for _ in range(20):
        original.step(np.zeros(1))
    copy = factory.make()
    env_state.restore(copy, env_state.capture(original, "fields"), "fields")
    ends = [copy.step(np.zeros(1))[3] for _ in range(5)]
    assert ends == [False] * 4 + [True]


def test_types_of_attributes_are_kept():
    values = {
        "truth": True,
        "whole": 3,
        "real": 0.1,
        "text": "a",
        "none": None,
        "single": np.float32(0.1),
        "array": np.arange(3, dtype=np.int16),
        "pair": (1, [2.0, {"deep": (np.bool_(True),)}]),
        "generator": np.random.Generator(np.random.MT19937(1)),
    }
    back = env_state._decode(env_state._encode(values, "values"))
    assert back["generator"].random() == values.pop("generator").random()
    for name, value in values.items():
        assert type(back[name]) is type(value)
        np.testing.assert_equal(back[name], value)
    assert type(back["pair"][1][1]["deep"][0]) is np.bool_


@pytest.mark.parametrize("value", [object(), {1: 2}, np.array(["a"]), {"a": {2}}])
def test_what_cannot_be_written_down_is_named(value):
    with pytest.raises(env_state.UnreadableStateError, match=r"Env\.x"):
        env_state._encode(value, "Env.x")


def test_a_shared_generator_stays_shared():
    environment = find_environment("ReacherBulletEnv-v0").make()
    environment.reset(seed=0)
    inner = environment.unwrapped
    env_state._set_generator(environment, env_state.generator_state(np.random.default_rng(7)))
    assert inner.robot.np_random is inner.np_random
    assert inner.np_random.random() == np.random.default_rng(7).random()
    environment.close()


def test_wrappers_are_walked_through():
    environment = gymnasium.wrappers.ClipAction(gymnasium.make("Pendulum-v1"))
    environment.reset(seed=0)
    kinds = [type(layer).__name__ for layer in env_state._layers(environment)]
    assert kinds[0] == "ClipAction"
    assert kinds[-1] == "PendulumEnv"
    assert "TimeLimit" in kinds
