"""Small environments and models: enough to pass `learning_starts`, quick enough to run often."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

torch.set_num_threads(1)


class DictPendulum(gymnasium.ObservationWrapper):
    """Pendulum that shows its angle, its speed and the quadrant it is in as a Dict."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Dict(
            {
                "angle": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "quadrant": spaces.Discrete(4),
                "speed": spaces.Box(-8.0, 8.0, (1,), np.float64),
            }
        )

    def observation(self, observation):
        cosine, sine, speed = observation
        return {
            "angle": np.array([cosine, sine], np.float32),
            "quadrant": 2 * int(cosine > 0) + int(sine > 0),
            "speed": np.array([speed], np.float64),
        }


class CameraPendulum(gymnasium.ObservationWrapper):
    """Pendulum with its state beside an image of one shade, which is the cosine of its angle."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (3, 36, 36), np.uint8),
                "state": env.observation_space,
            }
        )

    def observation(self, observation):
        shade = np.uint8(127 * (1 + observation[0]))
        return {"camera": np.full((3, 36, 36), shade), "state": observation}


def make_pendulum(steps=15):
    """Pendulum with episodes so short that time limits are met."""
    return gymnasium.make("Pendulum-v1", max_episode_steps=steps)


def make_dict_pendulum():
    return DictPendulum(make_pendulum())


def make_camera_pendulum():
    return CameraPendulum(make_pendulum())


@pytest.fixture
def camera_pendulum():
    return make_camera_pendulum


@pytest.fixture
def pendulum():
    return make_pendulum


@pytest.fixture
def dict_pendulum():
    return make_dict_pendulum
