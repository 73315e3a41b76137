"""How long a grid will take: a short run of each task, timed after everything is compiled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from frugalrl.bench.errors import BenchError
from frugalrl.bench.runs import Run
from frugalrl.training.console import duration
from frugalrl.training.errors import ConfigError, TrainingError

_LOG_EVERY = 100
_EPISODES = 5
_LONGEST = 200


class Speed(NamedTuple):
    """What one task costs."""

    step: float
    """Seconds of an environment step with its updates."""
    evaluation_step: float
    """Seconds of a step without learning."""
    episode_steps: int
    """Longest possible episode."""


def estimate_line(runs: Sequence[Run], jobs: int) -> str:
    """Time each task with each of its samplers and say how long all runs will take.

    Other settings hardly change the time of a step: filters cost a few microseconds.
    """
    speeds: dict[str, Speed] = {}
    seconds = []
    for run in runs:
        what = f"{run.env} with {run.algo}, {run.settings.get('sampler', 'uniform')} batches"
        if what not in speeds:
            print(f"timing {what}", flush=True)
            speeds[what] = measure_speed(run)
        seconds.append(estimate_seconds(run, speeds[what]))
    total = max(sum(seconds) / jobs, max(seconds))
    return (
        f"{len(runs)} runs, {sum(run.steps for run in runs):,} steps: about "
        f"{duration(total)} with {jobs} at a time on this machine (episodes counted at full length)"
    )


def estimate_seconds(run: Run, speed: Speed) -> float:
    """Estimate a run: training, evaluations on the way and at the end, start-up."""
    settings = run.settings
    every = int(settings.get("eval_every", run.steps))
    evaluations = run.steps // every if every else 0
    episodes = evaluations * int(settings.get("eval_episodes", 10))
    episodes += int(settings.get("final_episodes", 100))
    return run.steps * speed.step + episodes * speed.episode_steps * speed.evaluation_step + 8.0


def measure_speed(run: Run) -> Speed:
    """Time a short run, on one thread like the real one, and episodes of its policy.

    Raises:
        BenchError: The run cannot be made.
    """
    from frugalrl.bench.worker import train_config
    from frugalrl.training.config import OF_THE_FILTER, resolve
    from frugalrl.training.environments import make_factory
    from frugalrl.training.evaluation import run_episodes
    from frugalrl.training.runner import train

    of_filters = ("admission", OF_THE_FILTER)
    plain = {key: value for key, value in run.settings.items() if not key.startswith(of_filters)}
    try:
        resolved = resolve(train_config(replace(run, settings=plain), {}, None)).config
        freq = resolved.train_freq
        every = max(_LOG_EVERY, freq) if isinstance(freq, int) else _LOG_EVERY
        start = max(resolved.batch_size or 256, every)
        short = {"learning_starts": start, "eval_every": 0, "final_episodes": 0, "log_every": every}
        if freq == "episode":  # the same cost, spread evenly
            short |= {"train_freq": 1, "gradient_steps": 1}
        timed = replace(run, steps=start + 5 * every, settings={**plain, **short})
        result = train(train_config(timed, {}, None), progress=False)
    except (ConfigError, TrainingError) as error:
        raise BenchError(f"{run.name} cannot be timed: {error}") from None
    made, spent = (
        float(result.metrics[-1][name] or 0) - float(result.metrics[-3][name] or 0)
        for name in ("env_steps", "train_seconds")
    )
    factory = make_factory(resolved)
    with contextlib.closing(factory.make()) as environment:
        begun = time.perf_counter()
        episodes = run_episodes(result.policy, environment, range(_EPISODES), longest=_LONGEST)
        assert episodes is not None
        bare = (time.perf_counter() - begun) / float(episodes.lengths.sum())
    return Speed(spent / max(made, 1.0), bare, factory.time_limit or 1000)
