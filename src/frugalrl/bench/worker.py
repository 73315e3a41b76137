"""One run in one process: train or go on training, look into the buffer, write the summary.

Started by the grid as `python -m frugalrl.bench.worker DIRECTORY`; the grid has set the
number of threads before this process loads anything numerical.
"""

from __future__ import annotations

import contextlib
import inspect
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.admission.partition import important_dimensions
from frugalrl.admission.released import ReleasedFilter
from frugalrl.agents.agent import Agent
from frugalrl.bench import contents, origin
from frugalrl.bench.errors import BenchError
from frugalrl.bench.matched import MatchedRandom
from frugalrl.bench.methods import GRID_ONLY, MATCHED_REPLACE, RELEASED
from frugalrl.bench.runs import DONE_FILE, ERROR_FILE, RUN_DIRECTORY, RUN_FILE, Run
from frugalrl.files import DirectoryLock, read_json, write_json
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.state_io import StateFileError
from frugalrl.training.config import TrainConfig, resolve
from frugalrl.training.environments import Environment, make_factory
from frugalrl.training.errors import ConfigError, TrainingError, TrainingInterrupted
from frugalrl.training.evaluation import run_episodes
from frugalrl.training.process import die_with
from frugalrl.training.run_directory import RunDirectory
from frugalrl.training.runner import resume, train

RANDOM_EPISODES = 20
_PATIENCE = 60.0  # seconds
_COUNTS = ("size", "offered", "stored", "replaced", "dropped", "evicted")


def main(arguments: list[str]) -> int:
    """Work on a run: its directory, whether to keep its buffer, and the process of the grid."""
    directory, keep_buffer, parent = Path(arguments[0]), *map(int, arguments[1:3])
    die_with(parent)
    try:
        finish_run(directory, keep_buffer=bool(keep_buffer))
    except TrainingInterrupted as stop:
        return stop.exit_code
    except Exception as error:
        told = isinstance(error, (ConfigError, TrainingError, StateFileError))
        text = f"{error}\n" if told else traceback.format_exc()
        with contextlib.suppress(OSError):  # a full disk: what matters is what is printed
            (directory / ERROR_FILE).write_text(text, encoding="utf-8")
        print(text, file=sys.stderr)
        return 1
    return 0


def finish_run(directory: Path, *, keep_buffer: bool = False) -> None:
    """Bring a run to its end, from wherever it is, and write down all that a report needs of it."""
    stored = read_json(directory / RUN_FILE)
    if stored is None:
        raise FileNotFoundError(f"{directory} has no readable {RUN_FILE}")
    run = Run.from_json(stored)
    derived = dict(stored.get("derived", {}))
    if run.settings.get("admission") == RELEASED:
        derived["dimensions"] = important_dimensions_of(run)
    config = train_config(run, derived, directory / RUN_DIRECTORY)
    buffer, agent = _train(config)
    final = read_json(directory / RUN_DIRECTORY / "final.json")
    assert final is not None
    evaluation, held = final.get("final") or {}, final["buffer"]
    last = final["evaluations"][-1][1] if final["evaluations"] else None
    done = {
        "reward": evaluation.get("reward_mean", last),
        "reward_episodes": len(evaluation.get("rewards", [])),
        "control_cost": evaluation.get("control_cost_mean"),
        **_as_the_paper_evaluates(config, evaluation, agent),
        "random_reward": random_reward(config) if run.method == "baseline" else None,
        **{key: held[key] for key in _COUNTS},
        "capacity": buffer.capacity,
        "buffer_bytes": held["bytes"],
        **{key: final[key] for key in ("train_seconds", "wall_seconds", "peak_memory_bytes")},
        "commit": origin.commit(),
        "versions": origin.versions(),
        "machine": origin.machine(),
        "buffer": describe_buffer(buffer, run, config, agent),
        "derived": derived,
        "fingerprint": run.fingerprint,
    }
    write_json(directory / DONE_FILE, done)
    if not keep_buffer:
        (directory / RUN_DIRECTORY / "buffer.safetensors").unlink(missing_ok=True)


def train_config(run: Run, derived: Mapping[str, Any], out: Path | None) -> TrainConfig:
    """Make a run's configuration."""
    settings = {"tensorboard": False, "quiet": True, **run.settings, **derived}
    if settings.get("admission") in GRID_ONLY:
        settings = grid_admission(run, settings)
    of_run = {"env": run.env, "algo": run.algo, "steps": run.steps, "seed": run.seed, "out": out}
    return TrainConfig.from_dict({**settings, **of_run, "save_buffer": True})


def grid_admission(run: Run, settings: dict[str, Any]) -> dict[str, Any]:
    """Make the filter of a control that follows another run, or of the authors' released code.

    Raises:
        BenchError: A setting that the released code does not have, or a value that it cannot take.
    """
    plain = {name: value for name, value in settings.items() if not name.startswith("fac_")}
    sizes = plain.pop("sizes", [[run.steps, run.steps]])
    dimensions = plain.pop("dimensions", [0])
    if plain["admission"] != RELEASED:
        replace = plain["admission"] == MATCHED_REPLACE
        matched = MatchedRandom(*zip(*sizes, strict=True), replace=replace, seed=run.seed)
        return {**plain, "admission": matched}
    own = {name[4:]: value for name, value in settings.items() if name.startswith("fac_")}
    known = [*inspect.signature(ReleasedFilter).parameters][1:]
    for name in own:
        if name not in known:
            raise BenchError(
                f"the released code has no fac_{name}; set it for other methods only, under "
                f"[method.NAME]. It has {', '.join(f'fac_{other}' for other in known)}"
            )
    try:
        return {**plain, "admission": ReleasedFilter(dimensions, **own)}
    except (TypeError, ValueError) as error:
        raise BenchError(f"fac_{error}") from None


def important_dimensions_of(run: Run) -> list[int]:
    """Find the dimensions that the authors typed in: as the paper says, from random steps.

    Their numbers are the paper's on all nine benchmarks; which ones they are it does not say.
    """
    observations, _ = random_steps(train_config(run, {}, None), run.warmup_steps)
    return [int(dimension) for dimension in important_dimensions(observations, 0.5, 0.04)]


def _as_the_paper_evaluates(
    config: TrainConfig, evaluation: Mapping[str, Any], agent: Agent | None
) -> dict[str, float]:
    """Measure the final policy as the published numbers were: acting with its own randomness.

    Rewards are summed without the last step's. A policy without randomness is not run again. Empty
    where there was no final evaluation, or the learner is gone: the run had ended before.
    """
    seeds = evaluation.get("seeds", [])
    if not seeds or agent is None:
        return {}
    if config.algo != "sac":
        shortened = np.subtract(evaluation["rewards"], evaluation["last_rewards"])
        cost = evaluation["control_cost_mean"]
        return {"paper_reward": float(np.mean(shortened)), "paper_control_cost": cost}
    rewards, costs = [], []
    with contextlib.closing(make_factory(config).make()) as environment:
        for seed in seeds:
            agent.rollout_started()  # gSDE: another exploration matrix for every episode
            found = run_episodes(lambda it: agent.act(it[None]).environment[0], environment, [seed])
            assert found is not None
            rewards.append(float(found.rewards[0] - found.last_rewards[0]))
            costs.append(float(found.control_costs[0]))
    return {"paper_reward": float(np.mean(rewards)), "paper_control_cost": float(np.mean(costs))}


def describe_buffer(
    buffer: ReplayBuffer, run: Run, config: TrainConfig, agent: Agent | None
) -> dict[str, Any]:
    """Look at what a run's buffer holds, by the same cells for all methods of a task and seed.

    The cells come from random steps. A buffer too small to be divided is not looked at.
    """
    held = buffer.transitions()
    spaces = buffer.observation_space, buffer.action_space
    width, actions = (int(np.prod(space.shape)) for space in spaces)
    observations = held.observations.reshape(len(buffer), width)
    found: dict[str, Any] = {"observations": width, "actions": actions}
    if len(buffer) < width:
        return found
    random = random_steps(config, max(run.warmup_steps, width))
    partition = contents.cells_from(*random, buffer.observation_space)
    batch = resolve(config).config.batch_size or 256
    generator = np.random.default_rng([config.seed, 2])
    found |= contents.describe_contents(observations, held.rewards, partition, batch, generator)
    if run.method == "baseline":
        warmup = max(min(run.warmup_steps, len(buffer)), width)
        frugal = contents.frugal_copy(buffer, warmup)
        stored = frugal.transitions().observations.reshape(len(frugal), width)
        found["map"] = contents.state_map(observations, stored, warmup)
        if agent is not None:
            found["gradients"] = {
                name: contents.gradient_variance(agent, source, batch, generator)
                for name, source in (("baseline", buffer), ("fac", frugal))
            }
    return found


def random_reward(config: TrainConfig) -> float:
    """Measure what uniformly random actions earn: the zero of normalised scores."""
    first = 2_000_000 + config.seed * RANDOM_EPISODES
    with _acting_at_random(config) as (environment, act):
        episodes = run_episodes(act, environment, range(first, first + RANDOM_EPISODES))
    assert episodes is not None
    return episodes.mean


def random_steps(config: TrainConfig, steps: int) -> tuple[Any, Any]:
    """Act at random for some steps; gives observations and rewards, one row per step."""
    observations, rewards = [], []
    with _acting_at_random(config) as (environment, act):
        observation, _ = environment.reset(seed=config.seed)
        for _ in range(steps):
            observations.append(np.asarray(observation, dtype=np.float32))
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            rewards.append(float(reward))
            if terminated or truncated:
                observation, _ = environment.reset()
    return np.stack(observations), np.array(rewards, dtype=np.float32)


@contextlib.contextmanager
def _acting_at_random(config: TrainConfig) -> Iterator[tuple[Environment, Callable[[Any], Any]]]:
    """Give a run's environment, and a policy that draws from its space."""
    with contextlib.closing(make_factory(config).make()) as environment:
        environment.action_space.seed(config.seed)
        yield environment, lambda _: environment.action_space.sample()


def _train(config: TrainConfig) -> tuple[ReplayBuffer, Agent | None]:
    """Begin, resume or only read a run; give its buffer, and its learner if it was at work."""
    assert config.out is not None
    given = None if isinstance(config.admission, str) else config.admission
    run = RunDirectory(config.out)
    if run.path.is_dir():
        # The process of a grid that was killed may still be saving this run.
        lock = DirectoryLock(run.path)
        with contextlib.suppress(OSError):
            lock.acquire(wait=_PATIENCE)
        lock.release()
    if not run.config.is_file() or (run.finished and not run.buffer.is_file()):
        # Killed while the directory was being made; or the run had ended, its buffer was looked
        # into and deleted, and what was found is damaged: the same run again gives the same.
        shutil.rmtree(config.out, ignore_errors=True)
        result = train(config, progress=False)
    elif run.finished:
        kind = None if given is None else type(given)
        return ReplayBuffer.load(run.buffer, admission=kind), None
    else:
        result = resume(config.out, progress=False, admission=given)
    return result.buffer, result.agent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
