"""Presets, defaults, overrides and the JSON form of a configuration."""

from __future__ import annotations

import dataclasses
import inspect
import json

import numpy as np
import pytest

import frugalrl
from frugalrl.training import TrainConfig
from frugalrl.training.config import WARMUP_STEPS, make_admission, resolve
from frugalrl.training.console import configuration_lines
from frugalrl.training.errors import ConfigError
from frugalrl.training.presets import defaults, find_preset


@pytest.mark.parametrize("env", ["Hopper-v2", "Hopper-v5", "my_module:Hopper-v7", "ns/Hopper-v1"])
def test_any_version_of_an_id_has_its_preset(env):
    assert find_preset(env, "sac") == {"steps": 1_000_000, "learning_starts": 10_000}


def test_mujocos_reacher_is_not_the_papers():
    assert find_preset("Reacher-v5", "sac") == {}


def test_a_setting_that_is_given_beats_the_preset_which_beats_the_default():
    config = TrainConfig(env="Pendulum-v1", learning_rate=0.5, net_arch=(7,))
    full, origins, _ = resolve(config)
    assert (full.learning_rate, origins["learning_rate"]) == (0.5, "given")
    assert (full.net_arch, origins["net_arch"]) == ((7,), "given")
    assert (full.use_sde, origins["use_sde"]) == (True, "preset")
    assert (full.tau, origins["tau"]) == (0.005, "default")
    assert full.eval_every == 1000


def test_no_preset_gives_stable_baselines_defaults():
    full = resolve(TrainConfig(env="Pendulum-v1", preset="none", steps=5000)).config
    assert full.learning_rate == 3e-4
    assert full.net_arch == (256, 256)
    assert full.use_sde is False


def test_defaults_are_those_of_stable_baselines():
    import stable_baselines3

    for algo in ("sac", "td3", "ddpg"):
        parameters = inspect.signature(getattr(stable_baselines3, algo.upper())).parameters
        theirs = {name: parameter.default for name, parameter in parameters.items()}
        ours = defaults(algo)
        shared = set(ours) & set(theirs) - {"action_noise"}
        assert {"learning_rate", "buffer_size", "learning_starts", "train_freq", "tau"} <= shared
        assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


@pytest.mark.parametrize("bins", [70, (70, 50, 20)])
def test_a_configuration_survives_json(bins):
    config = TrainConfig(
        env="Pendulum-v1", net_arch=(3, 4), admission="fac", fac_bins=bins, env_kwargs='{"g": 9.0}'
    )
    full = resolve(config).config
    back = TrainConfig.from_dict(json.loads(json.dumps(full.to_dict())))
    assert back == full
    assert back.env_kwargs == {"g": 9.0}
    assert resolve(back).config == full


def test_numbers_of_numpy_are_numbers_of_python():
    given = {
        "batch_size": np.int64(32),
        "gamma": np.float32(0.5),
        "gradient_steps": np.int32(2),
        "use_sde": np.bool_(True),
    }
    full = resolve(TrainConfig(env="Pendulum-v1", **given)).config
    assert {name: getattr(full, name) for name in given} == given
    assert TrainConfig.from_dict(json.loads(json.dumps(full.to_dict()))) == full


def test_unknown_settings_in_a_file_are_refused():
    with pytest.raises(frugalrl.training.ConfigError, match="'speed'"):
        TrainConfig.from_dict({"env": "Pendulum-v1", "speed": 3})


def test_every_argument_of_the_filter_is_a_setting():
    names = set(inspect.signature(frugalrl.FrugalFilter).parameters)
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert {f"fac_{name}" for name in names} <= fields


def test_filter_settings_reach_the_filter():
    config = TrainConfig(env="Pendulum-v1", admission="fac", fac_bins=70, fac_outside="extend")
    made = make_admission(config, seed=0)
    assert (made.settings.bins, made.settings.outside) == (70, "extend")
    paper = make_admission(dataclasses.replace(config, fac_paper=True, fac_outside=None), seed=0)
    assert (paper.settings.bins, paper.settings.on_equivalent) == (70, "discard")
    ranges = dataclasses.replace(config, fac_bounds="[[0, 0, 0], [1, 2, 3]]")
    assert make_admission(ranges, 0).settings.bounds[1] == (1.0, 2.0, 3.0)


def test_a_filter_given_as_an_object_is_written_down():
    def written(admission):
        config = resolve(TrainConfig(env="Pendulum-v1", admission=admission)).config
        return TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))

    given = frugalrl.FrugalFilter(bins=13, on_equivalent="discard")
    config = written(given)
    full = resolve(TrainConfig(env="Pendulum-v1", admission=given)).config
    assert resolve(full).config == full
    assert config.admission == "fac"
    assert make_admission(config, 0).settings == given.settings
    half = written(frugalrl.RandomAdmit(rate=0.5))
    assert (half.admission, half.random_rate) == ("random", 0.5)
    assert written(frugalrl.AdmitAll()).admission == "none"


def test_a_warm_up_longer_than_the_run_or_its_random_steps_is_pointed_out():
    _, _, notes = resolve(TrainConfig(env="Pendulum-v1", admission="fac", steps=5000))
    assert "nothing will be filtered" in notes[0]
    _, _, notes = resolve(TrainConfig(env="Pendulum-v1", admission="fac"))
    assert "come from the policy" in notes[0]
    assert "100 random ones" in notes[0]
    assert not resolve(TrainConfig(env="Hopper-v5", admission="fac")).notes
    assert not resolve(TrainConfig(env="Pendulum-v1")).notes
    idle = resolve(TrainConfig(env="Pendulum-v1", policy_delay=3)).notes
    assert idle == ["policy_delay has no effect with sac"]
    default = inspect.signature(frugalrl.FrugalFilter).parameters["warmup_steps"].default
    assert default == WARMUP_STEPS


def test_the_configuration_is_shown_with_its_origins():
    lines = configuration_lines(resolve(TrainConfig(env="Pendulum-v1", tau=0.5, envs=3)))
    text = "\n".join(lines)
    assert "given:   tau 0.5, envs 3" in text
    assert "use_sde True" in lines[2]
    assert "policy_delay" not in text
    assert "net_arch 64x64" in text


def test_returns_over_several_steps_do_not_mix_with_earlier_transitions(tmp_path):
    with pytest.raises(ConfigError, match=r"n_step=3 .*init_buffer"):
        resolve(TrainConfig("Pendulum-v1", n_step=3, init_buffer=tmp_path))
    with pytest.raises(ConfigError, match="n_step=0"):
        resolve(TrainConfig("Pendulum-v1", n_step=0))
