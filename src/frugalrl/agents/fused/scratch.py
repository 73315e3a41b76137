"""Arrays that an update works in, allocated once, and the numbers it needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from frugalrl.agents.state import Floats, Ints, Spec

ALIGNMENT = 64  # bytes: a cache line, and a vector register


class Numbers(NamedTuple):
    """Settings as the kernels take them."""

    actor_sizes: Ints
    critic_sizes: Ints
    critics: int
    batch: int
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


class Scratch(NamedTuple):
    """Working space for batches of m rows, of which n are learned from."""

    inputs: Floats  # (m, d + a) observations and actions
    outputs: Floats  # (m, actor outputs)
    actions: Floats  # (m, a) next actions, then (n, a) of the policy now
    log_prob: Floats  # (m,)
    q: Floats  # (critics, m)
    targets: Floats  # (m,)
    actor_memory: Floats  # hidden layers of m rows
    critic_memory: Floats  # (critics, ...) hidden layers of m rows
    gradients: Floats  # two gradients of the widest hidden layer, n rows
    actor_slopes: Floats  # as the actor's parameters
    critic_slopes: Floats  # as the critics' parameters
    q_slopes: Floats  # (n,)
    action_slopes: Floats  # (n, a)
    output_slopes: Floats  # (n, actor outputs)
    chosen_inputs: Floats  # (n, d + a) LaBER's selection
    chosen_targets: Floats  # (n,)
    chosen_weights: Floats  # (n,)
    rows: Ints  # (n,)
    matrix: Floats  # (h, a) gSDE's exploration matrix
    variances: Floats  # (h, a) squares of gSDE's standard deviations
    deviation: Floats  # (m, a) what the matrix adds to the mean
    variance: Floats  # (m, a) of that
    latent_slopes: Floats  # (n, h) with gSDE, else (0, h)
    squares: Floats  # (m, h) with gSDE, else (0, h)


def aligned(*shape: int) -> Floats:
    """Return zeros that begin at a cache line."""
    size = int(np.prod(shape))
    raw = np.zeros(size + ALIGNMENT // 4, np.float32)
    start = -raw.ctypes.data % ALIGNMENT // 4
    return raw[start : start + size].reshape(shape)


def make_numbers(spec: Spec) -> Numbers:
    """Collect what the kernels need to know."""
    settings = spec.settings
    sac = spec.stochastic
    return Numbers(
        np.array(spec.actor.sizes, np.int64),
        np.array(spec.critic.sizes, np.int64),
        settings.critics,
        settings.batch_size,
        np.float32(settings.tau),
        settings.sampler == "large_batch",
        settings.use_sde,
        settings.learns_entropy_coefficient,
        np.float32(settings.initial_entropy_coefficient() if sac else 0),
        spec.target_entropy,
        settings.target_update_interval,
        settings.policy_delay,
        np.float32(settings.target_policy_noise),
        np.float32(settings.target_noise_clip),
    )


def make_scratch(spec: Spec, m: int) -> Scratch:
    """Allocate the working space for batches of m rows."""
    settings, a = spec.settings, spec.action_size
    n, h, both = settings.batch_size, settings.net_arch[-1], spec.observation_size + a
    outputs, hidden = spec.actor.sizes[-1], sum(settings.net_arch)
    sde = settings.use_sde
    return Scratch(
        inputs=aligned(m, both),
        outputs=aligned(m, outputs),
        actions=aligned(m, a),
        log_prob=aligned(m),
        q=aligned(settings.critics, m),
        targets=aligned(m),
        actor_memory=aligned(m * hidden),
        critic_memory=aligned(settings.critics, m * hidden),
        gradients=aligned(2 * n * max(settings.net_arch)),
        actor_slopes=aligned(spec.actor_size),
        critic_slopes=aligned(settings.critics * spec.critic.size),
        q_slopes=aligned(n),
        action_slopes=aligned(n, a),
        output_slopes=aligned(n, outputs),
        chosen_inputs=aligned(n, both),
        chosen_targets=aligned(n),
        chosen_weights=aligned(n),
        rows=np.zeros(n, np.int64),
        matrix=aligned(h, a),
        variances=aligned(h, a),
        deviation=aligned(m if sde else 0, a),
        variance=aligned(m if sde else 0, a),
        latent_slopes=aligned(n if sde else 0, h),
        squares=aligned(m if sde else 0, h),
    )
