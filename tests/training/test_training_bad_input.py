"""What cannot work is said before anything is created."""

from __future__ import annotations

import os
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from frugalrl import FrugalFilter
from frugalrl.training import BrokenEnvironmentError, ConfigError, TrainConfig, runner, train
from frugalrl.training.environments import check_spaces, find_environment
from frugalrl.training.errors import RunDirectoryError
from frugalrl.training.run_directory import RunDirectory


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Pendulm-v1", "did you mean Pendulum-v1?"),
        ("pendulum-v1", "did you mean Pendulum-v1?"),
        ("HalfCheeta-v5", "did you mean HalfCheetah-v5?"),
        ("Pendulum-v0", "its versions are Pendulum-v1"),
        ("Hopper-v2", "its versions are Hopper-v4, Hopper-v5"),
        ("Hopper", "its versions are Hopper-v4, Hopper-v5"),
        ("LunarLanderContinuous-v2", "its versions are LunarLanderContinuous-v3"),
        ("zzzzqqqq-v0", "pprint_registry"),
        ("no_such_module:Thing-v0", "the module 'no_such_module' cannot be imported"),
    ],
)
def test_misspelled_and_outdated_environments(env, message, tmp_path):
    with pytest.raises(ConfigError, match="env=") as caught:
        train(TrainConfig(env=env, steps=1000, out=tmp_path / "run"))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "package", "loaded", "command"),
    [
        ("Hopper-v5", "mujoco", "gymnasium.envs.mujoco", 'pip install "gymnasium[mujoco]"'),
        ("BipedalWalker-v3", "Box2D", "gymnasium.envs.box2d", 'pip install "gymnasium[box2d]"'),
        ("AntBulletEnv-v9", "pybullet_envs_gymnasium", "pybullet_envs_g", "pip install pybullet"),
    ],
)
def test_missing_packages_name_the_command(env, package, loaded, command, monkeypatch):
    for name in list(sys.modules):
        if name.startswith((loaded, package)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        train(TrainConfig(env=env, steps=1000, learning_starts=10))
    assert command in str(caught.value)


BOX = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (BOX, spaces.Discrete(4), r"action space Discrete\(4\).*one-dimensional Box"),
        (BOX, spaces.Box(-np.inf, np.inf, (2,)), "infinite action bounds"),
        (BOX, spaces.Box(np.array([-1.0, 2.0]), np.array([1.0, 2.0])), "zero width.*dimension 1"),
        (BOX, spaces.Box(-1, 1, (2, 2)), "one-dimensional Box"),
        (BOX, spaces.Box(-1, 1, (2,), np.int64), "int64"),
        (spaces.Dict({"a": BOX}), ACTIONS, r"Dict.*FlattenObservation"),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), ACTIONS, "images are not supported"),
        (spaces.Discrete(5), ACTIONS, "vectors are needed"),
    ],
)
def test_unsupported_spaces(observation, action, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        check_spaces(observation, action, "Some-v0")
    config = TrainConfig(
        env="FrugalSpaces-v0",
        steps=1000,
        env_kwargs={"observation": observation, "action": action},
        out=tmp_path / "run",
    )
    with pytest.raises(ConfigError, match=message):
        train(config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_starts": 240}, "learning_starts=240.*steps=240"),
        ({"batch_size": 32, "buffer_size": 20}, "batch_size=32.*buffer_size=20"),
        ({"batch_size": 999}, "batch_size=999.*steps=240"),
        ({"batch_size": "many"}, "batch_size='many'"),
        ({"steps": 0}, "steps=0"),
        ({"steps": None}, "steps is not set"),
        ({"seed": -1}, "seed=-1"),
        ({"train_freq": 0}, "train_freq=0"),
        ({"train_freq": "epsiode"}, "train_freq='epsiode'.*'episode'"),
        ({"train_freq": "episode", "envs": 2}, "single environment, got envs=2"),
        ({"gradient_steps": 0}, "gradient_steps=0"),
        ({"gradient_steps": -2}, "gradient_steps=-2"),
        ({"envs": 0}, "envs=0"),
        ({"keep_checkpoints": 0}, "keep_checkpoints=0"),
        ({"worker_timeout": 0.0}, "worker_timeout"),
        ({"random_rate": 0.0}, "random_rate=0.0"),
        ({"algo": "sak"}, "algo='sak'.*did you mean 'sac'"),
        ({"admission": "fca"}, "admission='fca'.*did you mean 'fac'"),
        ({"admission": 3}, "admission=3 is no filter"),
        ({"sampler": "per"}, "sampler='per'"),
        ({"learning_rate": "fast"}, "learning_rate.*fast"),
        ({"learning_rate": -1.0}, "learning_rate.*-1"),
        ({"gamma": 1.5}, "gamma.*1.5"),
        ({"net_arch": ()}, "net_arch"),
        ({"ent_coef": "automatic"}, "ent_coef"),
        ({"algo": "td3", "use_sde": True}, "use_sde"),
        ({"fac_bins": 70}, "fac_bins=70 has no effect.*--admission fac"),
        ({"fac_paper": True}, "fac_paper=True has no effect"),
        ({"admission": "random", "fac_bins": 3}, "fac_bins=3 has no.*admission='random'"),
        ({"admission": FrugalFilter(), "fac_bins": 3}, r"fac_bins=3 has no.*FrugalFilter\("),
        ({"admission": FrugalFilter(), "fac_paper": True}, "fac_paper=True has no effect"),
        ({"admission": "fac", "fac_bins": 0}, "bins=0"),
        ({"admission": "fac", "fac_kernel": "tophut"}, "fac_kernel='tophut'.*mean 'tophat'"),
        ({"admission": "fac", "fac_bounds": "[[0"}, "fac_bounds"),
        ({"buffer_bytes": "12 parsecs"}, "12 parsecs"),
        ({"buffer_bytes": "900B", "batch_size": 64}, "batch_size=64.*buffer_bytes='900B'"),
        ({"buffer_bytes": "1MB", "buffer_size": 100}, "set one of them"),
        ({"env_kwargs": "{"}, "env_kwargs"),
        ({"env_kwargs": "[1]"}, "no JSON object"),
        ({"env_kwargs": {"wings": 2}}, "env_kwargs.*wings"),
        ({"env_kwargs": {"push": np.ones(1)}}, r"env_kwargs=.*cannot be written to config\.json"),
    ],
)
def test_settings_that_cannot_work(changes, message, tiny, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(tiny(**changes, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_networks_beyond_the_memory_are_named(tiny, tmp_path, monkeypatch):
    def too_large(*_):
        raise MemoryError("Unable to allocate 335. GiB")

    monkeypatch.setattr(runner, "make_agent", too_large)
    with pytest.raises(ConfigError, match=r"net_arch=.*does not fit in memory: Unable"):
        train(tiny(out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_missing_logger_names_the_command(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        train(tiny(wandb=True))


def test_used_directories(tiny, tmp_path):
    run = tmp_path / "run"
    train(tiny(out=run))
    with pytest.raises(RunDirectoryError, match="holds a finished run; choose another"):
        train(tiny(out=run))
    (run / "final.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"not finished \(resume it with: frugalrl train"):
        train(tiny(out=run))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file"):
        train(tiny(out=tmp_path / "file"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(RunDirectoryError, match="not empty"):
        train(tiny(out=tmp_path / "full"))
    assert os.listdir(tmp_path / "full") == ["thesis.tex"]


def test_directories_that_cannot_be_written(tiny, tmp_path, monkeypatch):
    with pytest.raises(RunDirectoryError, match="cannot be created"):
        train(tiny(out=tmp_path / "file.txt" / "run") if _touch(tmp_path / "file.txt") else None)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RunDirectoryError, match="not a writable directory"):
        train(tiny(out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_directory_that_takes_no_file_is_taken_away_again(tiny, tmp_path, monkeypatch):
    from frugalrl.training import run_directory

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_directory, "write_json", full)
    with pytest.raises(RunDirectoryError, match="cannot be created: No space left"):
        train(tiny(out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def _touch(path) -> bool:
    path.write_text("")
    return True


def test_a_second_process_is_refused(tiny, tmp_path, interrupt):
    first, second = RunDirectory(tmp_path), RunDirectory(tmp_path)
    first.acquire()
    with pytest.raises(RunDirectoryError, match=f"in use by process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_single_nans_are_refused_and_counted(tiny):
    kwargs = {"fault": "nan", "at": 105, "push": 0.01}
    with pytest.warns(RuntimeWarning, match="refused 1 transition"):
        result = train(
            tiny(env="FrugalFaulty-v0", env_kwargs=kwargs, eval_every=0, final_episodes=0)
        )
    # The transition that leads to nowhere and the one that comes from there.
    assert result.buffer.stats.rejected_nonfinite == 2
    assert len(result.buffer) == 238
    assert np.isfinite(result.buffer.transitions().observations).all()
    assert result.metrics[-1]["rejected_nonfinite"] == 2
    assert np.isfinite(result.policy.parameters).all()


@pytest.mark.filterwarnings("ignore:refused")
@pytest.mark.parametrize("fault", ["nan", "reward"])
def test_too_many_nans_stop_the_run_with_the_step(fault, tiny):
    kwargs = {"fault": fault, "at": 70, "every": 3}
    with pytest.raises(BrokenEnvironmentError, match=r"11 of \d+ steps, the last at step \d+"):
        train(tiny(env="FrugalFaulty-v0", env_kwargs=kwargs, eval_every=0))


@pytest.mark.filterwarnings("ignore:refused")
def test_an_agent_does_not_act_on_what_a_reset_gave_that_is_not_finite(tiny, monkeypatch):
    from training_worlds import Point

    from frugalrl.agents.agent import Agent

    act, reset, finite = Agent.act, Point.reset, []

    def look(self, observations):
        finite.append(np.isfinite(observations).all())
        return act(self, observations)

    def break_down(self, **how):
        observation, info = reset(self, **how)
        return observation * (np.nan if 100 <= self.steps < 130 else 1.0), info

    monkeypatch.setattr(Agent, "act", look)
    monkeypatch.setattr(Point, "reset", break_down)
    result = train(tiny(eval_every=0, final_episodes=0))
    assert result.buffer.stats.rejected_nonfinite > 0
    assert len(finite) == 180
    assert all(finite)


@pytest.mark.filterwarnings("ignore:refused", "ignore:invalid value", "ignore:overflow")
def test_an_agent_that_diverges_is_named_as_the_cause(tiny, monkeypatch):
    from frugalrl.agents.agent import Agent

    act = Agent.act

    def diverge(self, observations):
        actions = act(self, observations)
        return actions._replace(environment=actions[0] * np.nan, buffer=actions[1] * np.nan)

    monkeypatch.setattr(Agent, "act", diverge)
    monkeypatch.setattr("training_worlds.Point.step", _ignore_action)
    with pytest.raises(BrokenEnvironmentError, match=r"learning has diverged.*learning_rate"):
        train(tiny(eval_every=0))


def _ignore_action(self, action):
    return self.position.copy(), 0.0, False, False, {}


def test_registered_elsewhere():
    gymnasium.register(id="FrugalElsewhere-v3", entry_point="training_worlds:Point")
    try:
        factory = find_environment("training_worlds:FrugalElsewhere-v3", {"push": 0.5})
        assert factory.make().unwrapped.push == 0.5
    finally:
        del gymnasium.registry["FrugalElsewhere-v3"]
