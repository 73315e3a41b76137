"""The actor: steps its environments with the weights it is given, and answers with fragments."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

# Everything that acting needs, so that an actor which has started can begin at once.
from frugalrl.agents.agent import Agent, make_agent
from frugalrl.distributed.edge import EdgeFilter, Snapshot
from frugalrl.training.config import TrainConfig, agent_settings
from frugalrl.training.environments import EnvironmentFactory
from frugalrl.training.vector import SyncGroup

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int32]

_MOST_SECONDS = 1.0
"""After so long a fragment has as many steps as were taken."""


class Fragment(NamedTuple):
    """Some steps of one actor's environments; (actor, sequence) names it."""

    actor: int
    sequence: int
    version: int
    """Updates behind the weights that acted."""
    steps: int
    """Environment steps taken, all environments of the actor together."""
    seconds: float
    """Time they took."""
    episodes: NDArray[np.float64]
    """(e, 2) reward and length of the episodes that ended."""
    successes: NDArray[np.float64]
    """Of those that told, whether they succeeded."""
    states: Floats
    """(s, d) each state once: what one step led to is what the next began with."""
    observations: Indices
    """(n,) row in `states` of each transition's observation; n is less than `steps` where an edge
    filter has kept something back."""
    actions: Floats
    """(n, a) within [-1, 1]."""
    rewards: NDArray[np.float64]
    next_observations: Indices
    """(n,) the row in `states` where it led."""
    terminated: Flags
    truncated: Flags

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays: what goes over the wire, but for a few hundred of wrapping."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))

    def transitions(self) -> tuple[Floats, Floats, NDArray[np.float64], Floats, Flags, Flags]:
        """Give (n, ...) arrays in the order of `ReplayBuffer.add`'s arguments."""
        return (
            self.states[self.observations],
            self.actions,
            self.rewards,
            self.states[self.next_observations],
            self.terminated,
            self.truncated,
        )


def pack(transitions: Sequence[NDArray[Any]], **about: Any) -> Fragment:
    """Make a fragment of what its `transitions` will give."""
    observations, actions, rewards, next_observations, terminated, truncated = transitions
    states = np.concatenate([observations, next_observations])
    # As bytes, so that states are told apart to the bit, and quickly.
    whole = states.view(f"V{states.itemsize * states.shape[1]}").reshape(-1)
    _, used, places = np.unique(whole, return_index=True, return_inverse=True)
    rows = places.astype(np.int32)
    return Fragment(
        **about,
        states=states[used],
        observations=rows[: len(rewards)],
        actions=actions,
        rewards=rewards,
        next_observations=rows[len(rewards) :],
        terminated=terminated,
        truncated=truncated,
    )


class Rollout:
    """Some environments and a policy, in a process of their own.

    Everything is made when the first fragment is asked for: an actor that was started again then
    draws other seeds than the one that died.
    """

    def __init__(self, actor: int, config: TrainConfig, factory: EnvironmentFactory) -> None:
        self.actor = actor
        self._config = config
        self._factory = factory
        self._group: SyncGroup | None = None
        self._agent: Agent
        self._version = -1
        self._edge: EdgeFilter | None = None
        self._observations: Floats
        self._episodes = np.zeros((config.envs, 2))  # reward and length so far

    def host(self) -> str:
        """Say that it is there, and where."""
        return socket.gethostname()

    def collect(
        self,
        sequence: int,
        steps: int,
        version: int,
        weights: Floats,
        snapshot: Snapshot | None = None,
        *,
        random: bool = False,
    ) -> Fragment:
        """Take some steps.

        Args:
            sequence: number of the fragment.
            steps: how many, all environments together; fewer where they take long.
            version: updates behind the weights.
            weights: the actor network's flat vector.
            snapshot: of the learner's filter: send only what it would likely keep.
            random: act at random instead.
        """
        begun = time.perf_counter()
        if self._group is None:
            self._group = self._begin(sequence)
        group, agent = self._group, self._agent
        if version != self._version:
            agent.act_with(weights)
            self._version = version
        agent.rollout_started()
        taken: list[tuple[Any, ...]] = []
        episodes = [np.empty((0, 2))]
        successes: list[float] = []
        most = -(-steps // group.count)
        while len(taken) < most and (not taken or time.perf_counter() - begun < _MOST_SECONDS):
            acting = np.nan_to_num(self._observations, nan=0.0, posinf=0.0, neginf=0.0)
            actions = agent.act_random(group.count) if random else agent.act(acting)
            step = group.step(actions.environment)
            ends = step.terminated, step.truncated
            acted = self._observations, actions.buffer, step.rewards
            taken.append((*acted, step.next_observations, *ends))
            self._observations = step.observations
            self._episodes[:, 0] += step.rewards
            self._episodes[:, 1] += 1
            if step.any_ended:
                ended = step.terminated | step.truncated
                agent.episode_ended(ended)
                successes += step.successes
                episodes.append(self._episodes[ended])
                self._episodes[ended] = 0.0
        made = min(steps, len(taken) * group.count)
        numbers = np.arange(len(taken) * group.count).reshape(-1, group.count).T
        # Environment after environment, so that a buffer stores what neighbours share once.
        transitions = [np.stack(part, axis=1)[numbers < made] for part in zip(*taken, strict=True)]
        if snapshot is not None:
            if self._edge is None or self._edge.version != snapshot.version:
                self._edge = EdgeFilter(snapshot, seed=self.actor + snapshot.version)
            wanted = self._edge.wants(transitions[0], transitions[2])
            transitions = [part[wanted] for part in transitions]
        return pack(
            transitions,
            actor=self.actor,
            sequence=sequence,
            version=version,
            steps=made,
            seconds=time.perf_counter() - begun,
            episodes=np.concatenate(episodes),
            successes=np.array(successes, dtype=np.float64),
        )

    def _begin(self, sequence: int) -> SyncGroup:
        threadpool_limits(1, user_api="blas")
        config = self._config
        count = config.envs
        seeds = np.random.SeedSequence([config.seed, self.actor, sequence])
        words = seeds.generate_state(1 + count)
        group = SyncGroup(self._factory, count, "fresh")
        # It only acts, which both engines do alike, and this one needs no JAX.
        settings = agent_settings(dataclasses.replace(config, engine="fused"))
        spaces = (group.observation_space, group.action_space)
        self._agent = make_agent(settings, *spaces, int(words[0]), count)
        self._observations = group.reset(words[1:].tolist())
        return group
