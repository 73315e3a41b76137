"""From a configuration to a finished run: checks first, then files, then training."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock  # noqa: F401 - needed later; where it is missing one is told before a run is made
import numpy as np
import threadpoolctl  # noqa: F401 - likewise
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.agents import make_agent
from frugalrl.agents.agent import Agent
from frugalrl.agents.policy import ActionScale
from frugalrl.files import write_json
from frugalrl.replay import buffer as replay_buffer
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.replay.samplers import Prioritized
from frugalrl.state_io import load_state
from frugalrl.training import env_state
from frugalrl.training.callbacks import Callback
from frugalrl.training.config import (
    CUSTOM,
    Resolved,
    TrainConfig,
    agent_settings,
    environment_text,
    make_admission,
    resolve,
)
from frugalrl.training.console import configuration_lines
from frugalrl.training.environments import EnvironmentFactory, make_factory
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.evaluation import load_policy
from frugalrl.training.process import limit_threads
from frugalrl.training.run_directory import KIND, VERSION, Checkpoint, RunDirectory, StateMethod
from frugalrl.training.session import Session, TrainResult

Say = Callable[[str], None]


class Seeds(NamedTuple):
    """The seeds of a run's parts, all drawn from the run's one seed."""

    agent: int
    buffer: int
    admission: int
    environments: list[int]

    @classmethod
    def draw(cls, seed: int, environments: int) -> Seeds:
        """Draw seeds that no other run's parts share."""
        seeds = np.random.SeedSequence(seed).generate_state(3 + environments).tolist()
        agent, buffer, admission, *environment_seeds = seeds
        return cls(agent, buffer, admission, environment_seeds)


def train(
    config: TrainConfig,
    *,
    progress: bool | None = None,
    say: Say | None = None,
    callbacks: Sequence[Callback] = (),
    make_session: Callable[..., Session] = Session,
    actors: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Train as configured.

    Args:
        config: what to do.
        progress: whether to show a live line; None: when the error stream is a terminal.
        say: takes lines for the user, such as the resolved configuration; None: nobody does.
        callbacks: called after rows of metrics, evaluations and checkpoints.
        make_session: takes the arguments of `Session`, if steps are not taken here.
        actors: what config.json says of whoever takes them then.

    Returns:
        The finished run.

    Raises:
        ConfigError: a setting cannot work; nothing was created.
        TrainingInterrupted: SIGINT or SIGTERM arrived; what can be resumed was saved.
        TrainingError: the run had to stop.
    """
    factory, spaces, resolved = _checked(config)
    config = resolved.config
    seeds = Seeds.draw(config.seed, config.envs)
    directory = None if config.out is None else RunDirectory(config.out)
    if directory is not None:
        directory.check_unused()
        try:
            json.dumps(config.env_kwargs)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"env_kwargs={config.env_kwargs!r} cannot be written to config.json ({error}); "
                "give env as a function that makes the environment with them, or no out"
            ) from error
    # Made before the directory: what arguments and files cannot do is known without a trace.
    buffer = make_buffer(config, spaces, seeds)
    try:
        agent = make_agent(agent_settings(config), *spaces, seeds.agent, config.envs)
    except MemoryError as error:
        raise ConfigError(f"net_arch={config.net_arch!r} does not fit in memory: {error}") from None
    begun_with, statistics = start_from(config, agent, buffer)
    method: StateMethod = "fresh"
    with directory or contextlib.nullcontext():
        if directory is not None:
            method = env_state.choose_method(factory)
            if method == "fresh":
                resolved.notes.append(
                    "this environment's state can be neither read nor reproduced: a resumed run "
                    "begins a new episode and differs from one that was not interrupted"
                )
            about = {"origins": resolved.origins, "notes": resolved.notes}
            about |= {} if actors is None else {"actors": actors}
            directory.create(config, {"environment_state": method, **about})
            begun_with = [*configuration_lines(resolved), *begun_with]
        session = make_session(config, factory, method, directory, progress, say, callbacks)
        session.say(*begun_with)
        return session.run(agent, buffer, seeds.environments, statistics=statistics)


def resume(
    path: str | os.PathLike[str],
    *,
    steps: int | None = None,
    progress: bool | None = None,
    say: Say | None = None,
    admission: Any = None,
    env: Any = None,
    callbacks: Sequence[Callback] = (),
    make_session: Callable[..., Session] | None = None,
) -> TrainResult:
    """Go on with a run that was interrupted; it ends with the bits of one that was not.

    Args:
        path: its directory.
        steps: train for so many steps in all instead; prolongs a finished run too.
        progress: as for `train`.
        say: as for `train`.
        admission: the filter, where the run was given one of your own: a fresh instance.
        env: the environment, where the run was given one that only its own code can make.
        callbacks: as for `train`.
        make_session: as for `train`; None: steps are taken here.

    Raises:
        RunDirectoryError: there is no run, it is finished, or another process is at it.
        TrainingError: no checkpoint can be read, or the run had to stop.
    """
    directory = RunDirectory(path)
    directory.check_is_run()
    with directory:
        directory.acquire()
        config, content = directory.read_config()
        if "actors" in content and make_session is None:
            raise RunDirectoryError(
                "this run's steps were taken by actors: resume it with `frugalrl train --resume` "
                "or frugalrl.distributed.training.resume"
            )
        if directory.finished and steps is None:
            raise RunDirectoryError(
                f"{str(directory.path)!r} is finished: nothing to resume; steps (--steps) above "
                f"{config.steps} prolongs it"
            )
        config = _with_objects(config, admission, env)
        found, taken = _last_state(directory), 0
        if found is not None:
            _check_same_run(config, found.state["config"], directory)
            taken = found.state["loop"]["counters"]["env_steps"]
        if steps is not None and steps <= taken:
            raise ConfigError(
                f"steps={steps} must be above the {taken} that the run has taken already"
            )
        if found is not None and steps is not None:  # whatever ended it, it is to go on
            found.state["session"]["stop_reason"] = None
        changes: dict[str, Any] = {"out": directory.path, "steps": steps or config.steps}
        if config.buffer_bytes is not None:  # which stands for a size, and a resolved one has both
            changes["buffer_size"] = None
        factory, spaces, resolved = _checked(dataclasses.replace(config, **changes))
        config = resolved.config
        directory.checkpoints.folder.mkdir(exist_ok=True)
        if directory.final.is_file() and found is not None:
            found = found._replace(path=directory.checkpoints.save(taken, found.state))
        # Only now: a crash in between leaves a finished run, or one with a checkpoint.
        for file in (directory.final, directory.policy, directory.buffer, directory.state):
            file.unlink(missing_ok=True)
        if steps is not None:
            write_json(directory.config, {**content, "config": config.to_dict()})
        seeds = Seeds.draw(config.seed, config.envs)
        agent = make_agent(agent_settings(config), *spaces, seeds.agent, config.envs)
        state = statistics = None
        if found is None:
            buffer = make_buffer(config, spaces, seeds)
            begun_with, statistics = start_from(config, agent, buffer)
            begun_with.insert(0, "no checkpoint was written yet: starting from the beginning")
        else:
            skipped = "warning: skipped a checkpoint that cannot be read: "
            begun_with = [skipped + warning for warning in found.warnings]
            begun_with.append(f"resuming from {found.path.name}")
            custom = None if isinstance(config.admission, str) else type(config.admission)
            state = found.state
            buffer = ReplayBuffer.from_state_dict(state["loop"]["buffer"], custom)
        method, make = content["environment_state"], make_session or Session
        session = make(config, factory, method, directory, progress, say, callbacks)
        session.say(*begun_with)
        return session.run(agent, buffer, seeds.environments, state, statistics)


def _checked(config: TrainConfig) -> tuple[EnvironmentFactory, tuple[Box, Box], Resolved]:
    """Find the environment, make sure that an agent can learn in it, and complete the settings."""
    factory = make_factory(config)
    resolved = resolve(config)
    limit_threads(resolved.config.threads)
    return factory, factory.spaces(), resolved


# Settings that may differ from those a run was begun with: they leave no trace in training.
_MAY_DIFFER = {
    *("out", "steps", "quiet", "log_every", "checkpoint_every", "keep_checkpoints"),
    *("eval_every", "eval_episodes", "eval_seed", "final_episodes", "final_seed"),
    *("save_buffer", "tensorboard", "wandb", "worker_timeout"),
    *("save_best", "stop_reward", "stop_seconds"),
}


def _check_same_run(config: TrainConfig, begun: dict[str, Any], directory: RunDirectory) -> None:
    """Refuse to go on with other settings than those that the checkpoint comes from."""
    now = json.loads(json.dumps(config.to_dict()))
    for name in sorted(set(now) - _MAY_DIFFER):
        if now[name] != begun.get(name):
            raise RunDirectoryError(
                f"{directory.config} says {name}={now[name]!r}, but the run was made with "
                f"{name}={begun.get(name)!r}: the file was damaged or edited; put it right"
            )


def _last_state(directory: RunDirectory) -> Checkpoint | None:
    """Read what a run goes on from: a checkpoint, or what it left when it was finished.

    One that cannot say how it was finished has its end again, or all of it if nothing was left.
    """
    missing = [path for path in (directory.state, directory.buffer) if not path.is_file()]
    if not directory.final.is_file() or (missing and not directory.finished):
        return directory.checkpoints.newest(tidy=True)
    if missing:
        raise RunDirectoryError(
            f"{str(directory.path)!r} cannot be prolonged: {missing[0].name} is missing (was it "
            "run with --no-save-buffer?)"
        )
    state = load_state(directory.state, kind=KIND, version=VERSION)
    buffer = load_state(directory.buffer, kind=replay_buffer.KIND, version=replay_buffer.VERSION)
    state["loop"]["buffer"] = buffer
    return Checkpoint(directory.state, state, [])


def _with_objects(config: TrainConfig, admission: Any, env: Any) -> TrainConfig:
    """Put the filter and the environment in place that only their own code can make."""
    used, *made = (str(value) for value in (config.admission, config.env, *config.wrappers))
    if used.startswith(CUSTOM):
        if admission is None:
            raise ConfigError(
                f"this run used the filter {used.removeprefix(CUSTOM)!r}, which only its own code "
                "can make: frugalrl.training.resume(path, admission=YourFilter())"
            )
        config = dataclasses.replace(config, admission=admission)
    own, *own_wrappers = (text.startswith(CUSTOM) for text in made)
    if any(own_wrappers) or (own and env is None):
        what = "wrappers" if any(own_wrappers) else "an environment"
        raise ConfigError(
            f"this run used {what} that only its own code can make ({config.env_name}): "
            "frugalrl.resume(path, env=your_environment); wrappers have to be importable by name"
        )
    if own and environment_text(env) != config.env:
        raise ConfigError(f"env={env!r} is not the run's {config.env_name}")
    return dataclasses.replace(config, env=env) if own else config


def make_buffer(config: Any, spaces: tuple[Box, Box], seeds: Seeds) -> ReplayBuffer:
    """Make the buffer that a resolved configuration asks for."""
    per = config.sampler == "prioritized"
    sampler: Any = Prioritized(anneal_steps=config.steps) if per else config.sampler
    admission = make_admission(config, seeds.admission)
    try:
        buffer = ReplayBuffer(
            None if config.buffer_bytes else config.buffer_size,
            capacity_bytes=config.buffer_bytes,
            observation_space=spaces[0],
            action_space=Box(-1.0, 1.0, spaces[1].shape, np.float32),
            admission=admission,
            sampler=sampler,
            seed=seeds.buffer,
            dtype=config.buffer_dtype,
            environments=config.envs,
            eviction=config.eviction,
            extra_fields=[("discount", (), np.float32)] if config.n_step > 1 else [],
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error).replace("capacity_bytes", "buffer_bytes")) from error
    # A batch is at the least a state, an action and a float32 reward for each transition.
    numbers = spaces[0].shape[0] + spaces[1].shape[0]
    least = config.batch_size * (numbers * np.dtype(config.buffer_dtype).itemsize + 4)
    if buffer.capacity_bytes is not None and least > buffer.capacity_bytes:
        raise ConfigError(
            f"batch_size={config.batch_size} is more than can ever be stored in "
            f"buffer_bytes={config.buffer_bytes!r}: that many transitions take over {least:,} bytes"
        )
    return buffer


_NETWORKS = ("actor", "actor_target", "critics", "targets", "ent_coef")

# The names that datasets have for the same array, the usual one first.
_NAMES = {
    **{name: (name,) for name in ("observations", "actions", "rewards", "next_observations")},
    "terminated": ("terminated", "terminations", "terminals"),
    "truncated": ("truncated", "truncations", "timeouts"),
}


def start_from(config: TrainConfig, agent: Agent, buffer: ReplayBuffer) -> tuple[list[str], Any]:
    """Take over what a configuration says to begin with.

    Gives lines about it for the user, and the statistics that its networks' inputs go through.

    Raises:
        ConfigError: it does not fit.
        RunDirectoryError: it is not there.
    """
    for name in ("init_policy", "init_buffer"):
        source = getattr(config, name)
        if isinstance(source, (str, os.PathLike)) and not Path(source).exists():
            raise ConfigError(f"{name}={str(source)!r} does not exist")
    lines, statistics = [], None
    if config.init_policy is not None:
        what, statistics = _take_networks(agent, Path(config.init_policy), config.normalize)
        lines.append(f"starting with {what} of {config.init_policy}")
    if config.init_buffer is not None:
        offered = _offer_transitions(buffer, agent, config.init_buffer)
        lines.append(f"starting with {len(buffer):,} of {offered:,} earlier transitions")
    return lines, statistics


def _take_networks(agent: Agent, path: Path, normalize: str) -> tuple[str, Any]:
    """Give an agent the networks of an earlier run, to new optimizers.

    Of a run directory actor and critics are taken; a policy file has the actor alone.

    Returns:
        Which networks they are, and the statistics of what they saw, if it was normalized.
    """
    state = agent.state_dict()
    learner = state["learner"]
    directory, run = RunDirectory(path), None
    if directory.state.is_file():
        run = load_state(directory.state, kind=KIND, version=VERSION)
    elif found := directory.checkpoints.newest():
        run = found.state
    statistics = None
    if run is None:
        policy = load_policy(path)
        saved, what = {"actor": policy.parameters}, "the actor"
        was_normalized = policy.normalize is not None
    else:
        earlier = run["loop"]["agent"]["learner"]
        saved = {name: earlier[name] for name in earlier if name in _NETWORKS}
        statistics, what = run["loop"].get("normalizer"), "all networks"
        was_normalized = statistics is not None and statistics["observations"] is not None
    if was_normalized != (normalize in ("obs", "both")):
        seen, use = ("normalized", "obs") if was_normalized else ("plain", "none")
        raise ConfigError(
            f"init_policy={str(path)!r} does not fit normalize={normalize!r}: it learned from "
            f"{seen} observations; use normalize={use!r}"
        )
    if was_normalized and statistics is None:
        raise ConfigError(
            f"init_policy={str(path)!r} is a policy alone, whose observations' statistics cannot "
            "be continued; give the directory of its run"
        )
    if "actor_target" in learner:
        saved.setdefault("actor_target", saved["actor"])
    for name, values in saved.items():
        if name not in learner or np.shape(values) != np.shape(learner[name]):
            mine = np.shape(learner[name]) if name in learner else "none"
            raise ConfigError(
                f"init_policy={str(path)!r} does not fit: its {name} has {np.shape(values)} "
                f"parameters, this run's {mine}; use the same algo, net_arch and environment"
            )
        learner[name] = np.array(values, np.float32)
    agent.load_state_dict(state)
    return what, statistics


def _offer_transitions(buffer: ReplayBuffer, agent: Agent, source: Any) -> int:
    """Offer earlier transitions to a run's buffer, in their order; gives how many.

    They come from a run directory, a saved buffer, an `.npz` file, or a mapping of arrays in the
    manner of D4RL or Minari: observations, actions, rewards, terminals, timeouts, and
    next_observations, which otherwise follow from the order of the rows.
    """
    is_buffer = isinstance(source, (str, os.PathLike)) and not str(source).endswith(".npz")
    if is_buffer:
        path = Path(source)
        file = path / "buffer.safetensors" if path.is_dir() else path
        if not file.is_file():
            raise RunDirectoryError(f"init_buffer={str(source)!r}: there is no {file.name}")
        held = ReplayBuffer.load(file).transitions()
        arrays = {name: np.asarray(getattr(held, name)) for name in _NAMES}
    else:
        arrays = _read_arrays(source)
    rows = len(arrays["rewards"])
    shapes = {"actions": buffer.action_space.shape}
    shapes |= dict.fromkeys(("observations", "next_observations"), buffer.observation_space.shape)
    for name, values in arrays.items():
        expected = (rows, *shapes.get(name, ()))
        if values.shape != expected:
            raise ConfigError(f"init_buffer: {name} has shape {values.shape}, not {expected}")
    if not is_buffer:  # which holds actions within [-1, 1]
        bounds = agent.policy_state()
        arrays["actions"] = ActionScale(bounds["low"], bounds["high"]).to_unit(arrays["actions"])
    buffer.extend(*(arrays[name] for name in _NAMES))
    return rows


def _read_arrays(source: Any) -> dict[str, NDArray[Any]]:
    """Read the arrays of a dataset under our names for them."""
    if isinstance(source, (str, os.PathLike)):
        try:
            with np.load(source, allow_pickle=False) as file:
                source = dict(file)
        except Exception as error:  # whatever a damaged archive leads to
            raise ConfigError(f"init_buffer={str(source)!r} cannot be read: {error}") from error
    if not isinstance(source, Mapping):
        raise ConfigError(f"init_buffer={source!r} is neither a path nor a mapping of arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for name, spellings in _NAMES.items():
        kind = bool if name in ("terminated", "truncated") else np.float32
        for spelling in [it for it in spellings if it in source]:
            try:
                arrays[name] = np.atleast_1d(np.asarray(source[spelling], kind))
            except (TypeError, ValueError) as error:
                raise ConfigError(f"init_buffer: {spelling} cannot be read: {error}") from error
    for name in ("observations", "actions", "rewards", "terminated"):
        if name not in arrays:
            raise ConfigError(
                f"init_buffer has no {' or '.join(_NAMES[name])}; it has {sorted(source)}"
            )
    rows, last_too = len(arrays["rewards"]), "next_observations" not in arrays
    arrays.setdefault("truncated", np.zeros(rows, bool))
    for name, values in arrays.items():
        if len(values) != rows + (last_too and name == "observations" and len(values) > rows):
            raise ConfigError(f"init_buffer: {name} has {len(values)} rows, rewards {rows}")
    return _with_next_observations(arrays) if last_too else arrays


def _with_next_observations(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Take each row's next observation from the row after it; an episode's last row is left out.

    Where an episode ended by itself, what follows does not matter, so that row stays.
    """
    observations, terminated = arrays["observations"], arrays["terminated"]
    if len(observations) == len(terminated) + 1:
        return {**arrays, "observations": observations[:-1], "next_observations": observations[1:]}
    following = np.concatenate([observations[1:], observations[-1:]])
    following[terminated] = observations[terminated]
    keep = ~arrays["truncated"] | terminated
    keep[-1:] = terminated[-1:]
    arrays = {**arrays, "next_observations": following}
    return {name: values[keep] for name, values in arrays.items()}
