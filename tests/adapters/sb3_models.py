"""Small models of Stable-Baselines3."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from frugalrl.adapters.sb3 import FrugalReplayBuffer

SMALL = {
    "learning_starts": 20,
    "batch_size": 16,
    "buffer_size": 60,
    "train_freq": 2,
    "gradient_steps": 1,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [8, 8]},
}


def build(algorithm, make_env, environments=1, normalize=False, policy="MlpPolicy", **settings):
    env = DummyVecEnv([make_env] * environments)
    if normalize:
        env = VecNormalize(env)
    # Stable-Baselines3 writes into the dictionaries it is given.
    return algorithm(policy, env, **deepcopy({**SMALL, "seed": 4, **settings}))


def parameters(model):
    return [tensor.clone() for tensor in model.policy.state_dict().values()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def make_buffer(environments=1, size=300, **arguments):
    return FrugalReplayBuffer(
        size,
        spaces.Box(0.0, 1.0, (2,), np.float64),
        spaces.Box(-1.0, 1.0, (1,), np.float32),
        "cpu",
        environments,
        **arguments,
    )


def frugal_model(pendulum, **settings):
    return build(
        SAC,
        pendulum,
        2,
        buffer_size=80,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 30, "bins": 5},
        **settings,
    )
