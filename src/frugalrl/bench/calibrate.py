"""How long a grid will take: a short run of each task, timed after everything is compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frugalrl.bench.errors import BenchError
from frugalrl.bench.grid import SINGLE_THREAD
from frugalrl.bench.runs import Run

_LOG_EVERY = 100
_TIMED = 200
_POLICY_SECONDS = 2e-5


@dataclass(frozen=True)
class Speed:
    """What one task costs."""

    step: float
    """Seconds of an environment step with its updates."""
    evaluation_step: float
    """Seconds of a step without learning."""
    episode_steps: int
    """Longest possible episode."""


def estimate_seconds(run: Run, speed: Speed) -> float:
    """Estimate a run: training, evaluations on the way and at the end, start-up."""
    settings = run.settings
    evaluations = run.steps // max(int(settings.get("eval_every", run.steps)), 1)
    episodes = evaluations * int(settings.get("eval_episodes", 10))
    episodes += int(settings.get("final_episodes", 100))
    return run.steps * speed.step + episodes * speed.episode_steps * speed.evaluation_step + 8.0


def measure_speeds(
    runs: Sequence[Run], tell: Callable[[str], None]
) -> dict[tuple[tuple[str, str], str], Speed]:
    """Time each task with each of its samplers.

    Other settings hardly change the time of a step: filters cost a few microseconds.

    Returns:
        The speed by task and sampler.
    """
    speeds: dict[tuple[tuple[str, str], str], Speed] = {}
    for run in runs:
        key = (run.task, sampler_of(run))
        if key in speeds:
            continue
        tell(f"timing {run.env} with {run.algo}, {key[1]} batches")
        speeds[key] = measure_speed(run)
    return speeds


def sampler_of(run: Run) -> str:
    """Name the way in which a run draws its batches."""
    return str(run.settings.get("sampler", "uniform"))


def measure_speed(run: Run) -> Speed:
    """Time one run in a process of its own, pinned to one thread like the real run."""
    found = subprocess.run(
        [sys.executable, "-m", "frugalrl.bench.calibrate", json.dumps(run.to_json())],
        capture_output=True,
        text=True,
        env={**os.environ, **SINGLE_THREAD},
        check=False,
    )
    if found.returncode != 0:
        raise BenchError(f"{run.name} cannot be timed:\n{found.stderr[-3000:].strip()}")
    return Speed(**json.loads(found.stdout.splitlines()[-1]))


def main(arguments: list[str]) -> int:
    """Time the run given as JSON and print its speed as JSON."""
    run = Run.from_json(json.loads(arguments[0]))
    print(json.dumps(_time(run)))
    return 0


def _time(run: Run) -> dict[str, Any]:
    from frugalrl.bench.worker import train_config
    from frugalrl.training.config import OF_A_FILTER, resolve
    from frugalrl.training.environments import find_environment
    from frugalrl.training.runner import train

    plain = {
        name: value
        for name, value in run.settings.items()
        if name != "admission" and not name.startswith(OF_A_FILTER)
    }
    resolved = resolve(train_config(replace(run, settings=plain), {}, None)).config
    by_steps = isinstance(resolved.train_freq, int)
    every = max(_LOG_EVERY, int(resolved.train_freq or 1) if by_steps else 1)
    start = max(resolved.batch_size or 256, every)
    short = {"learning_starts": start, "eval_every": 0, "final_episodes": 0, "log_every": every}
    short["checkpoint_every"] = 0
    if not by_steps:  # the same cost, spread evenly
        short |= {"train_freq": 1, "gradient_steps": 1}
    timed = replace(run, steps=start + 5 * every, settings={**plain, **short})
    rows = train(train_config(timed, {}, None), progress=False).metrics[-3:]
    first, last = rows[0], rows[-1]
    made = float(last["env_steps"] or 0) - float(first["env_steps"] or 0)
    spent = float(last["train_seconds"] or 0) - float(first["train_seconds"] or 0)
    factory = find_environment(run.env, resolved.environment_arguments())
    environment = factory.make()
    return {
        "step": spent / max(made, 1.0),
        "evaluation_step": _bare_step(environment) + _POLICY_SECONDS,
        "episode_steps": factory.time_limit or 1000,
    }


def _bare_step(environment: Any) -> float:
    """Time an environment's step."""
    environment.reset(seed=0)
    environment.action_space.seed(0)
    begun = time.perf_counter()
    for _ in range(_TIMED):
        _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        if terminated or truncated:
            environment.reset()
    spent = time.perf_counter() - begun
    environment.close()
    return spent / _TIMED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
