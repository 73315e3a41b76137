"""The memory that updates work in, and the updates in place, on one CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.fused import sac, td3
from frugalrl.agents.fused.networks import Networks, Workspace
from frugalrl.agents.settings import LOSSES
from frugalrl.agents.state import Floats, Inputs, Mlp, Spec, State

ALIGNMENT = 64  # bytes: a cache line, and a vector register


def aligned(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return zeros of four bytes each that begin at a cache line."""
    size = int(np.prod(shape))
    raw = np.zeros(size + ALIGNMENT // 4, dtype)
    start = -raw.ctypes.data % ALIGNMENT // 4
    return raw[start : start + size].reshape(shape)


def make_workspace(spec: Spec, state: Any, m: int) -> Workspace:
    """Allocate the workspace of a state, whose arrays are viewed, for batches of m rows."""
    settings, a = spec.settings, spec.action_size
    n, h = settings.batch_size, spec.latent_size
    outputs, sde = spec.actor.sizes[-1], settings.use_sde
    widest = max(*spec.actor.sizes[1:-1], *spec.critic.sizes[1:-1])
    scratch = aligned(2, n * widest)

    def networks(mlp: Mlp, count: int, parameters: Floats) -> Networks:
        rows = parameters.reshape(count, -1)
        hidden = aligned(count, len(mlp.sizes) - 2, m * widest)
        return Networks(np.array(mlp.sizes), rows, aligned(*rows.shape), hidden, scratch)

    actor = networks(spec.actor, 1, state.actor)
    critics = networks(spec.critic, settings.critics, state.critics)
    actor_target = state.actor if spec.stochastic else state.actor_target
    return Workspace(
        actor=actor,
        critics=critics,
        target_actor=actor._replace(parameters=actor_target.reshape(1, -1)),
        target_critics=critics._replace(parameters=state.targets.reshape(settings.critics, -1)),
        inputs=aligned(m, spec.observation_size + a),
        outputs=aligned(m, outputs),
        actions=aligned(m, a),
        slopes=aligned(m, a),
        log_prob=aligned(m),
        q=aligned(settings.critics, m),
        targets=aligned(m),
        action_gradients=aligned(n, a),
        output_gradients=aligned(n, outputs),
        matrix=aligned(h, a),
        variances=aligned(h, a),
        deviation=aligned(m if sde else 0, a),
        variance=aligned(m if sde else 0, a),
        latent_gradients=aligned(n if sde else 0, h),
        squares=aligned(m if sde else 0, h),
        batch=n,
        tau=np.float32(settings.tau),
        sde=sde,
        learn_ent_coef=settings.learns_entropy_coefficient,
        ent_coef=np.float32(settings.initial_entropy_coefficient()),
        target_entropy=spec.target_entropy,
        target_update_interval=settings.target_update_interval,
        policy_delay=settings.policy_delay,
        target_noise=np.float32(settings.target_policy_noise),
        target_noise_clip=np.float32(settings.target_noise_clip),
    )


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
        """Do K updates in place; return their losses (K, ...) and errors (K, n)."""
        k, m = inputs.rewards.shape
        work = self._workspaces.get(m)
        if work is None:
            work = self._workspaces[m] = make_workspace(self._spec, self.state, m)
        losses = np.empty((k, len(LOSSES[self._spec.settings.algo])), np.float32)
        errors = np.empty((k, self._spec.settings.batch_size), np.float32)
        self._update(self.state, inputs, work, rate, losses, errors)
        return losses, errors
