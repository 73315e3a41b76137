"""Runs of a grid: each with its settings, its directory and its fingerprint; a suite's, checked."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from frugalrl.bench.errors import BenchError
from frugalrl.bench.methods import GRID_ONLY, METHODS
from frugalrl.bench.suites import Suite, Task
from frugalrl.checks import integer_from
from frugalrl.training.errors import ConfigError

RUN_FILE = "run.json"
DONE_FILE = "done.json"
ERROR_FILE = "error.txt"
RUN_DIRECTORY = "run"
RUNS = "runs"
"""Where a results directory has its runs."""
_OF_ENVIRONMENTS = ("env_kwargs", "wrappers", "max_episode_steps")


@dataclass(frozen=True)
class Run:
    """One run: a task, a method, a seed, and every setting that is not a default."""

    env: str
    algo: str
    method: str
    seed: int
    steps: int
    settings: Mapping[str, Any]
    needs: str | None = None
    label: str = ""
    warmup_steps: int = 10_000
    """Warm-up of the filter in this grid: so many random steps make the cells of any buffer."""
    source: str = "fac"
    """The method from whose run `needs` is taken."""

    @property
    def task(self) -> tuple[str, str]:
        """What is learned, and by which algorithm."""
        return self.env, self.algo

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.env} {self.algo} {self.method} seed {self.seed}"

    @property
    def path(self) -> Path:
        """Directory of this run below those of all runs."""
        env = re.sub(r"[^\w.+-]", "_", self.env)
        return Path(env) / self.algo / self.method / f"seed-{self.seed}"

    def directory(self, root: Path) -> Path:
        """Directory of this run in a results directory."""
        return root / RUNS / self.path

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the run's outcome."""
        values = self.to_json()
        del values["label"]
        if self.source == "fac":
            del values["source"]  # results from before there was any other
        content = json.dumps(values, sort_keys=True).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Give the run as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Run:
        """Make a run from `to_json`'s values.

        Raises:
            BenchError: Some are missing.
        """
        try:
            return cls(**{key: values[key] for key in cls.__dataclass_fields__ if key in values})
        except TypeError:
            raise BenchError(
                "these results list a run without all of its settings: they are damaged, or "
                "another version of frugalrl made them"
            ) from None


def listed_runs(grid: Mapping[str, Any]) -> list[Run]:
    """List the runs that a results directory's description names; see `Run.from_json`."""
    listed: Any = grid.get(RUNS)
    return [Run.from_json(values) for values in listed] if isinstance(listed, list) else []


def expand(suite: Suite, scale: float = 1.0) -> list[Run]:
    """List a suite's runs: for each task and seed, controls after what they are made to match.

    `scale` multiplies the length of every run, with its random start and the filter's warm-up.
    """
    if not 0.0 < scale <= 1.0:
        raise BenchError(f"scale={scale} must be above 0 and at most 1")
    if not suite.methods:
        raise BenchError(f"no methods: ask for at least one of {', '.join(METHODS)}")
    names = sorted(suite.methods, key=lambda name: suite.method(name).needs is not None)
    return [
        make_run(suite, task, name, seed, scale)
        for task, seed, name in itertools.product(suite.tasks, suite.seeds, names)
    ]


def make_run(suite: Suite, task: Task, method_name: str, seed: int, scale: float = 1.0) -> Run:
    """Combine what suite, task and method set, the method having the last word.

    Settings of a filter go to the methods that have it.
    """
    from frugalrl.training.config import OF_THE_FILTER, WARMUP_STEPS
    from frugalrl.training.presets import defaults, find_preset

    method = suite.method(method_name)
    common = {**suite.settings, **task.settings}
    of_filters = {**common, **suite.frugal, **method.settings}
    plain = {name: it for name, it in common.items() if not name.startswith(OF_THE_FILTER)}
    settings = dict(of_filters) if method.frugal else {**plain, **method.settings}
    preset = {} if settings.get("preset") == "none" else find_preset(task.env, task.algo)
    steps = preset.get("steps") if task.steps is None else task.steps
    if steps is None:
        raise BenchError(
            f"{task.env} with {task.algo} has no preset, so its length is unknown: set steps, or "
            "pass --steps"
        )
    steps = _whole(f"{task.env}: steps", steps)
    warmup = _whole("fac_warmup_steps", of_filters.get("fac_warmup_steps", WARMUP_STEPS))
    if scale < 1.0:
        steps = max(1, round(steps * scale))
        start = {**defaults(task.algo), **preset, **settings}["learning_starts"]
        settings["learning_starts"] = round(start * scale)
        warmup = max(1, round(warmup * scale))
        if method.frugal:
            settings["fac_warmup_steps"] = warmup
    if "buffer_share" in settings:
        settings["buffer_size"] = max(1, round(steps * settings.pop("buffer_share")))
    settings.setdefault("eval_every", max(1, steps // _whole("evaluations", suite.evaluations)))
    chosen = dict(sorted(settings.items()))
    about = (method.needs, method.label, warmup, method.source)
    return Run(task.env, task.algo, method.name, seed, steps, chosen, *about)


def _whole(name: str, value: object) -> int:
    """Give a number of at least 1 that a suite or the command line has set."""
    try:
        return integer_from(name, value, 1)
    except (TypeError, ValueError) as error:
        raise BenchError(str(error)) from None


def checked_runs(suite: Suite, scale: float = 1.0) -> list[Run]:
    """List a suite's runs after trying every environment and every configuration.

    Raises:
        BenchError: Naming the first thing that cannot work.
    """
    from frugalrl.bench.worker import train_config
    from frugalrl.training.config import TrainConfig, make_admission, resolve
    from frugalrl.training.environments import make_factory

    for task in suite.tasks:
        settings = {**suite.settings, **task.settings}
        own = {name: settings[name] for name in _OF_ENVIRONMENTS if name in settings}
        make_factory(TrainConfig(task.env, **own)).spaces()
    runs = expand(suite, scale)
    for run in runs:
        if run.seed == suite.seeds[0]:
            try:
                make_admission(resolve(train_config(run, {}, None)).config, run.seed)
            except ConfigError as error:
                raise BenchError(f"{run.env} with {run.algo}, {run.method}: {error}") from None
    return runs


def describe_runs(runs: Sequence[Run]) -> list[str]:
    """List runs for people: a line for each task and method."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((f"{run.env} {run.algo}", run.method), []).append(run)
    width, name_width = (max(map(len, names)) for names in zip(*groups, strict=True))
    lines = []
    for (task, method), group in groups.items():
        run, seeds = group[0], ", ".join(str(run.seed) for run in group)
        after = f", after {run.source} (its {run.needs})" if run.needs else ""
        steps = f"{run.steps:>9,} steps, seeds {seeds}{after}"
        lines.append(f"{task:<{width}}  {method:<{name_width}}  {steps}")
    return lines


def command(run: Run, derived: Mapping[str, Any], out: str) -> str:
    """Write the shell command that makes the same run, or say that only a grid can make it."""
    if run.settings.get("admission") in GRID_ONLY:
        return f"# {run.name}: a control that only the grid's own command makes"
    words = ["frugalrl", "train", run.env]
    own = {"algo": run.algo, "steps": run.steps, "seed": run.seed}
    for name, value in {**own, **run.settings, **derived, "out": out}.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, (list, tuple)) and name != "fac_bounds":
            words += [f"--{flag}", *map(str, value)]
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            words += [f"--{flag}", text]
    return shlex.join(words)


def describe_change(old: Run, new: Run) -> str:
    """Say in which settings two runs differ."""
    first, second = ({**values, **values["settings"]} for values in (old.to_json(), new.to_json()))
    keys = sorted({*first, *second} - {"settings", "label"})
    changed = [key for key in keys if first.get(key) != second.get(key)]
    return ", ".join(f"{key} was {first.get(key)!r}, is {second.get(key)!r}" for key in changed)
