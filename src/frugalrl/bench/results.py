"""A results directory, read back: which runs are done, what they measured, what went wrong."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.bench.errors import BenchError
from frugalrl.bench.measures import convergence_point, finite_mean, recent_mean
from frugalrl.bench.methods import METHODS, PLAIN_COLOR, Method, find_method
from frugalrl.bench.runs import DONE_FILE, ERROR_FILE, RUN_DIRECTORY, RUN_FILE, Run, listed_runs
from frugalrl.files import read_json
from frugalrl.training.run_directory import RunDirectory

GRID_FILE = "grid.json"
Values = NDArray[np.float64]
# For methods of a user's own: unlike those of the known ones, readable on white and on black.
_OTHER_COLORS = ("#b8860b", "#c2185b", "#8d6e63", "#689f38", "#00a5ba", "#9575cd")


@dataclass(frozen=True)
class Result:
    """A finished run and everything it wrote."""

    run: Run
    directory: Path
    done: Mapping[str, Any]
    """Summary written when the run ended: reward, sizes, times, and what its buffer held."""

    def number(self, *keys: str) -> float:
        """Give a measured number by its path in the summary, NaN where it was not measured."""
        found: object = self.done
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, (int, float)) else math.nan

    @property
    def buffer(self) -> Mapping[str, Any]:
        """What was found in the final buffer; empty where it was not looked at."""
        return self.done.get("buffer") or {}

    @cached_property
    def metrics(self) -> dict[str, Values]:
        """The run's `metrics.csv`, column by column."""
        return read_columns(self.directory / RUN_DIRECTORY / "metrics.csv")

    def column(self, name: str) -> Values:
        """Give one column of the metrics, empty where it is missing."""
        return self.metrics.get(name, np.empty(0))

    @cached_property
    def convergence(self) -> float | None:
        """Step at which the mean of the last 100 training episodes settled, if it ever did."""
        means = recent_mean(self.column("episodes"), self.column("episode_reward"))
        known = np.isfinite(means)
        return convergence_point(self.column("env_steps")[known], means[known])

    @cached_property
    def curve(self) -> tuple[Values, Values]:
        """Steps of the evaluations and their mean reward over episodes."""
        table = read_columns(self.directory / RUN_DIRECTORY / "evaluations.csv")
        if not {"env_steps", "reward"} <= set(table):
            return np.empty(0), np.empty(0)
        steps, index = np.unique(table["env_steps"], return_inverse=True)
        return steps, np.bincount(index, weights=table["reward"]) / np.bincount(index)

    @property
    def late_reward(self) -> float:
        """Mean reward of the evaluations in the second half of training.

        The final policy is but one moment of a curve that may be rough.
        """
        steps, rewards = self.curve
        return finite_mean(rewards[steps > self.run.steps / 2])


@dataclass(frozen=True)
class Problem:
    """A run without a result."""

    run: Run
    state: str
    """`failed`, `unfinished` or `missing`."""
    detail: str = ""


@dataclass(frozen=True)
class Results:
    """All of a results directory."""

    directory: Path
    grid: Mapping[str, Any]
    runs: tuple[Result, ...]
    problems: tuple[Problem, ...]

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """The tasks with at least one run, in the grid's order."""
        return list(dict.fromkeys(result.run.task for result in self.runs))

    @property
    def methods(self) -> list[str]:
        """The methods with at least one run, the well-known ones in their usual order."""
        order = {name: rank for rank, name in enumerate(METHODS)}
        names = dict.fromkeys(result.run.method for result in self.runs)
        return sorted(names, key=lambda name: order.get(name, len(order)))

    def select(self, task: tuple[str, str], method: str) -> dict[int, Result]:
        """Give the runs of a task and method by seed."""
        found = [r for r in self.runs if r.run.task == task and r.run.method == method]
        return {result.run.seed: result for result in sorted(found, key=lambda it: it.run.seed)}

    def method(self, name: str) -> Method:
        """Describe a method, also one that only this directory's suite knew."""
        run = next((result.run for result in self.runs if result.run.method == name), None)
        try:
            found = find_method(name)
        except BenchError:
            found = Method(name, run.label, "", run.settings) if run else Method(name, name, "")
        if found.color != PLAIN_COLOR:
            return found
        others = [other for other in self.methods if other not in METHODS]
        place = others.index(name) if name in others else 0
        return replace(found, color=_OTHER_COLORS[place % len(_OTHER_COLORS)], dash="dot")


def read_results(directory: str | Path) -> Results:
    """Read a results directory, finished or not.

    Raises:
        BenchError: Where there is no such directory or it holds no grid of runs.
    """
    root = Path(directory)
    if not root.is_dir():
        raise BenchError(f"there is no results directory {root}")
    grid = read_json(root / GRID_FILE)
    if RunDirectory(root).config.is_file():
        raise BenchError(
            f"{root} is a single run of frugalrl train, not a grid: see frugalrl eval {root} and "
            f"frugalrl inspect {root}"
        )
    if grid is None:
        raise BenchError(
            f"{root} holds no results: it has no readable {GRID_FILE}. Make some with, for "
            f"example, frugalrl compare Pendulum-v1 --out {root}"
        )
    runs = listed_runs(grid)
    if not runs:
        raise BenchError(f"{root} holds no results: its {GRID_FILE} lists no runs")
    found = [_read_result(root, run) for run in runs]
    done = tuple(entry for entry in found if isinstance(entry, Result))
    problems = tuple(entry for entry in found if isinstance(entry, Problem))
    return Results(root, grid, done, problems)


def _read_result(root: Path, run: Run) -> Result | Problem:
    directory = run.directory(root)
    if read_json(directory / RUN_FILE) is None:
        return Problem(run, "missing")
    done = read_done(directory, run)
    if done is not None:
        return Result(run, directory, done)
    error = directory / ERROR_FILE
    if error.is_file():
        return Problem(run, "failed", error.read_text(encoding="utf-8", errors="replace"))
    return Problem(run, "unfinished" if (directory / RUN_DIRECTORY).is_dir() else "missing")


def read_done(directory: Path, run: Run) -> dict[str, Any] | None:
    """Read the summary of a finished run; None where there is none, or it is damaged."""
    done = read_json(directory / DONE_FILE) or {}
    size = done.get("size")
    whole = type(size) is int and size > 0
    return done if whole and done.get("fingerprint") == run.fingerprint else None


def read_columns(path: Path) -> dict[str, Values]:
    """Read a CSV of numbers, column by column: NaN where empty, without a half-written last row."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            names, *rows = list(csv.reader(file)) or [[]]
    except OSError:
        return {}
    whole = [[_number(text) for text in row] for row in rows if len(row) == len(names)]
    columns = np.array(whole, dtype=np.float64).reshape(len(whole), len(names)).T
    return dict(zip(names, columns, strict=True))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
