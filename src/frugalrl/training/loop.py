"""The loop itself: step, store, learn, in Stable-Baselines3's order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.offer import all_finite
from frugalrl.agents.agent import Agent
from frugalrl.compiling import COMPILATION
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.replay.n_step import NStepReturns
from frugalrl.replay.results import REFUSED
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import BrokenEnvironmentError
from frugalrl.training.normalization import Normalizer
from frugalrl.training.records import MetricsRow
from frugalrl.training.vector import EnvironmentGroup

_REFUSED_SHARE = 0.01
_REFUSED_GRACE = 1000  # steps: a single bad value among the first few is no catastrophe
_LARGEST_PIECE = 64  # updates in one call where their number varies


class TrainingLoop:
    """A run in progress: environments, agent and buffer, and how far they are.

    A round is `train_freq` steps of every environment or one whole episode, then `gradient_steps`
    updates if more than `learning_starts` steps were taken. The loop can be saved and restored
    between any two steps, and goes on with the same bits. Every schedule follows `env_steps`. The
    buffer's actions lie within [-1, 1].
    """

    def __init__(
        self, config: TrainConfig, group: EnvironmentGroup, agent: Agent, buffer: ReplayBuffer
    ) -> None:
        self.config = config
        self.group = group
        self.agent = agent
        self.buffer = buffer
        resolved: Any = config  # nothing in it is open, so nothing is None
        self._steps: int = resolved.steps
        self._learning_starts: int = resolved.learning_starts
        self._gradient_steps: int = resolved.gradient_steps
        count, shape, every = group.count, buffer.observation_space.shape, resolved.train_freq
        self._round_steps: int | None = None if every == "episode" else every * count
        n, gamma = config.n_step, agent.settings.gamma
        self._normalizer = Normalizer(config.normalize, shape, count, gamma)
        self._n_step = NStepReturns(n, gamma, count) if n > 1 else None
        self.env_steps = 0
        self.updates = 0
        self.episodes = 0
        self.train_seconds = 0.0
        self._round_begun: int | None = None
        self._observations = np.zeros((count, *shape), dtype=np.float32)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, dtype=np.int64)
        # Episodes that ended since the last row of metrics: how many, rewards, lengths.
        self._window = [0.0, 0.0, 0.0]
        self._successes: list[float] = []
        self._losses: dict[str, float] = {}
        self._results: list[tuple[int, Any]] = []

    def normalize_by(self, statistics: Any) -> None:
        """Normalize by the statistics of an earlier run, from which the networks are."""
        self._normalizer.load_statistics(statistics)

    def begin(self, seeds: list[int]) -> None:
        """Reset every environment with its seed."""
        self._observations = self.group.reset(seeds)
        self._normalizer.begin(self._observations)

    def policy_state(self) -> dict[str, Any]:
        """Give what `Policy.from_state` needs, normalization included."""
        scale = self._normalizer.scale
        return {**self.agent.policy_state(), "normalize": None if scale is None else vars(scale)}

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self.env_steps >= self._steps

    @property
    def in_round(self) -> bool:
        """Whether a round has begun and its updates have not been made."""
        return self._round_begun is not None

    @property
    def round_steps(self) -> int:
        """Steps of a round, all environments together; 1 where that is not known beforehand."""
        return self._round_steps or 1

    def advance(self, target: int, stop: Callable[[], bool]) -> None:
        """Do whole rounds until `target` steps were taken; `stop` may end it after any step."""
        with self._training():
            while (self.env_steps < target or self.in_round) and not stop():
                if self._round_begun is None:
                    self._round_begun = self.env_steps
                    self.agent.rollout_started()
                episode_ended = self._step()
                taken = self.env_steps - self._round_begun
                over = episode_ended if self._round_steps is None else taken >= self._round_steps
                if over or self.finished:
                    self._round_begun = None
                    if self.env_steps > self._learning_starts:
                        count = self._updates_after(taken)
                        # Only an episode's updates vary in number and are divided.
                        self._update([count] if self._round_steps else pieces(count))

    @contextlib.contextmanager
    def _training(self) -> Iterator[None]:
        """Count the time that is spent here, less what the compiler takes of it."""
        begun = time.perf_counter() - COMPILATION.seconds
        try:
            yield
        finally:
            self.train_seconds += time.perf_counter() - COMPILATION.seconds - begun

    def _step(self) -> bool:
        """Take one step of every environment; says whether an episode ended."""
        agent, count = self.agent, self.group.count
        if self.env_steps < self._learning_starts:
            actions = agent.act_random(count)
        else:
            actions = agent.act(self._normalizer.observations(_finite(self._observations)))
        step = self.group.step(actions.environment)
        transitions: Sequence[NDArray[Any]] = (
            *(self._observations, actions.buffer, step.rewards),
            *(step.next_observations, step.terminated, step.truncated),
        )
        # The last step of several environments counts for only as many as there are steps left.
        rows = min(count, self._steps - self.env_steps)
        if rows < count and self._n_step is None:
            transitions = [part[:rows] for part in transitions]
        any_refused = self._offer(transitions)
        self.env_steps += rows
        self._observations = step.observations
        self._returns += step.rewards
        self._lengths += 1
        ended = step.terminated | step.truncated
        if step.any_ended:
            agent.episode_ended(ended)
            self._count_episodes(self._returns[ended], self._lengths[ended])
            self._returns[ended] = self._lengths[ended] = 0
            self._successes += step.successes
        self._normalizer.update(step.observations, step.rewards, ended)
        if any_refused:
            self._check_refused(actions.buffer)
        return step.any_ended

    def _offer(self, transitions: Sequence[NDArray[Any]]) -> bool:
        """Offer one step of every environment to the buffer; says whether any was refused."""
        extra = {}
        if self._n_step is not None:
            *transitions, extra["discount"] = self._n_step.add(*transitions)
            if not len(transitions[0]):
                return False  # every step waits for those that follow it
        return REFUSED in self.buffer.add(*transitions, **extra).codes.tolist()

    def _count_episodes(self, rewards: NDArray[Any], lengths: NDArray[Any]) -> None:
        self._window[0] += len(rewards)
        self._window[1] += float(np.nan_to_num(rewards, posinf=0.0, neginf=0.0).sum())
        self._window[2] += float(lengths.sum())
        self.episodes += len(rewards)

    def _check_refused(self, actions: NDArray[np.float32]) -> None:
        """Stop when too much is not finite, and when the agent itself is the cause."""
        if not np.isfinite(actions).all() and np.isfinite(self._observations).all():
            raise BrokenEnvironmentError(
                f"the agent's actions are not finite at step {self.env_steps}: learning has "
                "diverged; try a lower learning_rate"
            )
        refused = self.buffer.stats.rejected_nonfinite
        if refused > _REFUSED_SHARE * max(self.env_steps, _REFUSED_GRACE):
            raise BrokenEnvironmentError(
                f"{self.config.env_name} gave NaN or infinity in {refused} of {self.env_steps} "
                f"steps, the last at step {self.env_steps}: more than 1 % is too much to learn from"
            )

    def _update(self, pieces: list[int]) -> None:
        """Do so many updates in one call, so many in the next, and so on."""
        if not len(self.buffer):
            return
        self._results = []
        for count in pieces:
            batch = self.buffer.sample(self.agent.settings.batch_size, batches=count)
            batch = self._normalizer.batch(batch)
            result = self.agent.update(batch, 1.0 - self.env_steps / self._steps)
            if self.config.sampler == "prioritized":
                self.buffer.feedback(batch.slots, result.td_errors)
            self._results.append((count, result))
            self.updates += count

    def _updates_after(self, taken: int) -> int:
        """Say how many updates a round of so many steps gets: fewer if the run's end cut it."""
        if self._gradient_steps < 0:
            return taken
        if self._round_steps is None or taken >= self._round_steps:
            return self._gradient_steps
        return max(1, self._gradient_steps * taken // self._round_steps)

    def losses(self) -> dict[str, float]:
        """Give the last round's losses, means over its updates; empty before the first."""
        if self._results:
            total = sum(count for count, _ in self._results)
            parts = [(count / total, result.metrics) for count, result in self._results]
            self._losses = {
                name: sum(share * metrics[name] for share, metrics in parts) for name in parts[0][1]
            }
            self._results = []
        return self._losses

    def row(self) -> MetricsRow:
        """Give the run's numbers now, and begin a new window of episodes."""
        episodes, reward, length = self._window
        successes = self._successes
        self._window, self._successes = [0.0, 0.0, 0.0], []
        return {
            "env_steps": self.env_steps,
            "train_seconds": round(self.train_seconds, 3),
            **asdict(self.buffer.stats),
            "buffer_bytes": self.buffer.nbytes,
            **self.losses(),
            "buffer_size": len(self.buffer),
            "cells": getattr(self.buffer.admission, "cells", None),
            "filter_bytes": int(self.buffer.admission.nbytes),
            "updates": self.updates,
            "learning_rate": self.agent.settings.learning_rate_at(
                1.0 - self.env_steps / self._steps
            ),
            "episodes": self.episodes,
            "episode_reward": reward / episodes if episodes else None,
            "episode_length": length / episodes if episodes else None,
            "success_rate": sum(successes) / len(successes) if successes else None,
        }

    def state_dict(self) -> dict[str, Any]:
        """Give everything that a continuation needs, between two rounds."""
        state = {
            "agent": self.agent.state_dict(),
            "buffer": self.buffer.state_dict(),
            "environments": self.group.capture(),
            "counters": {
                "env_steps": self.env_steps,
                "updates": self.updates,
                "episodes": self.episodes,
                "round_begun": self._round_begun,
            },
            "log": {
                "window": list(self._window),
                "successes": list(self._successes),
                "losses": self.losses(),
            },
            "observations": self._observations.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }
        if self.config.normalize != "none":
            state["normalizer"] = self._normalizer.state_dict()
        if self._n_step is not None:
            state["n_step"] = self._n_step.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Continue from `state_dict`; the buffer was made from its part already.

        Returns:
            Why environments could not be put back, and began a new episode instead.
        """
        self.agent.load_state_dict(state["agent"])
        counters, log = state["counters"], state["log"]
        self.env_steps, self.updates = counters["env_steps"], counters["updates"]
        self.episodes, self._round_begun = counters["episodes"], counters["round_begun"]
        self._window, self._successes = list(log["window"]), list(log["successes"])
        self._losses = dict(log["losses"])
        self._observations = np.array(state["observations"], dtype=np.float32)
        self._returns = np.array(state["returns"])
        self._lengths = np.array(state["lengths"])
        if self._n_step is not None:
            self._n_step = NStepReturns.from_state_dict(state["n_step"])
        seeds = np.random.SeedSequence([self.config.seed, self.env_steps])
        words = seeds.generate_state(self.group.count).tolist()
        restored = self.group.restore(state["environments"], words)
        anew = np.array([row.problem is not None for row in restored])
        for row in np.flatnonzero(anew):
            self._observations[row] = restored[row].observation
            self._returns[row] = self._lengths[row] = 0
        self.agent.episode_ended(anew)
        if self.config.normalize != "none":
            self._normalizer.load_state_dict(state["normalizer"], anew)
        return [row.problem for row in restored if row.problem is not None]


def pieces(count: int) -> list[int]:
    """Divide a number of updates that varies into few different sizes.

    Every size is compiled (by JAX) and kept room for once.
    """
    whole, rest = divmod(count, _LARGEST_PIECE)
    powers = [1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]
    return [_LARGEST_PIECE] * whole + powers


def _finite(observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give what to act on: the same where finite, zero where the environment gave nonsense."""
    if all_finite(observations):
        return observations
    return np.nan_to_num(observations, nan=0.0, posinf=0.0, neginf=0.0)
