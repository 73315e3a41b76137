"""The state of an environment can be put into a copy that then goes on with the same bits."""

from __future__ import annotations

import enum
import json
from collections import deque

import gymnasium
import numpy as np
import pytest

from frugalrl.state_io import load_state, save_state
from frugalrl.training import env_state
from frugalrl.training.env_state import AttributeReader, AttributeWriter, UnreadableStateError
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
    "BipedalWalker-v3": "fresh",  # carries contacts from one episode to the next
    "FrugalPoint-v0": "fields",
    "FrugalNormalized-v0": "fields",
    "FrugalStacked-v0": "fields",
    "FrugalShared-v0": "fields",
    "FrugalWindow-v0": "fresh",
    "FrugalOpaque-v0": "replay",
    "FrugalNormalizedOpaque-v0": "replay",
    "FrugalHoarder-v0": "fresh",
    "FrugalNormalizedHoarder-v0": "fresh",
    "FrugalSampling-v0": "fields",
    "FrugalGlobal-v0": "fresh",
    "FrugalMoody-v0": "fresh",
    "FrugalFaulty-v0": "fields",  # a NaN is a value like any other
}


@pytest.mark.parametrize("env_id", METHODS)
def test_the_first_way_that_works_is_found(env_id):
    assert env_state.choose_method(find_environment(env_id)) == METHODS[env_id]


@pytest.mark.parametrize(
    "env_id",
    [
        *("Hopper-v5", "Humanoid-v5", "Pendulum-v1", "LunarLanderContinuous-v3"),
        *(
            "FrugalNormalized-v0",
            "FrugalStacked-v0",
            "FrugalShared-v0",
            "FrugalNormalizedOpaque-v0",
        ),
    ],
)
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
    state = load_state(tmp_path / "state", "environment", 1)
    assert env_state.restore(copy, state, seed=7).problem is None
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
    env_state.restore(copy, env_state.capture(original, "fields"), seed=7)
    ends = [copy.step(np.zeros(1))[3] for _ in range(5)]
    assert ends == [False] * 4 + [True]


def test_types_of_attributes_are_kept_and_who_shares_what():
    values = {
        "truth": True,
        "whole": 3,
        "real": 0.1,
        "text": "a",
        "none": None,
        "single": np.float32(0.1),
        "array": np.arange(3, dtype=np.int16),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "pair": (1, [2.0, {"deep": (np.bool_(True),)}]),
        "queue": deque([1, 2], maxlen=2),
        (1, "key"): {2: 3.0},
        "generator": np.random.Generator(np.random.MT19937(1)),
    }
    values["again"] = values["pair"][1]
    values["itself"] = values
    written = AttributeWriter(strict=True).write(values, "values")
    back = AttributeReader().read(json.loads(json.dumps(_listed(written)), object_hook=_unlisted))
    assert back["itself"] is back
    assert back["again"] is back["pair"][1]
    assert back["generator"].random() == values["generator"].random()
    assert back["queue"].maxlen == 2
    assert back["columns"].flags.f_contiguous
    for name in set(values) - {"itself", "generator"}:
        assert type(back[name]) is type(values[name])
        np.testing.assert_equal(back[name], values[name])
    assert type(back["pair"][1][1]["deep"][0]) is np.bool_


def _listed(value):
    """Replace arrays by JSON, as a file does."""
    if isinstance(value, np.ndarray):
        return {"$": [value.tolist(), str(value.dtype)]}
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list) else value


def _unlisted(value):
    return np.array(*value["$"]) if "$" in value else value


class Mood(enum.Enum):
    GOOD = 1


@pytest.mark.parametrize(
    "value",
    [object(), np.array(["a"]), {"a": {2}}, np.zeros((4, 4))[1:3, 1:3], Mood.GOOD, 1j, b"x"],
)
def test_what_cannot_be_written_down_is_named(value):
    with pytest.raises(UnreadableStateError, match=r"Env\.x"):
        AttributeWriter(strict=True).write(value, "Env.x")


def test_what_cannot_be_read_is_left_out_where_that_is_wanted():
    class Thing:
        pass

    one, other = Thing(), Thing()
    one.good, one.bad, one.later = [1.0], [object(), [2.0]], [3.0]
    one.same = one.later
    state = AttributeWriter(strict=False).write(one, "Thing")
    other.bad = "its own"
    AttributeReader().read(state, other)
    assert (other.good, other.bad, other.later) == ([1.0], "its own", [3.0])
    assert other.same is other.later
    with pytest.raises(UnreadableStateError, match=r"no .*Thing to put back into"):
        AttributeReader().read(state, Mood)


def test_a_shared_generator_stays_shared():
    environment = find_environment("ReacherBulletEnv-v0").make()
    environment.reset(seed=0)
    inner = environment.unwrapped
    state = {**env_state.capture(environment, "fresh")}
    environment.reset()
    expected = inner.np_random.random()
    env_state.restore(environment, state, seed=7)
    assert inner.robot.np_random is inner.np_random
    assert inner.np_random.random() == expected
    environment.close()


def test_a_new_episode_keeps_what_the_wrappers_know():
    factory = find_environment("FrugalNormalizedHoarder-v0")
    original, copy = factory.make(), factory.make()
    original.reset(seed=1)
    for _ in range(20):
        original.step(np.ones(1))
    restored = env_state.restore(copy, env_state.capture(original, "fresh"), seed=7)
    assert restored.problem == "it cannot be reproduced"
    assert copy.get_wrapper_attr("obs_rms").count == original.get_wrapper_attr("obs_rms").count + 1
    assert copy.get_wrapper_attr("_elapsed_steps") == 0


def test_a_state_that_cannot_be_put_back_begins_a_new_episode():
    factory = find_environment("FrugalPoint-v0")
    original = factory.make()
    original.reset(seed=1)
    state = env_state.capture(original, "fields")
    state["layers"].pop()
    restored = env_state.restore(factory.make(), state, seed=7)
    assert "ValueError" in restored.problem
    np.testing.assert_array_equal(restored.observation, factory.make().reset(seed=7)[0])


def test_wrappers_are_walked_through():
    environment = gymnasium.wrappers.ClipAction(gymnasium.make("Pendulum-v1"))
    environment.reset(seed=0)
    kinds = [type(layer).__name__ for layer in env_state._layers(environment)]
    assert kinds[0] == "ClipAction"
    assert kinds[-1] == "PendulumEnv"
    assert "TimeLimit" in kinds
