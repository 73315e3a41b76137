"""Settings of the nine benchmark environments, and Stable-Baselines3's defaults for all others.

A preset holds only what differs from the defaults. The presets are the runs of the Frugal
Actor-Critic experiments; where those were silent, the defaults of the Stable-Baselines3 of that
time counted, which for TD3 were not today's: batches of 100, and after each episode as many
updates as it had steps.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from frugalrl.agents.settings import AgentSettings

Settings = dict[str, Any]


def defaults(algo: str) -> Settings:
    """Give Stable-Baselines3's defaults for an algorithm."""
    settings = asdict(AgentSettings.defaults(algo))
    del settings["algo"], settings["sampler"]
    # In a configuration None means "not chosen", so that no noise needs a name of its own.
    settings["action_noise"] = settings["action_noise"] or "none"
    of_the_loop = {"learning_starts": 100, "train_freq": 1, "gradient_steps": 1}
    return {**settings, "buffer_size": 1_000_000, **of_the_loop}


_RANDOM: Settings = {"learning_starts": 10_000}
_NORMAL: Settings = {"action_noise": "normal", "action_noise_std": 0.1}
_LUNAR: Settings = {**_RANDOM, "learning_rate": 7.3e-4, "net_arch": (400, 300)}
_TD3: Settings = {"batch_size": 100, "train_freq": "episode", "gradient_steps": -1}
_SMALL: Settings = {"net_arch": (64, 64), "use_sde": True}
_WIDE: Settings = {"net_arch": (256, 256)}

PRESETS: dict[tuple[str, str], Settings] = {
    ("Pendulum", "sac"): {"steps": 20_000, "learning_rate": 1e-3, "log_std_init": -2.0, **_SMALL},
    ("MountainCarContinuous", "sac"): {
        "steps": 50_000,
        "buffer_size": 50_000,
        "learning_starts": 0,
        "batch_size": 512,
        "tau": 0.01,
        "gamma": 0.9999,
        "train_freq": 32,
        "gradient_steps": 32,
        "ent_coef": 0.1,
        "log_std_init": -3.67,
        **_SMALL,
    },
    ("LunarLanderContinuous", "sac"): dict(_LUNAR, steps=500_000),
    ("ReacherBulletEnv", "sac"): dict(
        _LUNAR,
        steps=250_000,
        buffer_size=250_000,
        tau=0.02,
        gamma=0.98,
        train_freq=64,
        gradient_steps=64,
        log_std_init=-3.0,
        use_sde=True,
    ),
    ("Swimmer", "sac"): dict(_RANDOM, steps=500_000, gamma=0.9999),
    ("Hopper", "sac"): dict(_RANDOM, steps=1_000_000),
    ("Walker2d", "sac"): dict(_RANDOM, steps=1_000_000),
    ("Ant", "sac"): dict(_RANDOM, steps=1_000_000),
    ("Humanoid", "sac"): dict(_RANDOM, steps=2_000_000),
    ("Pendulum", "td3"): dict(_TD3 | _RANDOM | _WIDE, steps=20_000, learning_rate=5e-3),
    ("MountainCarContinuous", "td3"): dict(
        _TD3, steps=100_000, batch_size=128, action_noise="ornstein-uhlenbeck", action_noise_std=0.5
    ),
    ("LunarLanderContinuous", "td3"): dict(
        _TD3 | _RANDOM | _NORMAL, steps=300_000, buffer_size=200_000, gamma=0.98
    ),
    ("ReacherBulletEnv", "td3"): dict(
        _TD3 | _RANDOM | _NORMAL, steps=250_000, buffer_size=20_000, gamma=0.98
    ),
    ("Swimmer", "td3"): dict(_TD3 | _RANDOM | _NORMAL | _WIDE, steps=1_000_000, batch_size=128),
    ("Hopper", "td3"): dict(_TD3 | _RANDOM | _WIDE, steps=1_000_000, learning_rate=3e-4),
    ("Walker2d", "td3"): dict(_TD3 | _RANDOM | _WIDE, steps=1_000_000),
    ("Ant", "td3"): dict(_TD3 | _RANDOM | _WIDE, steps=1_000_000, batch_size=128),
    ("Humanoid", "td3"): dict(_RANDOM | _WIDE, steps=2_000_000, learning_rate=1e-4, batch_size=128),
}
"""What differs from the defaults, by the environment's name without version and the algorithm."""


def environment_name(env_id: str) -> str:
    """Strip module, namespace and version: `module:Hopper-v5` is `Hopper`."""
    name = env_id.rpartition(":")[2].rpartition("/")[2]
    return re.sub(r"-v\d+$", "", name)


def find_preset(env_id: str, algo: str) -> Settings:
    """Give the preset of an environment in any version, empty if there is none."""
    return PRESETS.get((environment_name(env_id), algo), {})
