"""From what a user asks for to a checked list of runs, before anything is created."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from frugalrl.bench.calibrate import estimate_seconds, measure_speeds, sampler_of
from frugalrl.bench.errors import BenchError, unknown
from frugalrl.bench.runs import Run, expand
from frugalrl.bench.suites import ALGORITHMS, Suite, Task, parse_settings, parse_value
from frugalrl.training.console import duration
from frugalrl.training.errors import ConfigError


def comparison(env: str, algo: str, steps: int | None, methods: Sequence[str]) -> Suite:
    """Make the suite of `frugalrl compare`: one task."""
    if algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)
    return Suite(
        name=f"{env} with {algo}",
        description="",
        tasks=(Task(env, algo, steps),),
        methods=tuple(methods),
        seeds=(0,),
    )


def with_tasks(suite: Suite, envs: Sequence[str], algo: str | None) -> Suite:
    """Replace a suite's tasks, keeping what it says of those environments it has."""
    if algo is not None and algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)
    envs = envs or list(dict.fromkeys(task.env for task in suite.tasks))
    known = {(task.env, task.algo): task for task in suite.tasks}
    algos = [algo] if algo else list(dict.fromkeys(task.algo for task in suite.tasks))
    arguments = {task.env: task.settings.get("env_kwargs") for task in suite.tasks}
    tasks = []
    for env, name in itertools.product(envs, algos):
        settings = {"env_kwargs": arguments[env]} if arguments.get(env) else {}
        tasks.append(known.get((env, name), Task(env, name, settings=settings)))
    return replace(suite, tasks=tuple(tasks))


def with_settings(suite: Suite, pairs: Sequence[str]) -> Suite:
    """Add settings given as `name=value` to every run; values are TOML, or else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BenchError(f"--set {pair!r} is no name=value")
        found[name.replace("-", "_")] = parse_value(text)
    checked = parse_settings(found, "--set")
    plain = {k: v for k, v in checked.items() if not k.startswith("fac_")}
    frugal = {k: v for k, v in checked.items() if k.startswith("fac_")}
    # A setting of the command line outranks what the suite says of a task.
    tasks = tuple(replace(t, settings={**t.settings, **plain}) for t in suite.tasks)
    return replace(
        suite,
        tasks=tasks,
        settings={**suite.settings, **plain},
        frugal={**suite.frugal, **frugal},
    )


def checked_runs(suite: Suite, scale: float = 1.0) -> list[Run]:
    """List a suite's runs after trying every environment and every configuration.

    Raises:
        BenchError: Naming the first thing that cannot work.
    """
    from frugalrl.bench.worker import train_config
    from frugalrl.training.config import resolve
    from frugalrl.training.environments import check_spaces, find_environment

    for task in suite.tasks:
        arguments = dict(task.settings.get("env_kwargs", {}))
        factory = find_environment(task.env, arguments)
        environment = factory.make()
        check_spaces(environment.observation_space, environment.action_space, task.env)
        environment.close()
    runs = expand(suite, scale)
    tried = set()
    for run in runs:
        if (run.task, run.method) in tried:
            continue
        tried.add((run.task, run.method))
        try:
            resolve(train_config(run, {}, None))
        except ConfigError as error:
            raise BenchError(f"{run.env} with {run.algo}, {run.method}: {error}") from None
    return runs


def describe_runs(runs: Sequence[Run]) -> list[str]:
    """List runs for people: a line for each task and method."""
    groups: dict[tuple[Any, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.method), []).append(run)
    width = max(len(f"{run.env} {run.algo}") for run in runs)
    name_width = max(len(run.method) for run in runs)
    lines = []
    for ((env, algo), method), members in groups.items():
        seeds = ", ".join(str(run.seed) for run in members)
        first = members[0]
        after = f", after {first.source} (its {first.needs})" if first.needs else ""
        lines.append(
            f"{f'{env} {algo}':<{width}}  {method:<{name_width}}  {first.steps:>9,} steps, "
            f"seeds {seeds}{after}"
        )
    return lines


def estimate_line(runs: Sequence[Run], jobs: int, tell: Callable[[str], None]) -> str:
    """Time a short run of each task and say how long all runs will take."""
    speeds = measure_speeds(runs, tell)
    seconds = [estimate_seconds(run, speeds[run.task, sampler_of(run)]) for run in runs]
    total = max(sum(seconds) / jobs, max(seconds))
    return (
        f"{len(runs)} runs, {sum(run.steps for run in runs):,} steps: about "
        f"{duration(total)} with {jobs} at a time on this machine (episodes counted at full length)"
    )


def method_names(text: str) -> tuple[str, ...]:
    """Split `baseline,fac`, where a method's own parameters hold commas too."""
    names: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if names and "@" in names[-1] and "=" in word and "@" not in word:
            names[-1] += f",{word}"
        else:
            names.append(word)
    return tuple(dict.fromkeys(names))


def seed_list(text: str) -> int | list[int]:
    """Read `5` as a number of seeds and `0,3,7` as seeds."""
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise BenchError(
            f"seeds={text!r} is neither a number of seeds nor seeds like 0,1,2"
        ) from None
    return numbers[0] if "," not in text and len(numbers) == 1 else numbers
