"""A trained policy, in NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.agents.state import EPSILON, LOG_STD_MAX, LOG_STD_MIN, SDE_MEAN_BOUND, Floats, Mlp


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
        given = np.asarray(actions, np.float32)
        return given if self._unit else (given - self.low) / self._half - np.float32(1)


CLIP = np.float32(10)  # normalized values beyond it are cut off


class ObservationScale:
    """Shifts and scales observations by statistics that were fixed when training ended."""

    def __init__(self, mean: Any, scale: Any) -> None:
        self.mean = np.asarray(mean, np.float32)
        self.scale = np.asarray(scale, np.float32)

    def __call__(self, observations: Floats) -> Floats:
        """Normalize observations (..., d)."""
        scaled: Floats = (observations - self.mean) * self.scale
        return scaled.clip(-CLIP, CLIP)


class Policy:
    """The deterministic policy: observations in, the environment's actions out.

    Args:
        parameters: The actor's flat vector; after the network, gSDE's log standard deviations.
        sizes: Widths of the network, inputs and outputs included; with more outputs than actions
            it says log standard deviations too.
        clip_mean: Whether the mean is clipped before squashing, as gSDE does.
        scale: The environment's bounds.
        normalize: What observations go through first; None: nothing.
    """

    def __init__(
        self,
        parameters: Floats,
        sizes: tuple[int, ...],
        clip_mean: bool,
        scale: ActionScale,
        normalize: ObservationScale | None = None,
    ) -> None:
        self.mlp = Mlp(tuple(sizes))
        self.action_size = len(scale.low)
        self.clip_mean = clip_mean
        self.scale = scale
        self.normalize = normalize
        self._generator = np.random.default_rng()
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

    def mean(self, output: Floats) -> Floats:
        """Return the mean action (n, a) before squashing, given the network's output."""
        mean = output[..., : self.action_size]
        return np.clip(mean, -SDE_MEAN_BOUND, SDE_MEAN_BOUND) if self.clip_mean else mean

    def deviation(self, output: Floats, hidden: Floats) -> Floats:
        """Return SAC's standard deviation (n, a) before squashing."""
        if self.clip_mean:
            log_std = self.parameters[self.mlp.size :].reshape(hidden.shape[-1], -1)
            variance = np.square(hidden) @ np.square(np.exp(log_std)) + EPSILON
            return np.asarray(np.sqrt(variance), np.float32)
        log_std = np.clip(output[..., self.action_size :], LOG_STD_MIN, LOG_STD_MAX)
        return np.asarray(np.exp(log_std), np.float32)

    def __call__(self, observations: Any) -> Floats:
        """Return the environment's actions for one observation (d,) or several (n, d)."""
        output, _ = self.forward(self._checked(observations))
        return self.scale.to_environment(np.tanh(self.mean(output)))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Floats, Any]:
        """Act as Stable-Baselines3's ``predict`` does, so that its tools take this policy too.

        Args:
            observation: One (d,) or several (n, d).
            state: Given back as it came: there is no recurrent state.
            episode_start: Ignored.
            deterministic: Whether to take SAC's mean action, or to draw from its distribution
                (``seed`` sets the generator). Policies of TD3 and DDPG are always deterministic.

        Returns:
            The environment's actions, and the state.
        """
        if deterministic or not (self.clip_mean or self.mlp.sizes[-1] > self.action_size):
            return self(observation), state
        output, hidden = self.forward(self._checked(observation))
        mean = self.mean(output)
        noise = self._generator.standard_normal(mean.shape, np.float32)
        actions = np.tanh(mean + self.deviation(output, hidden) * noise)
        return self.scale.to_environment(actions), state

    def seed(self, seed: int) -> None:
        """Set the generator that ``predict`` draws from."""
        self._generator = np.random.default_rng(seed)

    def _checked(self, observations: Any) -> Floats:
        array = np.asarray(observations, np.float32)
        size = self.mlp.sizes[0]
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise ValueError(
                f"observation has shape {array.shape}; this policy takes ({size},) or (n, {size})"
            )
        return array if self.normalize is None else self.normalize(array)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.mlp.sizes[1:-1]))
        return f"Policy({self.mlp.sizes[0]} observations, {shape}, {self.action_size} actions)"

    def state(self) -> dict[str, Any]:
        """Return arrays and JSON values that ``from_state`` rebuilds the policy from."""
        return {
            "parameters": self.parameters.copy(),
            "sizes": list(self.mlp.sizes),
            "action_size": self.action_size,
            "clip_mean": self.clip_mean,
            "low": self.scale.low,
            "high": self.scale.high,
            "normalize": None if self.normalize is None else vars(self.normalize).copy(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Policy:
        """Rebuild a policy from ``state()``."""
        statistics = state["normalize"]
        return cls(
            np.array(state["parameters"], np.float32),
            tuple(state["sizes"]),
            bool(state["clip_mean"]),
            ActionScale(state["low"], state["high"]),
            None if statistics is None else ObservationScale(**statistics),
        )
