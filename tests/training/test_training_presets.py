"""Every preset is one of the published runs: compared with a table of those runs."""

from __future__ import annotations

import pytest

from frugalrl.training import TrainConfig
from frugalrl.training.config import agent_settings, resolve
from frugalrl.training.presets import PRESETS, environment_name

# The settings where a run's own script was silent: those of the Stable-Baselines3 of that time.
SAC = {
    "learning_rate": 3e-4,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "train_freq": 1,
    "gradient_steps": 1,
    "net_arch": (256, 256),
    "ent_coef": "auto",
    "use_sde": False,
    "log_std_init": -3.0,
}
TD3 = {
    "learning_rate": 1e-3,
    "batch_size": 100,
    "tau": 0.005,
    "gamma": 0.99,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "train_freq": "episode",
    "gradient_steps": -1,
    "net_arch": (400, 300),
    "action_noise": "none",
    "policy_delay": 2,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
}
K = 1000
WIDE = {"net_arch": (256, 256)}
NORMAL = {"action_noise": "normal", "action_noise_std": 0.1}
LATE = {"learning_starts": 10 * K}
LUNAR = {"learning_rate": 7.3e-4, "net_arch": (400, 300), **LATE}
SDE = {"use_sde": True}

RUNS = {
    ("Pendulum-v1", "sac"): {
        "steps": 20 * K,
        "learning_rate": 1e-3,
        "net_arch": (64, 64),
        "log_std_init": -2.0,
        **SDE,
    },
    ("MountainCarContinuous-v0", "sac"): {
        "steps": 50 * K,
        "buffer_size": 50 * K,
        "learning_starts": 0,
        "batch_size": 512,
        "tau": 0.01,
        "gamma": 0.9999,
        "train_freq": 32,
        "gradient_steps": 32,
        "ent_coef": 0.1,
        "net_arch": (64, 64),
        "log_std_init": -3.67,
        **SDE,
    },
    ("LunarLanderContinuous-v3", "sac"): {"steps": 500 * K, **LUNAR},
    ("ReacherBulletEnv-v0", "sac"): {
        "steps": 250 * K,
        "buffer_size": 250 * K,
        **LUNAR,
        "tau": 0.02,
        "gamma": 0.98,
        "train_freq": 64,
        "gradient_steps": 64,
        **SDE,
    },
    ("Swimmer-v5", "sac"): {"steps": 500 * K, "gamma": 0.9999, **LATE},
    ("Hopper-v5", "sac"): {"steps": 1000 * K, **LATE},
    ("Walker2d-v5", "sac"): {"steps": 1000 * K, **LATE},
    ("Ant-v5", "sac"): {"steps": 1000 * K, **LATE},
    ("Humanoid-v5", "sac"): {"steps": 2000 * K, **LATE},
    ("Pendulum-v1", "td3"): {"steps": 20 * K, "learning_rate": 5e-3, **WIDE, **LATE},
    ("MountainCarContinuous-v0", "td3"): {
        "steps": 100 * K,
        "batch_size": 128,
        "action_noise": "ornstein-uhlenbeck",
        "action_noise_std": 0.5,
    },
    ("LunarLanderContinuous-v3", "td3"): {
        "steps": 300 * K,
        "buffer_size": 200 * K,
        "gamma": 0.98,
        **NORMAL,
        **LATE,
    },
    ("ReacherBulletEnv-v0", "td3"): {
        "steps": 250 * K,
        "buffer_size": 20 * K,
        "gamma": 0.98,
        **NORMAL,
        **LATE,
    },
    ("Swimmer-v5", "td3"): {"steps": 1000 * K, "batch_size": 128, **WIDE, **NORMAL, **LATE},
    ("Hopper-v5", "td3"): {"steps": 1000 * K, "learning_rate": 3e-4, **WIDE, **LATE},
    ("Walker2d-v5", "td3"): {"steps": 1000 * K, **WIDE, **LATE},
    ("Ant-v5", "td3"): {"steps": 1000 * K, "batch_size": 128, **WIDE, **LATE},
    ("Humanoid-v5", "td3"): {
        "steps": 2000 * K,
        "learning_rate": 1e-4,
        "batch_size": 128,
        **WIDE,
        **LATE,
        "train_freq": 1,
        "gradient_steps": 1,
    },
}


def test_there_is_a_preset_for_every_run_and_no_other():
    assert set(PRESETS) == {(environment_name(env), algo) for env, algo in RUNS}
    assert len(PRESETS) == 18


@pytest.mark.parametrize(("env", "algo"), RUNS)
def test_a_preset_is_its_run(env, algo):
    full = resolve(TrainConfig(env=env, algo=algo)).config
    expected = {**(SAC if algo == "sac" else TD3), **RUNS[env, algo]}
    assert {name: getattr(full, name) for name in expected} == expected
    agent_settings(full)
