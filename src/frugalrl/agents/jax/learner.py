"""Updates in a row, in one call that JAX compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from frugalrl.agents.jax import sac, td3
from frugalrl.agents.state import Inputs, Spec, State
from frugalrl.compiling import COMPILATION


@lru_cache(maxsize=64)
def compiled_updates(spec: Spec) -> Callable[..., Any]:
    """Return JAX's function that does K updates in a row, K being the inputs' first axis."""
    # Every update is waited for, so a hand-over to another thread only costs.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    update: Callable[..., Any] = sac.update if spec.stochastic else td3.update

    def run(state: Any, inputs: Inputs, rate: Any) -> Any:
        def step(old: Any, data: Any) -> Any:
            return update(spec, old, data[0], rate, data[1])

        return jax.lax.scan(step, state, (inputs, jnp.arange(len(inputs.rewards))))

    return jax.jit(run, donate_argnums=0)


class Learner:
    """Updates compiled by JAX from the losses themselves, on whatever device JAX uses."""

    def __init__(self, spec: Spec, state: State) -> None:
        self._update = compiled_updates(spec)
        self._shapes: set[tuple[int, ...]] = set()
        self.load(state)

    def load(self, state: State) -> None:
        """Continue from a state, which is copied."""
        self.state: Any = type(state)(*(jnp.array(array) for array in state))

    def update(self, inputs: Inputs, rate: float) -> Any:
        """Do K updates in one compiled call; return their losses (K, ...) and errors (K, n)."""
        shape = inputs.rewards.shape
        # The first call with a shape is all but its compilation.
        with contextlib.nullcontext() if shape in self._shapes else COMPILATION:
            self.state, result = self._update(self.state, inputs, np.float32(rate))
        self._shapes.add(shape)
        return result
