"""What an update works with, made once: networks, arrays for all it computes, and settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.fused.networks import Networks
from frugalrl.agents.state import Floats, Mlp, Spec

ALIGNMENT = 64  # bytes: a cache line, and a vector register


class Workspace(NamedTuple):
    """All but the state and the data, for batches of m rows, of which n are learned from."""

    actor: Networks
    critics: Networks
    inputs: Floats  # (m, d + a) observations and actions
    outputs: Floats  # (m, actor outputs)
    actions: Floats  # (m, a) next actions, then (n, a) of the policy now
    slopes: Floats  # (m, a) of tanh there
    log_prob: Floats  # (m,)
    q: Floats  # (critics, m)
    targets: Floats  # (m,) what the critics should say
    action_gradients: Floats  # (n, a)
    output_gradients: Floats  # (n, actor outputs)
    matrix: Floats  # (h, a) gSDE's exploration matrix
    variances: Floats  # (h, a) squares of gSDE's standard deviations
    deviation: Floats  # (m, a) what the matrix adds to the mean
    variance: Floats  # (m, a) of that
    latent_gradients: Floats  # (n, h) with gSDE, else (0, h)
    squares: Floats  # (m, h) with gSDE, else (0, h)
    batch: int  # n
    tau: np.float32
    large: bool  # LaBER selects the critics' batches
    sde: bool
    learn_ent_coef: bool
    ent_coef: np.float32  # unless learned
    target_entropy: float
    target_update_interval: int
    policy_delay: int
    target_noise: np.float32
    target_noise_clip: np.float32


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
    space = aligned(2 * n * widest)

    def networks(mlp: Mlp, count: int, parameters: Floats) -> Networks:
        rows = parameters.reshape(count, -1)
        memory = aligned(count, m * sum(mlp.sizes[1:-1]))
        return Networks(np.array(mlp.sizes), rows, aligned(*rows.shape), memory, space)

    return Workspace(
        actor=networks(spec.actor, 1, state.actor),
        critics=networks(spec.critic, settings.critics, state.critics),
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
        large=settings.sampler == "large_batch",
        sde=sde,
        learn_ent_coef=settings.learns_entropy_coefficient,
        ent_coef=np.float32(settings.initial_entropy_coefficient() if spec.stochastic else 0),
        target_entropy=spec.target_entropy,
        target_update_interval=settings.target_update_interval,
        policy_delay=settings.policy_delay,
        target_noise=np.float32(settings.target_policy_noise),
        target_noise_clip=np.float32(settings.target_noise_clip),
    )
