"""Results directories made up for the tests: what a grid leaves behind, without training."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.bench.contents import cells_from, describe_contents, state_map
from frugalrl.bench.results import GRID_FILE
from frugalrl.bench.runs import DONE_FILE, ERROR_FILE, RUN_DIRECTORY, RUN_FILE, Run, expand
from frugalrl.bench.suites import Suite, Task, load_suite
from frugalrl.files import write_json

_LEVEL = {"baseline": 100.0, "fac": 103.0, "laber": 90.0, "random-slot": 80.0, "small": 85.0}


def made_up_suite(
    tasks: tuple[Task, ...] = (Task("Pendulum-v1", "sac", 2_000),),
    methods: tuple[str, ...] = ("baseline", "fac", "laber", "random-slot", "small"),
    seeds: int = 5,
) -> Suite:
    """A suite of short tasks."""
    return replace(load_suite("smoke"), tasks=tasks, methods=methods, seeds=tuple(range(seeds)))


@cache
def made_up_contents() -> dict[str, Any]:
    """What was found in a made-up buffer; the same for all runs, because it is slow to make."""
    rng = np.random.default_rng(11)
    observations = rng.normal(size=(600, 3)) * [1.0, 5.0, 2.0]
    rewards = rng.normal(size=600)
    partition = cells_from(observations[:200], rewards[:200], None)
    contents = describe_contents(observations, rewards, partition, 32, rng)
    stored = state_map(observations, observations[::2], 200)
    gradients = {"baseline": 1.2, "fac": 1.0}
    return contents | {"actions": 1, "map": stored, "gradients": gradients}


def write_run(root: Path, run: Run) -> None:
    """Write what a finished run would have left, with a learning curve that rises to a level."""
    directory = run.directory(root)
    rng = np.random.default_rng([run.seed, *map(ord, run.method)])
    frugal = run.settings.get("admission") is not None
    size = run.steps // 2 if frugal or run.method == "small" else run.steps
    size = min(size, run.settings.get("buffer_size", size))
    level = _LEVEL.get(run.method, 95.0) + rng.normal(0, 2)
    steps = np.linspace(0, run.steps, 11)[1:].astype(int)
    inside = directory / RUN_DIRECTORY
    inside.mkdir(parents=True)
    write_json(directory / RUN_FILE, {**run.to_json(), "fingerprint": run.fingerprint})
    lines = ["env_steps,episode,seed,reward,length,control_cost"]
    metrics = ["env_steps,train_seconds,offered,stored,replaced,dropped,buffer_bytes,buffer_size,"]
    metrics[0] += "episodes,episode_reward"
    for step in steps:
        stored = min(step, 500 + (step - 500) // 4) if frugal else step
        for episode in range(3):
            reward = level * (1 - np.exp(-4 * step / run.steps)) + rng.normal(0, 3)
            lines.append(f"{step},{episode},{episode},{reward},200,10.0")
        metrics.append(
            f"{step},{step / 500},{step},{stored},0,{step - stored},{stored * 40},"
            f"{min(stored, size)},{step // 10},{level * (1 - np.exp(-4 * step / run.steps))}"
        )
    (inside / "evaluations.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (inside / "metrics.csv").write_text("\n".join(metrics) + "\n", encoding="utf-8")
    done = {
        "fingerprint": run.fingerprint,
        "reward": level,
        "random_reward": 0.0 if run.method == "baseline" else None,
        "control_cost": 50.0 + run.seed,
        "paper_reward": level - 1.0,
        "paper_control_cost": 60.0 + run.seed,
        "offered": run.steps,
        "stored": size,
        "size": size,
        "capacity": size if run.method == "small" else 1_000_000,
        "buffer_bytes": size * 40,
        "train_seconds": 4.0 + run.seed / 10,
        "wall_seconds": 5.0,
        "peak_memory_bytes": 3e8,
        "commit": "0123abc",
        "versions": {"frugalrl": "0.1.0"},
        "machine": "a machine",
        "derived": {"sizes": [[2_000, size]]} if run.method == "random-slot" else {},
        "buffer": made_up_contents(),
    }
    write_json(directory / DONE_FILE, done)


def make_results_in(
    tmp_path: Path,
    suite: Suite | None = None,
    failed: tuple[tuple[str, int], ...] = (),
    missing: tuple[tuple[str, int], ...] = (),
    name: str = "results",
    **about: object,
) -> Path:
    """Write a results directory; runs in `failed` and `missing` (method, seed) have no result."""
    chosen = suite or made_up_suite()
    root = tmp_path / name
    runs = expand(chosen)
    for run in runs:
        key = (run.method, run.seed)
        if key in failed:
            (run.directory(root)).mkdir(parents=True)
            write_json(run.directory(root) / RUN_FILE, run.to_json())
            text = "Traceback (most recent call last):\nValueError: <b>no</b> torque\n"
            (run.directory(root) / ERROR_FILE).write_text(text, encoding="utf-8")
        elif key not in missing:
            write_run(root, run)
    grid = {
        "suite": chosen.name,
        "runs": [run.to_json() for run in runs],
        "command": "frugalrl compare Pendulum-v1",
        **about,
    }
    write_json(root / GRID_FILE, grid)
    return root
