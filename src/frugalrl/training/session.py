"""One process's share of a run: training, and everything around it that leaves no trace in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.agents.agent import Agent
from frugalrl.agents.policy import Policy
from frugalrl.files import appending, write_json
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.state_io import save_state
from frugalrl.training.callbacks import Callback, RunView
from frugalrl.training.config import CUSTOM, TrainConfig, admission_text
from frugalrl.training.console import Progress, result_lines
from frugalrl.training.env_state import undisturbed
from frugalrl.training.environments import EnvironmentFactory
from frugalrl.training.errors import TrainingInterrupted
from frugalrl.training.evaluation import LONGEST, Episodes, run_episodes, save_policy
from frugalrl.training.loop import TrainingLoop
from frugalrl.training.process import InterruptGuard, blas_threads, peak_memory
from frugalrl.training.records import MetricsRow, Recorder
from frugalrl.training.run_directory import KIND, VERSION, RunDirectory, StateMethod
from frugalrl.training.vector import AsyncGroup, EnvironmentGroup, SyncGroup


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A finished run."""

    config: TrainConfig
    """As resolved: nothing is left open."""
    directory: Path | None
    """Where its files are."""
    agent: Agent
    """The learner as it was at the end: networks, optimizers, exploration."""
    policy: Policy
    """The trained policy: observation in, action out, in NumPy."""
    buffer: ReplayBuffer
    """Everything kept."""
    final: Episodes | None
    """The evaluation at the end."""
    evaluations: list[tuple[int, float]]
    """(env_steps, mean reward) of the evaluations while training."""
    metrics: list[MetricsRow]
    """The rows of metrics.csv."""
    env_steps: int
    updates: int
    episodes: int
    train_seconds: float
    """Wall time spent stepping and learning, without compilation."""
    wall_seconds: float
    """Wall time of everything, evaluation and files included."""
    peak_memory_bytes: int
    """Most memory the process ever held."""
    fingerprint: str
    """Digest of agent, buffer, counters and last observations: equal only if every bit is."""

    def __repr__(self) -> str:
        final = "" if self.final is None else f", final {self.final}"
        where = "" if self.directory is None else f", {str(self.directory)!r}"
        return (
            f"TrainResult({self.config.env_name} {self.config.algo}, {self.env_steps:,} steps"
            f"{final}, {len(self.buffer):,} of {self.buffer.stats.offered:,} transitions held"
            f"{where})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Give what final.json holds."""
        stats, final = self.buffer.stats, None
        if self.final is not None:
            final = {
                "reward_mean": self.final.mean,
                "reward_std": self.final.std,
                "control_cost_mean": float(self.final.control_costs.mean()),
                **self.final.to_dict(),
            }
        return {
            "env": self.config.env_name,
            "algo": self.config.algo,
            "admission": admission_text(self.buffer.admission).removeprefix(CUSTOM),
            "seed": self.config.seed,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "final": final,
            "evaluations": [list(pair) for pair in self.evaluations],
            "buffer": {
                "size": len(self.buffer),
                "bytes": self.buffer.nbytes,
                "filter_bytes": int(self.buffer.admission.nbytes),
                **asdict(stats),
                "acceptance_rate": stats.acceptance_rate,
            },
            "train_seconds": round(self.train_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
            "fingerprint": self.fingerprint,
        }


# A due checkpoint waits while the last one took more than this share of the time since then.
_CHECKPOINT_SHARE = 0.05
_SLOW_CHECKPOINT = 1.0  # seconds; quicker ones are never put off


class Session:
    """Runs a resolved configuration to its end, or to the next interruption.

    Without a directory it leaves no files.
    """

    def __init__(
        self,
        config: TrainConfig,
        factory: EnvironmentFactory,
        method: StateMethod,
        directory: RunDirectory | None,
        progress: bool | None = None,
        say: Any = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config = config
        self.factory = factory
        self.method = method
        self.directory = directory
        self._tell = say
        self._callbacks = callbacks
        self._guard = InterruptGuard(saves=directory is not None)
        visible = False if config.quiet else progress
        self._progress = Progress(visible, title=f"{config.env_name} {config.algo}")
        self._begun = self._started = self._save_time = time.perf_counter()
        self._peak_before = 0
        self._warned_of: set[str] = set()
        self._logged_at = self._evaluated_at = self._saved_at = 0
        self._save_cost = 0.0
        self._path = None if directory is None else directory.path

    def say(self, *lines: str) -> None:
        """Tell the user, and the run's log."""
        for line in lines:
            if self.directory is not None:
                stamp = time.strftime("%Y-%m-%d %H:%M:%S")
                # A full disk is told of by what a run cannot do without.
                with contextlib.suppress(OSError), appending(self.directory.log) as file:
                    file.write(f"{stamp} {line}\n")
            if self._tell is not None and not self.config.quiet:
                try:
                    self._tell(line)
                except OSError:  # whoever read along has gone, or the disk is full: train on
                    self._tell = None

    def _warn_once(self, what: str, line: str) -> None:
        if what not in self._warned_of:
            self._warned_of.add(what)
            self.say(f"warning: {line}")

    def run(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: list[int],
        state: Any = None,
        statistics: Any = None,
    ) -> TrainResult:
        """Begin the run, with a seed for each environment, or go on from a checkpoint's state.

        A run that begins with an earlier one's networks normalizes by its statistics, if at all.
        """
        with (
            blas_threads(self.config.threads),
            self._guard,
            self._progress,
            contextlib.closing(self._make_group()) as group,
        ):
            self._loop = self._make_loop(group, agent, buffer)
            self._view = RunView(self.config, self._path, self._loop)
            if state is None:
                if statistics is not None:
                    self._loop.normalize_by(statistics)
                self._loop.begin(seeds)
            else:
                self._restore(state)
            with self._writing():
                self._recorder = Recorder(self.config, self.directory, state)
            with contextlib.closing(self._recorder):
                self.say(*self._recorder.warnings)
                return self._train()

    def _make_group(self) -> EnvironmentGroup:
        config = self.config
        if config.workers == "async":
            return AsyncGroup(self.factory, config.envs, self.method, config.worker_timeout)
        return SyncGroup(self.factory, config.envs, self.method)

    def _make_loop(self, group: EnvironmentGroup, agent: Any, buffer: Any) -> TrainingLoop:
        return TrainingLoop(self.config, group, agent, buffer)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        store = self.directory and self.directory.checkpoints
        return store.writing("a file of the run") if store else contextlib.nullcontext()

    def _train(self) -> TrainResult:
        loop = self._loop
        if not loop.in_round:  # a resumed run may be in the middle of one
            self._duties()
        while not (loop.finished or self._guard.triggered or self._view.stop_reason):
            loop.advance(self._next_duty(), self._pause)
            if self._progress.due:
                last = self._view.evaluations[-1][1] if self._view.evaluations else None
                self._progress.show(loop.env_steps, self.config.steps or 0, loop.buffer, last)
            if not loop.in_round:
                self._duties()
        if self._view.stop_reason:
            self.say(f"ending at step {loop.env_steps:,}: {self._view.stop_reason}")
        if not self._guard.triggered:
            self._save()
            count = self.config.final_episodes
            final = self._evaluate(self.config.final_seed, count) if count else None
            if not self._guard.triggered:
                return self._finish(final)
        self._save()
        assert self._guard.signum is not None
        if self._path is not None:
            how = f"frugalrl train --resume {self._path}"
            self.say(f"stopped at step {loop.env_steps:,}; go on with: {how}")
        raise TrainingInterrupted(self._guard.signum, self._path)

    def _pause(self) -> bool:
        return self._guard.triggered or self._progress.due

    def _next_duty(self) -> int:
        config, now = self.config, self._loop.env_steps
        assert config.steps is not None
        if self._loop.in_round:  # to its end: what fell due within it is done there
            return now
        every = (config.eval_every, config.checkpoint_every)
        row = self._logged_at + config.log_every - self._loop.round_steps + 1
        return min([config.steps, max(row, now + 1)] + [(now // e + 1) * e for e in every if e])

    def _crossed(self, since: int, every: int | None) -> bool:
        """Whether a multiple of `every` was reached since a step."""
        return bool(every) and self._loop.env_steps // every > since // every  # type: ignore[operator]

    @undisturbed()
    def _duties(self) -> None:
        """Evaluate, record metrics, write a checkpoint: what is due between two rounds."""
        config, loop = self.config, self._loop
        episodes = None
        if self._crossed(self._evaluated_at, config.eval_every):
            episodes = self._evaluate(config.eval_seed, config.eval_episodes)
            if episodes is None:
                return  # interrupted: stays due, and comes first when the run is resumed
            self._evaluated_at = loop.env_steps
            self._judge(episodes.mean)
            self._view.evaluations.append((loop.env_steps, episodes.mean))
            self._call("on_evaluation", episodes)
        # After another round it would be more than `log_every` steps since the last row.
        late = loop.env_steps + loop.round_steps > self._logged_at + config.log_every
        due = loop.env_steps > self._logged_at and (late or loop.finished)
        if episodes is not None or due:
            self._logged_at = loop.env_steps
            with self._writing():
                wall_seconds = time.perf_counter() - self._started
                self._recorder.record(loop.row(), wall_seconds, episodes)
            limit = config.stop_seconds
            if limit is not None and time.perf_counter() - self._begun >= limit:
                self._view.stop(f"{limit:,g} seconds have passed")
            self._call("on_metrics", self._recorder.rows[-1])
        if self._crossed(self._saved_at, config.checkpoint_every) and self._save_is_cheap():
            self._save()

    def _judge(self, reward: float) -> None:
        """Keep the policy if no evaluation was as good; end the run if this one is good enough."""
        config, before = self.config, self._view.evaluations
        if config.save_best and self._path and all(reward > other for _, other in before):
            with self._writing():
                save_policy(self._path / "policy-best.safetensors", self._loop.policy_state())
        if config.stop_reward is not None and reward >= config.stop_reward:
            self._view.stop(f"the mean reward {reward:,.2f} has reached {config.stop_reward:,g}")

    def _call(self, name: str, argument: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, name)(self._view, argument)

    def _evaluate(self, first_seed: int, count: int) -> Episodes | None:
        self._progress.note(f"evaluating {count} episodes")
        with contextlib.closing(self.factory.make()) as environment:
            episodes = run_episodes(
                self._view.policy,
                environment,
                range(first_seed, first_seed + count),
                stop=lambda: self._guard.triggered,
                longest=None if self.factory.time_limit else LONGEST,
            )
        if episodes is not None and episodes.cut:
            self._warn_once(
                "length",
                f"{episodes.cut} of {count} evaluation episodes were cut off after "
                f"{LONGEST:,} steps: the environment has no time limit "
                "(set max_episode_steps, --max-episode-steps)",
            )
        return episodes

    def _save_is_cheap(self) -> bool:
        since = time.perf_counter() - self._save_time
        return self._save_cost < max(_SLOW_CHECKPOINT, _CHECKPOINT_SHARE * since)

    def _save(self) -> None:
        """Write a checkpoint of this moment."""
        if self.directory is None:
            return
        begun = time.perf_counter()
        state = self._state()
        for problem in filter(None, (it.get("problem") for it in state["loop"]["environments"])):
            self._warn_once(
                "state",
                f"the environment's state can no longer be read ({problem}): "
                "checkpoints are written without it, a resumed run begins a new episode",
            )
        store, keep = self.directory.checkpoints, self.config.keep_checkpoints
        self._call("on_checkpoint", store.save(self._loop.env_steps, state, keep))
        self._saved_at = self._loop.env_steps
        self._save_time = time.perf_counter()
        self._save_cost = self._save_time - begun

    def _state(self) -> dict[str, Any]:
        """Give everything that a continuation needs."""
        with self._writing():
            sizes = self._recorder.sizes()
        return {
            "loop": self._loop.state_dict(),
            "policy": self._loop.policy_state(),
            "session": {
                "evaluations": [list(pair) for pair in self._view.evaluations],
                "logged_at": self._logged_at,
                "evaluated_at": self._evaluated_at,
                "stop_reason": self._view.stop_reason,
            },
            "config": self.config.to_dict(),
            "files": sizes,
            "times": {
                "train_seconds": self._loop.train_seconds,
                "wall_seconds": time.perf_counter() - self._started,
                "peak_memory_bytes": max(self._peak_before, peak_memory()),
            },
        }

    def _restore(self, state: dict[str, Any]) -> None:
        loop, session, times = self._loop, state["session"], state["times"]
        problems = loop.load_state_dict(state["loop"])
        if problems:
            self.say(f"the environment begins a new episode: {problems[0]}")
        loop.train_seconds = times["train_seconds"]
        self._started -= times["wall_seconds"]
        self._peak_before = times["peak_memory_bytes"]
        self._view.evaluations = [(step, mean) for step, mean in session["evaluations"]]
        self._logged_at, self._evaluated_at = session["logged_at"], session["evaluated_at"]
        self._view.stop_reason = session.get("stop_reason")
        self._saved_at = loop.env_steps

    def _finish(self, final: Episodes | None) -> TrainResult:
        loop, state = self._loop, self._state()
        # Without the environments, whose state is written down in several ways (what they did is
        # in the buffer and in the last observations), and without what only logging depends on.
        trained = dict(state["loop"])
        del trained["environments"], trained["log"]
        result = TrainResult(
            config=self.config,
            directory=self._path,
            agent=loop.agent,
            policy=Policy.from_state(state["policy"]),
            buffer=loop.buffer,
            final=final,
            evaluations=self._view.evaluations,
            metrics=self._recorder.rows,
            env_steps=loop.env_steps,
            updates=loop.updates,
            episodes=loop.episodes,
            fingerprint=fingerprint(trained),
            **state["times"],
        )
        if (directory := self.directory) is not None:
            with self._writing():
                save_policy(directory.policy, state["policy"])
                if self.config.save_buffer:
                    loop.buffer.save(directory.buffer)
                    # With the buffer, all that is needed to prolong the run.
                    del state["loop"]["buffer"]
                    save_state(directory.state, state, kind=KIND, version=VERSION)
                # Last, because it says that the run is finished.
                write_json(directory.final, result.to_dict())
            directory.checkpoints.clear()
        self.say(*result_lines(result))
        return result


def fingerprint(state: Mapping[str, Any]) -> str:
    """Digest a nested state: equal exactly when every bit of it is."""
    digest = hashlib.sha256()

    def take(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                take(value[key], f"{path}/{key}")
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                take(item, f"{path}/{index}")
        elif isinstance(value, np.ndarray):
            digest.update(json.dumps([path, value.dtype.str, value.shape]).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            plain = value.item() if isinstance(value, np.generic) else value
            digest.update(json.dumps([path, plain]).encode())

    take(state, "")
    return digest.hexdigest()
