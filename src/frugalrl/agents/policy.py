"""A trained policy, in NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.agents.state import SDE_MEAN_BOUND, Floats, Mlp


class ActionScale:
    """Turns actions within [-1, 1] into an environment's, and back."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low = np.asarray(low, np.float32).reshape(-1)
        self.high = np.asarray(high, np.float32).reshape(-1)
        self._half = np.float32(0.5) * (self.high - self.low)
        # Nothing to do is the common case in MuJoCo, and worth a shortcut at every step.
        self._unit = bool(np.all(self.low == -1) and np.all(self.high == 1))

    def to_environment(self, actions: Floats) -> Floats:
        """Scale actions (..., a) from [-1, 1]."""
        if self._unit:
            return actions
        return self.low + (actions + np.float32(1)) * self._half

    def to_unit(self, actions: Floats) -> Floats:
        """Scale actions (..., a) to [-1, 1]."""
        if self._unit:
            return np.asarray(actions, np.float32)
        return (np.asarray(actions, np.float32) - self.low) / self._half - np.float32(1)


class Policy:
    """The deterministic policy: observations in, the environment's actions out.

    Args:
        parameters: The actor's flat vector; what follows the network in it is ignored.
        sizes: Widths of the network, inputs and outputs included.
        action_size: Actions; a network with more outputs says log standard deviations too.
        clip_mean: Whether the mean is clipped before squashing, as gSDE does.
        scale: The environment's bounds.
    """

    def __init__(
        self,
        parameters: Floats,
        sizes: tuple[int, ...],
        action_size: int,
        clip_mean: bool,
        scale: ActionScale,
    ) -> None:
        self.mlp = Mlp(tuple(sizes))
        self.action_size = action_size
        self.clip_mean = clip_mean
        self.scale = scale
        self.set_parameters(parameters)

    def set_parameters(self, parameters: Floats) -> None:
        """Act with these parameters from now on; they are viewed, not copied."""
        self.parameters = parameters
        self._layers = self.mlp.layers(parameters)

    def forward(self, observations: Floats) -> tuple[Floats, Floats]:
        """Return the network's outputs (n, out) and its last hidden layer (n, h)."""
        hidden = observations
        for weights, biases in self._layers[:-1]:
            hidden = hidden.dot(weights)
            hidden += biases
            np.maximum(hidden, 0, out=hidden)
        weights, biases = self._layers[-1]
        output = hidden.dot(weights)
        output += biases
        return output, hidden

    def unit_actions(self, observations: Floats) -> Floats:
        """Return the actions (n, a) within [-1, 1]."""
        mean = self.forward(observations)[0][..., : self.action_size]
        if self.clip_mean:
            mean = np.clip(mean, -SDE_MEAN_BOUND, SDE_MEAN_BOUND)
        return np.tanh(mean)

    def __call__(self, observations: Any) -> Floats:
        """Return the environment's actions for one observation (d,) or several (n, d)."""
        observations = np.asarray(observations, np.float32)
        return self.scale.to_environment(self.unit_actions(observations))

    def state(self) -> dict[str, Any]:
        """Return arrays and JSON values that ``from_state`` rebuilds the policy from."""
        return {
            "parameters": self.parameters[: self.mlp.size].copy(),
            "sizes": list(self.mlp.sizes),
            "action_size": self.action_size,
            "clip_mean": self.clip_mean,
            "low": self.scale.low,
            "high": self.scale.high,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Policy:
        """Rebuild a policy from ``state()``."""
        return cls(
            np.array(state["parameters"], np.float32),
            tuple(state["sizes"]),
            int(state["action_size"]),
            bool(state["clip_mean"]),
            ActionScale(state["low"], state["high"]),
        )
