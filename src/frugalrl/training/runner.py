"""From a configuration to a finished run: checks first, then files, then training."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from frugalrl.training import env_state
from frugalrl.training.admission import describe_admission, make_admission
from frugalrl.training.checkpoint import CheckpointStore
from frugalrl.training.config import CUSTOM, TrainConfig
from frugalrl.training.environments import EnvironmentFactory, check_spaces, find_environment
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.metrics import check_sinks
from frugalrl.training.report import configuration_lines
from frugalrl.training.resolve import Origin, Resolved, filter_fields, filter_notes, resolve
from frugalrl.training.result import TrainResult
from frugalrl.training.run_directory import RunDirectory
from frugalrl.training.threads import limit_threads

if TYPE_CHECKING:
    from frugalrl.admission.protocol import AdmissionFilter
    from frugalrl.training.session import Session

Say = Callable[[str], None]

_FRESH = (
    "this environment's state can be neither read nor reproduced: a resumed run begins a new "
    "episode and differs from one that was not interrupted"
)


class Place:
    """Where a run's steps are taken: in this process, or as a subclass says."""

    about: Mapping[str, Any] = MappingProxyType({})
    """What config.json says of it."""

    def session(self, *arguments: Any) -> Session:
        """Make the session, with `Session`'s arguments."""
        from frugalrl.training.session import Session

        return Session(*arguments)

    def check(self, content: Mapping[str, Any]) -> None:
        """Refuse to resume a run, known by its config.json, that was not made here.

        Raises:
            RunDirectoryError: its steps were taken elsewhere.
        """
        if "actors" in content:
            raise RunDirectoryError(
                "this run's steps were taken by actors: resume it with `frugalrl train --resume` "
                "or frugalrl.distributed.resume"
            )


class Seeds(NamedTuple):
    """The seeds of a run's parts, all drawn from the run's one seed."""

    agent: int
    buffer: int
    admission: int
    environments: list[int]

    @classmethod
    def draw(cls, seed: int, environments: int) -> Seeds:
        """Draw seeds that no other run's parts share."""
        words = np.random.SeedSequence(seed).generate_state(3 + environments).tolist()
        return cls(words[0], words[1], words[2], words[3:])


def train(
    config: TrainConfig,
    *,
    progress: bool | None = None,
    say: Say | None = None,
    place: Place | None = None,
) -> TrainResult:
    """Train as configured.

    Args:
        config: what to do.
        progress: whether to show a live line; None: when the error stream is a terminal.
        say: takes lines for the user, such as the resolved configuration; None: nobody does.
        place: where steps are taken, if not here.

    Returns:
        The finished run.

    Raises:
        ConfigError: a setting cannot work; nothing was created.
        TrainingInterrupted: SIGINT or SIGTERM arrived; what can be resumed was saved.
        TrainingError: the run had to stop.
    """
    place = Place() if place is None else place
    factory = find_environment(config.env, config.environment_arguments())
    resolved = resolve(config)
    config = resolved.config
    limit_threads(config.threads)
    check_sinks(wandb=config.wandb)
    _check_environment(factory)
    seeds = Seeds.draw(config.seed, config.envs)
    directory = None if config.out is None else RunDirectory(config.out)
    if directory is not None:
        directory.check_unused()
    # Made before the directory: what its arguments cannot do is known without leaving a trace.
    buffer = _make_buffer(config, factory, seeds)
    _check_budget(config, buffer)
    resolved = _with_filter(resolved, buffer.admission)
    config = resolved.config
    if directory is None:
        return place.session(config, factory, "fresh", None, progress, say).run(buffer, seeds)
    method = env_state.choose_method(factory)
    if method == "fresh":
        resolved.notes.append(_FRESH)
    with directory:
        about = {"origins": resolved.origins, "environment_state": method, "notes": resolved.notes}
        directory.create(config, {**about, **place.about})
        session = place.session(config, factory, method, directory, progress, say)
        for line in configuration_lines(resolved):
            session.say(line)
        return session.run(buffer, seeds)


def resume(
    path: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    say: Say | None = None,
    admission: Any = None,
    place: Place | None = None,
) -> TrainResult:
    """Go on with a run that was interrupted; it ends with the bits of one that was not.

    Args:
        path: its directory.
        progress: as for `train`.
        say: as for `train`.
        admission: the filter, where the run was given one of your own: a fresh instance.
        place: where steps are taken, as for `train`.

    Raises:
        RunDirectoryError: there is no run, it is finished, or another process is at it.
        TrainingError: no checkpoint can be read, or the run had to stop.
    """
    place = Place() if place is None else place
    directory = RunDirectory(path)
    directory.check_is_run()
    with directory:
        directory.acquire()
        config, content = directory.read_config()
        if directory.finished:
            raise RunDirectoryError(f"{str(directory.path)!r} is finished: nothing to resume")
        place.check(content)
        config = dataclasses.replace(config, out=directory.path)
        config = _with_admission(config, admission)
        limit_threads(config.threads)
        check_sinks(wandb=config.wandb)
        factory = find_environment(config.env, config.environment_arguments())
        method = content["environment_state"]
        seeds = Seeds.draw(config.seed, config.envs)
        session = place.session(config, factory, method, directory, progress, say)
        found = CheckpointStore(directory.checkpoints, config.keep_checkpoints).newest(tidy=True)
        if found is None:
            session.say("no checkpoint was written yet: starting from the beginning")
            return session.run(_make_buffer(config, factory, seeds), seeds)
        for warning in found.warnings:
            session.say(f"warning: skipped a checkpoint that cannot be read: {warning}")
        session.say(f"resuming from {found.path.name}")
        return session.resume(found.state, type(config.admission) if admission else None)


def _with_filter(resolved: Resolved, used: AdmissionFilter) -> Resolved:
    """Complete the filter's settings from the filter itself."""
    config = describe_admission(resolved.config, used)
    origins = dict(resolved.origins)
    for name in filter_fields():
        if getattr(config, name) is not None:
            fallback: Origin = "default" if isinstance(resolved.config.admission, str) else "given"
            origins.setdefault(name, fallback)
    return Resolved(config, origins, filter_notes(config))


def _with_admission(config: TrainConfig, admission: Any) -> TrainConfig:
    custom = isinstance(config.admission, str) and config.admission.startswith(CUSTOM)
    if custom and admission is None:
        raise ConfigError(
            f"this run used the filter {str(config.admission).removeprefix(CUSTOM)!r}, which only "
            "its own code can make: frugalrl.training.resume(path, admission=YourFilter())"
        )
    return dataclasses.replace(config, admission=admission) if custom else config


def _check_environment(factory: EnvironmentFactory) -> None:
    environment = factory.make()
    try:
        check_spaces(environment.observation_space, environment.action_space, factory.spec.id)
    finally:
        environment.close()


def _make_buffer(config: TrainConfig, factory: EnvironmentFactory, seeds: Seeds) -> Any:
    from frugalrl.replay.buffer import ReplayBuffer
    from frugalrl.replay.samplers import Prioritized

    assert config.steps is not None
    environment = factory.make()
    space = environment.observation_space
    actions = environment.action_space.shape
    environment.close()
    sampler: Any = config.sampler
    if sampler == "prioritized":
        sampler = Prioritized(anneal_steps=config.steps)
    try:
        return ReplayBuffer(
            None if config.buffer_bytes else config.buffer_size,
            capacity_bytes=config.buffer_bytes,
            observation_space=space,
            action_space=gymnasium.spaces.Box(-1.0, 1.0, actions, np.float32),
            admission=make_admission(config, seeds.admission),
            sampler=sampler,
            seed=seeds.buffer,
            dtype=config.buffer_dtype,
            environments=config.envs,
            eviction=config.eviction,
        )
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _check_budget(config: TrainConfig, buffer: Any) -> None:
    """Refuse a byte budget that one batch alone is more than."""
    if buffer.capacity_bytes is None:
        return
    assert config.batch_size is not None
    numbers = buffer.observation_space.shape[0] + buffer.action_space.shape[0]
    # At the least: a state, an action and a float32 reward each.
    least = config.batch_size * (numbers * np.dtype(config.buffer_dtype).itemsize + 4)
    if least > buffer.capacity_bytes:
        raise ConfigError(
            f"batch_size={config.batch_size} is more than can ever be stored in "
            f"buffer_bytes={config.buffer_bytes!r}: that many transitions take over {least:,} bytes"
        )


def run_directory_name(config: TrainConfig) -> Path:
    """Give the directory a run gets when none is named."""
    admission = config.admission if isinstance(config.admission, str) else config.admission.name
    name = config.env.replace("/", "-").replace(":", "-")
    return Path("runs") / f"{name}-{config.algo}-{admission}-seed{config.seed}"
