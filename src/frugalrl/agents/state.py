"""What an update changes, and how it begins; the same arrays for either engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from frugalrl.agents.spec import Spec


class SacState(NamedTuple):
    """SAC's networks and optimizers."""

    actor: Any  # (actor parameters,)
    actor_first: Any  # Adam's averages of the slopes ...
    actor_second: Any  # ... and of their squares
    critics: Any  # (critics x critic parameters,)
    critics_first: Any
    critics_second: Any
    targets: Any  # as critics
    ent_coef: Any  # (3,) logarithm of the entropy coefficient, its averages
    updates: Any  # (1,) done so far


class Td3State(NamedTuple):
    """TD3's networks and optimizers."""

    actor: Any  # (actor parameters,)
    actor_first: Any
    actor_second: Any
    actor_target: Any  # as actor
    critics: Any  # (critics x critic parameters,)
    critics_first: Any
    critics_second: Any
    targets: Any  # as critics
    actor_loss: Any  # (1,) of the last update that had one
    updates: Any  # (1,) done so far


State = SacState | Td3State


def initial_state(spec: Spec, rng: np.random.Generator) -> State:
    """Draw the networks, as NumPy arrays."""
    actor, critics = spec.init_actor(rng), spec.init_critics(rng)
    updates = np.zeros(1, np.int32)
    zeros = np.zeros_like
    if not spec.stochastic:
        return Td3State(
            actor,
            zeros(actor),
            zeros(actor),
            actor.copy(),
            critics,
            zeros(critics),
            zeros(critics),
            critics.copy(),
            np.zeros(1, np.float32),
            updates,
        )
    ent_coef = np.zeros(3, np.float32)
    if spec.settings.learns_entropy_coefficient:
        ent_coef[0] = np.log(spec.settings.initial_entropy_coefficient())
    return SacState(
        actor,
        zeros(actor),
        zeros(actor),
        critics,
        zeros(critics),
        zeros(critics),
        critics.copy(),
        ent_coef,
        updates,
    )
