from __future__ import annotations

import inspect
import json

import pytest
import stable_baselines3

from frugalrl.agents import AgentSettings


@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg"])
def test_defaults_are_stable_baselines3s(algo):
    settings = AgentSettings.defaults(algo)
    theirs = inspect.signature(getattr(stable_baselines3, algo.upper()).__init__).parameters
    shared = [name for name in settings.to_dict() if name in theirs and name != "action_noise"]
    assert {"learning_rate", "batch_size", "tau", "gamma"} <= set(shared)
    for name in shared:
        assert getattr(settings, name) == theirs[name].default, name


def test_ddpg_is_td3_without_its_three_ideas():
    settings = AgentSettings.defaults("ddpg")
    assert (settings.critics, settings.policy_delay, settings.target_noise_clip) == (1, 1, 0.0)
    assert AgentSettings.defaults("td3").critics == 2


def test_settings_survive_json():
    settings = AgentSettings.defaults("sac", ent_coef="auto_0.1", net_arch=[64, 32])
    again = AgentSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
    assert hash(again) == hash(settings)


def test_actor_and_critics_of_different_sizes():
    settings = AgentSettings(net_arch={"pi": [64, 32], "qf": (256,)})
    assert (settings.actor_arch, settings.critic_arch) == ((64, 32), (256,))
    assert str(settings.net_arch) == "64x32 and 256"
    again = AgentSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert (again, hash(again)) == (settings, hash(settings))
    assert AgentSettings(net_arch='{"pi": [64, 32], "qf": [256]}') == settings
    same = AgentSettings(net_arch={"pi": [8, 8], "qf": [8, 8]})
    assert same == AgentSettings(net_arch=[8, 8])
    assert same.actor_arch == same.critic_arch == (8, 8)


def test_learning_rate_schedules():
    assert AgentSettings(learning_rate=1e-3).learning_rate_at(0.25) == 1e-3
    assert AgentSettings(learning_rate="lin_8e-4").learning_rate_at(0.25) == pytest.approx(2e-4)


def test_initial_entropy_coefficient():
    assert AgentSettings(ent_coef="auto").initial_entropy_coefficient() == 1.0
    assert AgentSettings(ent_coef="auto_0.1").initial_entropy_coefficient() == 0.1
    assert AgentSettings(ent_coef=0.3).initial_entropy_coefficient() == 0.3
    assert not AgentSettings(ent_coef=0.3).learns_entropy_coefficient


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("algo", "ppo"),
        ("sampler", "best"),
        ("engine", "torch"),
        ("action_noise", "pink"),
        ("batch_size", 0),
        ("policy_delay", 0),
        ("target_update_interval", 0),
        ("target_policy_noise", -0.1),
        ("action_noise_std", float("nan")),
        ("tau", 0.0),
        ("gamma", 1.5),
        ("net_arch", ()),
        ("net_arch", (64, 0)),
        ("net_arch", 64),
        ("net_arch", {"pi": [64]}),
        ("net_arch", {"pi": [64], "vf": [64]}),
        ("net_arch", {"pi": [64], "qf": []}),
        ("net_arch", "64x64"),
        ("learning_rate", 0.0),
        ("learning_rate", "exp_1e-3"),
        ("ent_coef", "auto_0"),
        ("ent_coef", "autox"),
        ("ent_coef", float("inf")),
        ("target_entropy", "low"),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        AgentSettings(**{name: value})


def test_state_dependent_exploration_is_sacs():
    with pytest.raises(ValueError, match="use_sde"):
        AgentSettings.defaults("td3", use_sde=True)


def test_unknown_settings_are_named():
    with pytest.raises(ValueError, match="colour"):
        AgentSettings.from_dict({"colour": "red"})
