"""Updates in place, on one CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.fused import sac, td3
from frugalrl.agents.fused.scratch import Scratch, aligned, make_constants, make_scratch
from frugalrl.agents.settings import LOSSES
from frugalrl.agents.state import Inputs, Spec, State


class FusedLearner:
    """Updates in place with BLAS and Numba, on one CPU."""

    def __init__(self, spec: Spec, state: State) -> None:
        self._spec = spec
        self._update: Callable[..., None] = sac.update if spec.stochastic else td3.update
        self._constants = make_constants(spec)
        self._scratch: dict[int, Scratch] = {}
        self._losses = len(LOSSES[spec.settings.algo])
        self.load(state)

    def load(self, state: State) -> None:
        """Continue from a state, which is copied."""

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
        k, m = inputs.rewards.shape
        scratch = self._scratch.get(m)
        if scratch is None:
            scratch = self._scratch[m] = make_scratch(self._spec, m)
        losses = np.empty((k, self._losses), np.float32)
        errors = np.empty((k, self._spec.settings.batch_size), np.float32)
        self._update(self._state, inputs, scratch, self._constants, rate, losses, errors)
        return losses, errors
