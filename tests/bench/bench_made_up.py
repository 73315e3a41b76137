"""Results directories made up for the tests: what a grid leaves behind, without training."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.bench.cells import CELL_FILE, DONE_FILE, ERROR_FILE, RUN_DIRECTORY, Cell, expand
from frugalrl.bench.kept import replay_through, state_map
from frugalrl.bench.results import GRID_FILE
from frugalrl.bench.suites import Suite, Task, load_suite
from frugalrl.files import write_json
from frugalrl.replay.contents import describe_contents, fit_partition

_LEVEL = {"baseline": 100.0, "fac": 103.0, "laber": 90.0, "random": 80.0, "small": 85.0}


def made_up_suite(
    tasks: tuple[Task, ...] = (Task("Pendulum-v1", "sac", 2_000),),
    methods: tuple[str, ...] = ("baseline", "fac", "laber", "random", "small"),
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
    partition = fit_partition(observations, rewards, None, warmup_steps=200)
    contents = describe_contents(observations, rewards, partition, 32, rng)
    kept = replay_through(partition, observations, rewards, 200)
    return contents | {"actions": 1, "map": state_map(observations, kept, 200)}


def write_run(root: Path, cell: Cell) -> None:
    """Write what a finished cell would have left, with a learning curve that rises to a level."""
    directory = root / cell.path
    rng = np.random.default_rng([cell.seed, *map(ord, cell.method)])
    frugal = cell.settings.get("admission") is not None
    size = cell.steps // 2 if frugal or cell.method == "small" else cell.steps
    level = _LEVEL.get(cell.method, 95.0) + rng.normal(0, 2)
    steps = np.linspace(0, cell.steps, 11)[1:].astype(int)
    run = directory / RUN_DIRECTORY
    run.mkdir(parents=True)
    write_json(directory / CELL_FILE, {**cell.to_json(), "fingerprint": cell.fingerprint})
    lines = ["env_steps,episode,seed,reward,length,control_cost"]
    metrics = ["env_steps,train_seconds,offered,stored,replaced,dropped,buffer_bytes,buffer_size"]
    for step in steps:
        stored = min(step, 500 + (step - 500) // 4) if frugal else step
        for episode in range(3):
            reward = level * (1 - np.exp(-4 * step / cell.steps)) + rng.normal(0, 3)
            lines.append(f"{step},{episode},{episode},{reward},200,10.0")
        metrics.append(
            f"{step},{step / 500},{step},{stored},0,{step - stored},{stored * 40},"
            f"{min(stored, size)}"
        )
    (run / "evaluations.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (run / "metrics.csv").write_text("\n".join(metrics) + "\n", encoding="utf-8")
    done = {
        "fingerprint": cell.fingerprint,
        "reward": level,
        "random_reward": 0.0 if cell.method == "baseline" else None,
        "control_cost": 50.0 + cell.seed,
        "offered": cell.steps,
        "stored": size,
        "size": size,
        "capacity": size if cell.method == "small" else 1_000_000,
        "buffer_bytes": size * 40,
        "train_seconds": 4.0 + cell.seed / 10,
        "wall_seconds": 5.0,
        "peak_memory_bytes": 3e8,
        "commit": "0123abc",
        "versions": {"frugalrl": "0.1.0"},
        "machine": "a machine",
        "derived": {"random_rate": 0.5} if cell.method == "random" else {},
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
    """Write a results directory; cells in `failed` and `missing` (method, seed) have no result."""
    chosen = suite or made_up_suite()
    root = tmp_path / name
    cells = expand(chosen)
    for cell in cells:
        key = (cell.method, cell.seed)
        if key in failed:
            (root / cell.path).mkdir(parents=True)
            write_json(root / cell.path / CELL_FILE, cell.to_json())
            text = "Traceback (most recent call last):\nValueError: <b>no</b> torque\n"
            (root / cell.path / ERROR_FILE).write_text(text, encoding="utf-8")
        elif key not in missing:
            write_run(root, cell)
    grid = {
        "suite": chosen.name,
        "cells": [cell.to_json() for cell in cells],
        "command": "frugalrl compare Pendulum-v1",
        **about,
    }
    write_json(root / GRID_FILE, grid)
    return root
