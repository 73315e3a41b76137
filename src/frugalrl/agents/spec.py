"""What an update needs to know (shapes, settings) and what it is given (a batch, noise)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.networks import Mlp
from frugalrl.agents.settings import AgentSettings


class Inputs(NamedTuple):
    """One update's data; with a leading axis of K, the data of K updates in a row.

    ``m`` is the number of rows drawn: the batch size, or a multiple of it for LaBER.
    """

    observations: Any  # (m, d)
    actions: Any  # (m, a), within [-1, 1]
    rewards: Any  # (m,)
    next_observations: Any  # (m, d)
    discounts: Any  # (m,) gamma, or 0 after a terminal transition
    weights: Any  # (m,) loss weights of prioritized replay, else ones
    noise: Any  # standard normal draws; see Spec.noise_shape
    uniforms: Any  # (critics, batch) draws in [0, 1) for LaBER's selections, else (critics, 0)


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
        hidden = self.settings.net_arch
        return Mlp((self.observation_size, *hidden, outputs * self.action_size))

    @property
    def critic(self) -> Mlp:
        """One critic's network."""
        return Mlp((self.observation_size + self.action_size, *self.settings.net_arch, 1))

    @property
    def target_entropy(self) -> float:
        """Entropy that a learned coefficient aims at."""
        target = self.settings.target_entropy
        return float(-self.action_size if target == "auto" else target)

    @property
    def actor_size(self) -> int:
        """Length of the actor's vector, gSDE's log standard deviations included."""
        sde = self.settings.use_sde
        return self.actor.size + (self.settings.net_arch[-1] * self.action_size if sde else 0)

    def init_actor(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the actor; gSDE's log standard deviations (hidden, a) follow the network."""
        flat = np.full(self.actor_size, self.settings.log_std_init, np.float32)
        flat[: self.actor.size] = self.actor.init(rng)
        return flat

    def init_critics(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the critics, one after the other."""
        return np.concatenate([self.critic.init(rng) for _ in range(self.settings.critics)])

    def noise_shape(self, rows: int) -> tuple[int, int]:
        """Return the shape of one update's noise when the batch has this many rows.

        SAC needs a draw for every row's next action and one for every row the actor learns
        from; with gSDE one exploration matrix serves both. TD3 needs the first only.
        """
        if self.settings.use_sde:
            return self.settings.net_arch[-1], self.action_size
        return rows + self.settings.batch_size * self.stochastic, self.action_size

    def uniforms_shape(self) -> tuple[int, int]:
        """Return the shape of one update's uniform draws."""
        large = self.settings.sampler == "large_batch"
        return self.settings.critics, self.settings.batch_size if large else 0

    def flops(self) -> int:
        """Count the multiplications and additions of one update's matrix products."""
        rows = self.settings.batch_size
        actor, critic = (_products(net.sizes) for net in (self.actor, self.critic))
        first = self.critic.sizes[0] * self.critic.sizes[1]
        n = self.settings.critics
        # forward; twice that backward, less the first layer's gradient of its inputs
        learning_critic = n * (3 * critic - first)
        learning_actor = 3 * actor - math.prod(self.actor.sizes[:2])
        # into the critics, and back to the action's columns from the one that says least
        valuing = (n if self.stochastic else 1) * critic
        valuing += critic - first + self.action_size * self.critic.sizes[1]
        per_actor_update = (learning_actor + valuing) / (
            1 if self.stochastic else self.settings.policy_delay
        )
        return int(2 * rows * (actor + n * critic + learning_critic + per_actor_update))


def _products(sizes: tuple[int, ...]) -> int:
    return sum(n * m for n, m in pairwise(sizes))
