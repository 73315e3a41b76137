"""A ring of rows and environments, drawn as CleanRL's and Stable-Baselines3's buffers draw."""

from __future__ import annotations

import numpy as np
import torch


class RowBuffer:
    """Keeps the latest rows, one transition of each environment in a row."""

    def __init__(self, size, observation_space, action_space, device, environments):
        self.rows, self.environments, self.device = size // environments, environments, device
        self.held = []
        self.written = 0
        self.types = observation_space.dtype, action_space.dtype

    def add(self, obs, next_obs, action, reward, done, infos):
        row = (obs, action.reshape(self.environments, -1), next_obs, done, reward)
        if self.written < self.rows:
            self.held.append(row)
        else:
            self.held[self.written % self.rows] = row
        self.written += 1

    def size(self):
        return len(self.held) * self.environments

    def sample(self, batch_size):
        rows = np.random.randint(0, len(self.held), size=batch_size)  # noqa: NPY002
        environments = np.random.randint(0, self.environments, size=batch_size)  # noqa: NPY002
        chosen = [
            [column[environment] for column in self.held[row]]
            for row, environment in zip(rows, environments, strict=True)
        ]
        obs, action, next_obs, done, reward = (
            np.array(column) for column in zip(*chosen, strict=True)
        )
        columns = (
            obs.astype(self.types[0]),
            action.astype(self.types[1]),
            next_obs.astype(self.types[0]),
            done.astype(np.float32).reshape(-1, 1),
            reward.astype(np.float32).reshape(-1, 1),
        )
        return tuple(torch.tensor(column, device=self.device) for column in columns)
