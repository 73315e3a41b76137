"""The actor: steps its environments with the weights it is given, and answers with fragments."""

from __future__ import annotations

import dataclasses
import socket
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

# Everything that acting needs, so that an actor which has started can begin at once.
from frugalrl.agents.agent import Agent, make_agent
from frugalrl.distributed.edge import EdgeFilter, Snapshot
from frugalrl.distributed.fragments import Flags, Floats, Fragment, Steps, pack
from frugalrl.training.config import TrainConfig, agent_settings
from frugalrl.training.vector import SyncGroup

if TYPE_CHECKING:
    from frugalrl.training.environments import EnvironmentFactory


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
        seconds: float = 1.0,
    ) -> Fragment:
        """Take some steps.

        Args:
            sequence: number of the fragment.
            steps: how many, all environments together.
            version: updates behind the weights.
            weights: the actor network's flat vector.
            snapshot: of the learner's filter: send only what it would likely keep.
            random: act at random instead.
            seconds: time after which fewer steps will do.
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
        episodes: list[Any] = []
        successes: list[float] = []
        observations = self._observations
        most = -(-steps // group.count)
        while len(taken) < most and (not taken or time.perf_counter() - begun < seconds):
            acting = np.nan_to_num(observations, nan=0.0, posinf=0.0, neginf=0.0)
            actions = agent.act_random(group.count) if random else agent.act(acting)
            step = group.step(actions.environment)
            taken.append(
                (
                    observations,
                    actions.buffer,
                    step.rewards,
                    step.next_observations,
                    step.terminated,
                    step.truncated,
                )
            )
            observations = step.observations
            self._episodes[:, 0] += step.rewards
            self._episodes[:, 1] += 1
            if step.any_ended:
                ended = step.terminated | step.truncated
                agent.episode_ended(ended)
                successes += step.successes
                episodes.append(self._episodes[ended])
                self._episodes[ended] = 0.0
        self._observations = observations
        made = min(steps, len(taken) * group.count)
        wanted = np.arange(len(taken) * group.count).reshape(-1, group.count) < made
        steps_taken = Steps(*(np.stack(part) for part in zip(*taken, strict=True)))
        if snapshot is not None:
            wanted = self._keep_back(snapshot, steps_taken, wanted)
        return pack(
            steps_taken,
            wanted,
            actor=self.actor,
            sequence=sequence,
            version=version,
            steps=made,
            seconds=time.perf_counter() - begun,
            episodes=np.concatenate([np.empty((0, 2)), *episodes]),
            successes=np.array(successes, dtype=np.float64),
        )

    def _keep_back(self, snapshot: Snapshot, taken: Steps, wanted: Flags) -> Flags:
        """Leave out what the learner would not keep, in the order in which it will see it."""
        if self._edge is None or self._edge.version != snapshot.version:
            self._edge = EdgeFilter(snapshot, seed=self.actor + snapshot.version)
        chosen = wanted.T.copy()
        observations = taken.observations.swapaxes(0, 1)[chosen]
        chosen[chosen] = self._edge.wants(observations, taken.rewards.T[chosen])
        return chosen.T

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
