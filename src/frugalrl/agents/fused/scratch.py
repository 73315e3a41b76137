"""Arrays that an update works in, allocated once, and the settings it reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.networks import Network
from frugalrl.agents.state import Floats, Ints, Spec

ALIGNMENT = 64  # bytes: a cache line, and a vector register


class Constants(NamedTuple):
    """Shapes and settings, as compiled code takes them."""

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
    slopes: Floats  # (m, a) of tanh there
    log_prob: Floats  # (m,)
    q: Floats  # (critics, m)
    targets: Floats  # (m,)
    actor_memory: Floats  # hidden layers of m rows
    critic_memory: Floats  # (critics, ...) hidden layers of m rows
    space: Floats  # two gradients of the widest hidden layer, n rows
    actor_gradient: Floats  # as the actor's parameters
    critic_gradients: Floats  # as the critics' parameters
    q_gradients: Floats  # (n,)
    action_gradients: Floats  # (n, a)
    output_gradients: Floats  # (n, actor outputs)
    chosen_inputs: Floats  # (n, d + a) LaBER's selection
    chosen_targets: Floats  # (n,)
    chosen_weights: Floats  # (n,)
    rows: Ints  # (n,)
    matrix: Floats  # (h, a) gSDE's exploration matrix
    variances: Floats  # (h, a) squares of gSDE's standard deviations
    deviation: Floats  # (m, a) what the matrix adds to the mean
    variance: Floats  # (m, a) of that
    latent_gradients: Floats  # (n, h) with gSDE, else (0, h)
    squares: Floats  # (m, h) with gSDE, else (0, h)


def aligned(*shape: int) -> Floats:
    """Return zeros that begin at a cache line."""
    size = int(np.prod(shape))
    raw = np.zeros(size + ALIGNMENT // 4, np.float32)
    start = -raw.ctypes.data % ALIGNMENT // 4
    return raw[start : start + size].reshape(shape)


def make_constants(spec: Spec) -> Constants:
    """Collect what compiled code needs to know."""
    settings = spec.settings
    return Constants(
        actor_sizes=np.array(spec.actor.sizes, np.int64),
        critic_sizes=np.array(spec.critic.sizes, np.int64),
        critics=settings.critics,
        batch=settings.batch_size,
        tau=np.float32(settings.tau),
        large=settings.sampler == "large_batch",
        sde=settings.use_sde,
        learn_ent_coef=settings.learns_entropy_coefficient,
        ent_coef=np.float32(settings.initial_entropy_coefficient() if spec.stochastic else 0),
        target_entropy=spec.target_entropy,
        target_update_interval=settings.target_update_interval,
        policy_delay=settings.policy_delay,
        target_noise=np.float32(settings.target_policy_noise),
        target_noise_clip=np.float32(settings.target_noise_clip),
    )


def make_scratch(spec: Spec, m: int) -> Scratch:
    """Allocate the working space for batches of m rows."""
    settings, a = spec.settings, spec.action_size
    n, h, both = settings.batch_size, spec.latent_size, spec.observation_size + a
    actor, critic = spec.actor.sizes, spec.critic.sizes
    sde = settings.use_sde
    return Scratch(
        inputs=aligned(m, both),
        outputs=aligned(m, actor[-1]),
        actions=aligned(m, a),
        slopes=aligned(m, a),
        log_prob=aligned(m),
        q=aligned(settings.critics, m),
        targets=aligned(m),
        actor_memory=aligned(m * sum(actor[1:-1])),
        critic_memory=aligned(settings.critics, m * sum(critic[1:-1])),
        space=aligned(2 * n * max(*actor[1:-1], *critic[1:-1])),
        actor_gradient=aligned(spec.actor_size),
        critic_gradients=aligned(settings.critics * spec.critic.size),
        q_gradients=aligned(n),
        action_gradients=aligned(n, a),
        output_gradients=aligned(n, actor[-1]),
        chosen_inputs=aligned(n, both),
        chosen_targets=aligned(n),
        chosen_weights=aligned(n),
        rows=np.zeros(n, np.int64),
        matrix=aligned(h, a),
        variances=aligned(h, a),
        deviation=aligned(m if sde else 0, a),
        variance=aligned(m if sde else 0, a),
        latent_gradients=aligned(n if sde else 0, h),
        squares=aligned(m if sde else 0, h),
    )


@compiled
def actor_network(parameters: Floats, scratch: Scratch, constants: Constants) -> Network:
    """Return the actor, or its target, with its working space."""
    return Network(
        parameters,
        scratch.actor_gradient,
        constants.actor_sizes,
        scratch.actor_memory,
        scratch.space,
    )


@compiled
def critic_network(
    parameters: Floats, index: int, scratch: Scratch, constants: Constants
) -> Network:
    """Return one of the critics, or of their targets, with its working space."""
    size = parameters.shape[0] // constants.critics
    part = slice(index * size, (index + 1) * size)
    return Network(
        parameters[part],
        scratch.critic_gradients[part],
        constants.critic_sizes,
        scratch.critic_memory[index],
        scratch.space,
    )
