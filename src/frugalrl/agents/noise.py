"""Noise added to actions: Gaussian or Ornstein-Uhlenbeck, one process for every environment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

THETA, TIME_STEP = 0.15, 1e-2  # Stable-Baselines3's defaults


class ActionNoise:
    """Noise of a kind ("normal" or "ornstein-uhlenbeck") for actions that span [-1, 1]."""

    def __init__(self, kind: str, std: float, environments: int, action_size: int) -> None:
        self.kind = kind
        self.std = std
        self.value = np.zeros((environments, action_size))

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return the next noise of every environment (n, a)."""
        normal = rng.standard_normal(self.value.shape)
        if self.kind == "normal":
            return (self.std * normal).astype(np.float32)
        self.value = (
            self.value - THETA * self.value * TIME_STEP + self.std * math.sqrt(TIME_STEP) * normal
        )
        return self.value.astype(np.float32)

    def reset(self, ended: NDArray[np.bool_]) -> None:
        """Start the processes of some environments anew."""
        self.value[ended] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return where the processes are."""
        return {"value": self.value.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.value = np.array(state["value"], float).reshape(self.value.shape)
