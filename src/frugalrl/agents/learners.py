"""The two engines that carry out updates: hand-written for a CPU, and JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.spec import Inputs, Spec
from frugalrl.agents.state import State

METRICS = {
    "sac": ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss"),
    "td3": ("critic_loss", "actor_loss"),
    "ddpg": ("critic_loss", "actor_loss"),
}


class Learner(Protocol):
    """Carries a state from update to update."""

    def load(self, state: State) -> None:
        """Continue from a state of NumPy arrays, which are copied."""

    def state(self) -> State:
        """Return the state as NumPy arrays, copied."""

    def actor(self) -> NDArray[np.float32]:
        """Return a view of the actor's parameters, good until the next update."""

    def update(self, inputs: Inputs, rate: float) -> tuple[Any, Any]:
        """Do K updates; return the metrics (K, ...) and absolute errors (K, n)."""


class FusedLearner:
    """Updates in place with BLAS and Numba, on one CPU."""

    def __init__(self, spec: Spec, state: State) -> None:
        from frugalrl.agents.fused import sac, td3
        from frugalrl.agents.fused.scratch import Scratch, make_numbers

        self._spec = spec
        update: Callable[..., None] = sac.update if spec.stochastic else td3.update
        self._update = update
        self._numbers = make_numbers(spec)
        self._scratch: dict[int, Scratch] = {}
        self._metrics = len(METRICS[spec.settings.algo])
        self.load(state)

    def load(self, state: State) -> None:
        """Continue from a state, which is copied."""
        from frugalrl.agents.fused.scratch import aligned

        def copy(array: NDArray[Any]) -> NDArray[Any]:
            if array.dtype != np.float32:
                return array.copy()
            new = aligned(*array.shape)
            new[...] = array
            return new

        self._state: Any = type(state)(*(copy(array) for array in state))

    def state(self) -> State:
        """Return a copy of the state."""
        copied: State = type(self._state)(*(array.copy() for array in self._state))
        return copied

    def actor(self) -> NDArray[np.float32]:
        """Return the actor's parameters, which updates change in place."""
        actor: NDArray[np.float32] = self._state.actor
        return actor

    def update(self, inputs: Inputs, rate: float) -> tuple[Any, Any]:
        """Do K updates in place."""
        from frugalrl.agents.fused.scratch import make_scratch

        k, m = inputs.rewards.shape
        scratch = self._scratch.get(m)
        if scratch is None:
            scratch = self._scratch[m] = make_scratch(self._spec, m)
        metrics = np.empty((k, self._metrics), np.float32)
        errors = np.empty((k, self._spec.settings.batch_size), np.float32)
        self._update(self._state, inputs, scratch, self._numbers, rate, metrics, errors)
        return metrics, errors


@lru_cache(maxsize=64)
def compiled_updates(spec: Spec) -> Callable[..., Any]:
    """Return JAX's function that does K updates in a row, K being the inputs' first axis."""
    import jax
    import jax.numpy as jnp

    from frugalrl.agents import sac, td3

    # Every update is waited for, so a hand-over to another thread only costs.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    update: Callable[..., Any] = sac.update if spec.stochastic else td3.update

    def run(state: Any, inputs: Inputs, rate: Any) -> Any:
        def step(old: Any, data: Any) -> Any:
            return update(spec, old, data[0], rate, data[1])

        state, (metrics, errors) = jax.lax.scan(
            step, state, (inputs, jnp.arange(len(inputs.rewards)))
        )
        return state, metrics, errors

    return jax.jit(run, donate_argnums=0)


class JaxLearner:
    """Updates compiled by JAX from the losses themselves, on whatever device JAX uses."""

    def __init__(self, spec: Spec, state: State) -> None:
        self._update = compiled_updates(spec)
        self.load(state)

    def load(self, state: State) -> None:
        """Continue from a state, which is copied."""
        import jax.numpy as jnp

        self._state: Any = type(state)(*(jnp.array(array) for array in state))
        self._actor = np.asarray(self._state.actor)

    def state(self) -> State:
        """Return a copy of the state."""
        copied: State = type(self._state)(*(np.array(array) for array in self._state))
        return copied

    def actor(self) -> NDArray[np.float32]:
        """Return the actor's parameters, without a copy where they lie in the CPU's memory."""
        return self._actor

    def update(self, inputs: Inputs, rate: float) -> tuple[Any, Any]:
        """Do K updates in one compiled call."""
        self._state, metrics, errors = self._update(self._state, inputs, np.float32(rate))
        self._actor = np.asarray(self._state.actor)
        return metrics, errors


def make_learner(spec: Spec, state: State) -> Learner:
    """Build the engine that the settings ask for."""
    if spec.settings.engine == "jax":
        return JaxLearner(spec, state)
    return FusedLearner(spec, state)
