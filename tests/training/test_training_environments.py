"""An environment may be an id, a class, a function or an environment, wrapped and cut off."""

from __future__ import annotations

import json
import sys

import gymnasium
import numpy as np
import pytest
import training_worlds
from gymnasium import wrappers

import frugalrl
from frugalrl.training import ConfigError, TrainConfig, TrainingInterrupted, resume, train
from frugalrl.training.config import environment_text
from frugalrl.training.environments import find_environment

QUIET = {"eval_every": 0, "final_episodes": 0}


def test_a_class_a_function_and_an_instance_are_the_same_run(tiny):
    by_id = train(tiny(env_kwargs={"push": 0.2}, **QUIET))
    limited = wrappers.TimeLimit(training_worlds.Point(push=0.2), 25)
    limited.reset(seed=99)
    for env, more in (
        (training_worlds.Point, {"env_kwargs": {"push": 0.2}, "max_episode_steps": 25}),
        (lambda push: training_worlds.Point(push=push), {"env_kwargs": {"push": 0.2}}),
        (limited, {}),
        ("training_worlds:Point", {"env_kwargs": {"push": 0.2}}),
    ):
        more.setdefault("max_episode_steps", None if env is limited else 25)
        result = train(tiny(env=env, **more, **QUIET))
        assert result.fingerprint == by_id.fingerprint
    assert limited.get_wrapper_attr("_elapsed_steps") == 0  # copies were used


def test_wrappers_by_name_and_as_callables(tiny):
    named = tiny(wrappers=("gymnasium.wrappers:FlattenObservation", "training_worlds.halved"))
    called = tiny(wrappers=(wrappers.FlattenObservation, training_worlds.halved))
    plain = train(tiny(**QUIET))
    one, other = (train(frugalrl.TrainConfig(**vars(c) | QUIET)) for c in (named, called))
    assert one.fingerprint == other.fingerprint != plain.fingerprint
    rewards = [result.buffer.transitions().rewards[:20] for result in (one, plain)]
    np.testing.assert_allclose(rewards[0], rewards[1] / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": 3}, "neither an id"),
        ({"env": training_worlds.Point(), "env_kwargs": {"push": 1}}, "made already"),
        ({"env": lambda: 3}, r"made 3, which is no gymnasium\.Env"),
        ({"env": training_worlds.Uncopyable()}, "cannot be copied.*pass a function"),
        ({"wrappers": ("nothing",)}, "write it like"),
        ({"wrappers": ("gymnasium.wrappers:Flaten",)}, "nothing that can be called"),
        ({"wrappers": ("no_module:Name",)}, "'no_module' cannot be imported"),
        ({"max_episode_steps": 0}, "max_episode_steps=0"),
    ],
)
def test_what_is_no_environment(changes, message, tiny):
    with pytest.raises(ConfigError, match=message):
        train(tiny(**changes))


def test_a_module_in_the_current_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "frugal_own_world.py").write_text("from training_worlds import Point as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert isinstance(find_environment("frugal_own_world:Mine").make(), training_worlds.Point)


def test_runs_of_own_environments_are_resumed(tiny, interrupt, tmp_path):
    def make():
        return wrappers.TimeLimit(training_worlds.Point(), 25)

    whole = train(tiny())
    interrupt(100)
    for name, env in (("own", make), ("importable", training_worlds.limited)):
        with pytest.raises(TrainingInterrupted):
            train(tiny(env=env, out=tmp_path / name))
    interrupt(None)
    stored = json.loads((tmp_path / "own" / "config.json").read_text())["config"]["env"]
    assert stored.startswith("custom:")
    with pytest.raises(ConfigError, match=r"frugalrl\.resume\(path, env=your_environment\)"):
        resume(tmp_path / "own")
    with pytest.raises(ConfigError, match="is not the run's"):
        resume(tmp_path / "own", env=training_worlds.Point)
    with pytest.raises(ConfigError, match="only be made by its own code: give the object itself"):
        frugalrl.evaluate(tmp_path / "own")
    assert len(frugalrl.evaluate(tmp_path / "own", make, episodes=2).rewards) == 2
    assert frugalrl.resume(tmp_path / "own", env=make).fingerprint == whole.fingerprint
    assert frugalrl.resume(tmp_path / "importable").fingerprint == whole.fingerprint


def test_names_of_environments():
    assert environment_text(training_worlds.Point) == "training_worlds:Point"
    assert environment_text(gymnasium.make("FrugalPoint-v0")) == "custom:FrugalPoint-v0"
    assert environment_text(lambda: None).startswith("custom:")
    assert TrainConfig(env=training_worlds.Point).env_name == "training_worlds:Point"


def test_an_evaluation_comes_to_an_end_without_a_time_limit(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr("frugalrl.training.session.LONGEST", 30)
    said = []
    result = train(
        tiny(env=training_worlds.Point, env_kwargs={"push": 0.0}, out=tmp_path / "run"),
        say=said.append,
    )
    assert result.final.lengths.max() == 30
    assert sum("no time limit" in line for line in said) == 1


def test_success_is_counted_where_the_environment_says_so(tiny, tmp_path):
    for workers in ("sync", "async"):
        result = train(tiny(env="FrugalGoal-v0", envs=2, workers=workers))
        rates = [row["success_rate"] for row in result.metrics if row["success_rate"] is not None]
        assert rates
        assert set(rates) == {1.0}
        assert result.metrics[-1]["eval_success_rate"] == 1.0
        assert result.final.success_rate == 1.0
        assert "success rate 100%" in repr(result.final)
    assert train(tiny()).final.success_rate is None


def test_evaluating_from_python(tiny, tmp_path):
    result = train(tiny(out=tmp_path / "run"))
    again = frugalrl.evaluate(tmp_path / "run", episodes=2)
    assert again.to_dict() == result.final.to_dict()
    policy = frugalrl.load_policy(tmp_path / "run")
    same = frugalrl.evaluate(policy, "FrugalPoint-v0", episodes=2)
    assert same.to_dict() == result.final.to_dict()
    policy.seed(0)
    noisy = frugalrl.evaluate(policy, "FrugalPoint-v0", episodes=2, deterministic=False)
    assert noisy.mean != same.mean
    drawn = [frugalrl.evaluate(tmp_path / "run", deterministic=False, episodes=2) for _ in range(2)]
    assert drawn[0].mean == drawn[1].mean != same.mean
    still = frugalrl.evaluate(lambda o: np.zeros(1), training_worlds.Point, max_episode_steps=9)
    assert still.lengths.max() == 9
    with pytest.raises(ConfigError, match="env is not set"):
        frugalrl.evaluate(policy)
    for name, value in (
        ("episodes", 0),
        ("seed", -1),
        ("max_episode_steps", 0),
        ("max_episode_steps", -1),
    ):
        with pytest.raises(ConfigError, match=f"{name}={value} must be at least"):
            frugalrl.evaluate(policy, "Pendulum-v1", **{name: value})
    assert len(repr(result)) < 300
    assert "2 observations, 8x8, 1 actions" in repr(policy)


@pytest.mark.parametrize("changes", [{}, {"use_sde": True}, {"algo": "td3"}])
def test_predict(changes, tiny, tmp_path):
    train(tiny(out=tmp_path / "run", **changes, **QUIET))
    policy = frugalrl.load_policy(tmp_path / "run")
    observations = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    actions, state = policy.predict(observations)
    assert state is None
    np.testing.assert_array_equal(actions, policy(observations))
    policy.seed(3)
    drawn = policy.predict(observations, deterministic=False)[0]
    policy.seed(3)
    np.testing.assert_array_equal(drawn, policy.predict(observations, deterministic=False)[0])
    assert np.array_equal(drawn, actions) == (changes.get("algo") == "td3")
    assert np.abs(drawn).max() <= 2
    assert policy.predict(observations[0], deterministic=False)[0].shape == (1,)
    with pytest.raises(ValueError, match=r"shape \(3,\); this policy takes \(2,\) or \(n, 2\)"):
        policy(np.zeros(3))
