"""Updates in place, on one CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frugalrl.agents.fused import sac, td3
from frugalrl.agents.fused.workspace import Workspace, aligned, make_workspace
from frugalrl.agents.settings import LOSSES
from frugalrl.agents.state import Inputs, Spec, State


class Learner:
    """Updates in place with BLAS and Numba, on one CPU."""

    def __init__(self, spec: Spec, state: State) -> None:
        self._spec = spec
        self._update: Callable[..., None] = sac.update if spec.stochastic else td3.update
        self._workspaces: dict[int, Workspace] = {}
        self.state: Any = type(state)(*(aligned(*one.shape, dtype=one.dtype) for one in state))
        self.load(state)

    def load(self, state: State) -> None:
        """Continue from a state, which is copied."""
        for array, given in zip(self.state, state, strict=True):
            array[...] = given

    def update(self, inputs: Inputs, rate: float) -> tuple[Any, Any]:
        """Do K updates in place."""
        k, m = inputs.rewards.shape
        work = self._workspaces.get(m)
        if work is None:
            work = self._workspaces[m] = make_workspace(self._spec, self.state, m)
        losses = np.empty((k, len(LOSSES[self._spec.settings.algo])), np.float32)
        errors = np.empty((k, self._spec.settings.batch_size), np.float32)
        self._update(self.state, inputs, work, rate, losses, errors)
        return losses, errors
