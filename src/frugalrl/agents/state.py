"""What both engines share: shapes of networks, what an update is given, and what it changes.

The parameters of a network lie in one flat vector. That keeps the number of arrays that enter and
leave a compiled update small, lets one loop do Adam for a whole network, and lets the acting side
read parameters without copying.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.settings import AgentSettings

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Array = TypeVar("Array", bound=Any)  # np.ndarray or jax.Array

LOG_STD_MIN, LOG_STD_MAX = np.float32(-20), np.float32(2)  # of SAC's Gaussian
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)  # of a Gaussian's logarithm
SDE_MEAN_BOUND = np.float32(2)  # gSDE's mean is clipped, else tanh saturates
EPSILON = np.float32(1e-6)  # keeps logarithms finite where tanh saturates or a variance vanishes
SMALLEST_ERROR = np.float32(1e-8)  # keeps LaBER's distribution defined where every error vanishes


@dataclass(frozen=True)
class Mlp:
    """Shape of a ReLU network: ``sizes`` counts inputs, hidden units and outputs.

    The vector holds, layer by layer, the weights (inputs, outputs) and the biases (outputs,).
    """

    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum((n + 1) * m for n, m in pairwise(self.sizes))

    def layers(self, flat: Array) -> list[tuple[Array, Array]]:
        """View a flat vector as weights and biases."""
        views = []
        start = 0
        for n, m in pairwise(self.sizes):
            weights = flat[start : start + n * m].reshape(n, m)
            start += n * m
            views.append((weights, flat[start : start + m]))
            start += m
        return views

    def init(self, rng: np.random.Generator) -> Floats:
        """Draw parameters as Torch's ``nn.Linear`` does: uniform within 1/sqrt(inputs)."""
        flat = np.empty(self.size, np.float32)
        for weights, biases in self.layers(flat):
            bound = 1.0 / math.sqrt(len(weights))
            weights[...] = rng.uniform(-bound, bound, weights.shape)
            biases[...] = rng.uniform(-bound, bound, biases.shape)
        return flat


@dataclass(frozen=True)
class Spec:
    """Shapes and settings: everything about an agent that never changes. Hashable."""

    settings: AgentSettings
    observation_size: int
    action_size: int

    @property
    def stochastic(self) -> bool:
        """Whether the policy is a distribution (SAC)."""
        return self.settings.algo == "sac"

    @property
    def actor(self) -> Mlp:
        """The actor's network; without gSDE, SAC's gives means and log standard deviations."""
        outputs = 2 if self.stochastic and not self.settings.use_sde else 1
        hidden = self.settings.actor_arch
        return Mlp((self.observation_size, *hidden, outputs * self.action_size))

    @property
    def critic(self) -> Mlp:
        """One critic's network."""
        return Mlp((self.observation_size + self.action_size, *self.settings.critic_arch, 1))

    @property
    def latent_size(self) -> int:
        """Width of the actor's last hidden layer, which gSDE explores from."""
        return self.actor.sizes[-2]

    @property
    def target_entropy(self) -> float:
        """Entropy that a learned coefficient aims at."""
        target = self.settings.target_entropy
        return float(-self.action_size if target == "auto" else target)


class Inputs(NamedTuple):
    """One update's data; with a leading axis of K, the data of K updates in a row.

    ``m`` is the number of rows drawn: the batch size, or a multiple of it for LaBER.

    SAC needs noise for every row's next action and for every row the actor learns from; with gSDE
    one exploration matrix serves both. TD3 needs the first only.
    """

    observations: Any  # (m, d)
    actions: Any  # (m, a), within [-1, 1]
    rewards: Any  # (m,)
    next_observations: Any  # (m, d)
    discounts: Any  # (m,) gamma or gamma^n, or 0 after a terminal transition
    weights: Any  # (m,) loss weights of prioritized replay, else ones
    noise: Any  # (rows, a) standard normal draws
    uniforms: Any  # (critics, batch) draws in [0, 1) for LaBER's selections, else (critics, 0)


class SacState(NamedTuple):
    """SAC's networks and optimizers."""

    actor: Any  # (actor parameters,)
    actor_first: Any  # Adam's averages of the gradient ...
    actor_second: Any  # ... and of its square
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
    # After the actor's network come gSDE's log standard deviations (hidden, a).
    count = spec.settings.use_sde * spec.latent_size * spec.action_size
    log_stds = np.full(count, spec.settings.log_std_init, np.float32)
    actor = np.concatenate([spec.actor.init(rng), log_stds])
    critics = np.concatenate([spec.critic.init(rng) for _ in range(spec.settings.critics)])
    shared = {
        "actor": actor,
        "actor_first": np.zeros_like(actor),
        "actor_second": np.zeros_like(actor),
        "critics": critics,
        "critics_first": np.zeros_like(critics),
        "critics_second": np.zeros_like(critics),
        "targets": critics.copy(),
        "updates": np.zeros(1, np.int32),
    }
    if not spec.stochastic:
        return Td3State(**shared, actor_target=actor.copy(), actor_loss=np.zeros(1, np.float32))
    ent_coef = np.zeros(3, np.float32)
    if spec.settings.learns_entropy_coefficient:
        ent_coef[0] = np.log(spec.settings.initial_entropy_coefficient())
    return SacState(**shared, ent_coef=ent_coef)
