"""Suites of experiments: which tasks, methods and seeds, read from TOML, changed by options.

The suites that come with the package are files in `frugalrl/bench/data`. `frugalrl bench NAME
--print` writes one out; copy it, edit it, and pass the file's path instead of a name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frugalrl.agents.settings import ALGORITHMS
from frugalrl.bench.errors import BenchError
from frugalrl.bench.methods import (
    METHODS,
    PARAMETERS,
    Method,
    data_text,
    find_method,
    parse_toml,
    variant_name,
)
from frugalrl.checks import check_choice

SUITES = ("smoke", "classic", "paper", "ablation", "budget", "budget-quick", "small-actor")
# A run takes these from the grid; a suite that sets them would contradict it.
_RESERVED = ("env", "algo", "steps", "seed", "out")
# What makes a method: set for all runs, they would make another method of the baseline.
_OF_METHODS = ("admission", "sampler")


@dataclass(frozen=True)
class Task:
    """An environment with the algorithm that learns it."""

    env: str
    algo: str
    steps: int | None = None
    """Length of a run; None takes the preset's."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an algorithm that does not exist."""
        check_choice("algo", self.algo, ALGORITHMS, BenchError)


@dataclass(frozen=True)
class Suite:
    """Everything that defines a grid of runs."""

    name: str
    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    evaluations: int = 25
    """Points on a learning curve."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    frugal: Mapping[str, Any] = field(default_factory=dict)
    """Settings for methods with the frugal filter only."""
    own_methods: Mapping[str, Method] = field(default_factory=dict)
    sweeps: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """Find one of this suite's methods."""
        return find_method(name, self.own_methods)


def suite_text(name: str) -> str:
    """Read the TOML of a suite that comes with the package."""
    check_choice("suite", name, SUITES, BenchError)
    return data_text(f"{name}.toml")


def load_suite(name: str) -> Suite:
    """Load a suite by its name or from a TOML file.

    Raises:
        BenchError: Naming what is unknown, missing or of the wrong kind.
    """
    if not name.endswith(".toml") and "/" not in name:
        return parse_suite(suite_text(name), name)
    try:
        return parse_suite(Path(name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BenchError(f"cannot read the suite {name}: {why}") from None


def parse_suite(text: str, source: str) -> Suite:
    """Make a suite from TOML; `source` names it in messages."""
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise BenchError(f"{source} is not valid TOML: {error}") from None
    known = {item.name for item in dataclasses.fields(Suite)} - {"own_methods", "sweeps"}
    _check_keys(document, {*known, "description", "algorithms", "method", "sweep"}, source)
    own = {key: _own_method(key, table, source) for key, table in _tables(document, "method")}
    algorithms = _names(document.get("algorithms", ["sac"]), "algorithms", source)
    sweeps = {}
    for parameter, table in _tables(document, "sweep"):
        check_choice("parameter", parameter, PARAMETERS, BenchError)
        values = table.get("values")
        if not isinstance(values, list) or not values:
            raise BenchError(f"{source}: [sweep.{parameter}] needs values = [...]")
        sweeps[parameter] = tuple(values)
    tasks = document.get("tasks", [])
    if not isinstance(tasks, list) or not tasks:
        raise BenchError(f"{source} has no [[tasks]]")
    return Suite(
        name=str(document.get("name", Path(source).stem)),
        tasks=tuple(task for entry in tasks for task in _tasks(entry, algorithms, source)),
        methods=_names(document.get("methods", []), "methods", source),
        seeds=parse_seeds(document.get("seeds", 3)),
        evaluations=document.get("evaluations", 25),
        settings=parse_settings(document.get("settings", {}), source),
        frugal=parse_settings(document.get("frugal", {}), source),
        own_methods=own,
        sweeps=sweeps,
    )


def parse_seeds(given: object) -> tuple[int, ...]:
    """Turn a number of seeds (`5`), or the seeds themselves (`0,3,7`), into distinct seeds."""
    if isinstance(given, str):
        given = parse_value(f"[{given}]" if "," in given else given)
    seeds = range(given) if type(given) is int else given
    if not isinstance(seeds, (list, range)) or not all(type(seed) is int for seed in seeds):
        raise BenchError(f"seeds={given!r} is neither a number of seeds nor a list of seeds")
    if not seeds:
        raise BenchError("no seeds: ask for at least one, for a comparison at least three")
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise BenchError(f"seeds={given!r} must be different and not negative")
    return tuple(seeds)


def parse_value(text: str) -> Any:
    """Read a value as TOML does, else as plain text."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def method_names(text: str) -> tuple[str, ...]:
    """Split `baseline,fac`, where a method's own parameters hold commas too."""
    # A comma before name=value stands within a method's parameters.
    words = (word.strip() for word in re.split(r",(?![^,@]*=)", text))
    return tuple(dict.fromkeys(filter(None, words)))


def comparison(env: str, algo: str, steps: int | None, methods: Sequence[str]) -> Suite:
    """Make the suite of `frugalrl compare`: one task."""
    return Suite(f"{env} with {algo}", (Task(env, algo, steps),), tuple(methods), seeds=(0,))


def choose(suite: Suite, only: Iterable[str]) -> Suite:
    """Keep the tasks and methods that some words name: `hopper`, `sac`, `fac`.

    Words of one kind add up (`hopper,walker`), words of different kinds narrow (`hopper,sac`).
    """
    all_envs, all_algos = {task.env for task in suite.tasks}, {task.algo for task in suite.tasks}
    envs: set[str] = set()
    algos: set[str] = set()
    methods: set[str] = set()
    for word in only:
        matching = {env for env in all_envs if word.lower() in env.lower()}
        if word.lower() in all_algos:
            algos.add(word.lower())
        elif word in suite.methods:
            methods.add(word)
        elif matching:
            envs |= matching
        else:
            names = [*sorted(all_envs), *sorted(all_algos), *suite.methods]
            check_choice("environment, algorithm or method", word, names, BenchError)
    envs, algos = envs or all_envs, algos or all_algos
    tasks = tuple(task for task in suite.tasks if task.env in envs and task.algo in algos)
    if not tasks:
        raise BenchError(f"nothing in suite {suite.name} is left by --only {','.join(only)}")
    chosen = tuple(method for method in suite.methods if method in (methods or suite.methods))
    return replace(suite, tasks=tasks, methods=chosen)


def with_tasks(suite: Suite, envs: Sequence[str], algo: str | None) -> Suite:
    """Replace a suite's tasks, keeping what it says of those environments it has."""
    known = {(task.env, task.algo): task for task in suite.tasks}
    arguments = {task.env: task.settings.get("env_kwargs") for task in suite.tasks}
    algos = [algo] if algo else dict.fromkeys(task.algo for task in suite.tasks)
    tasks = []
    for env in envs or arguments:
        settings = {"env_kwargs": arguments[env]} if arguments.get(env) else {}
        tasks += [known.get((env, name)) or Task(env, name, None, settings) for name in algos]
    return replace(suite, tasks=tuple(tasks))


def with_settings(suite: Suite, pairs: Sequence[str]) -> Suite:
    """Add settings given as `name=value` to every run; values are TOML, or else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BenchError(f"--set {pair!r} is no name=value")
        found[name.replace("-", "_")] = parse_value(text)
    found = parse_settings(found, "--set")
    # A setting of the command line outranks what the suite says of a task, and of frugal methods.
    tasks = tuple(replace(task, settings={**task.settings, **found}) for task in suite.tasks)
    return replace(suite, tasks=tasks, frugal={**suite.frugal, **found})


def with_sweep(suite: Suite, parameter: str, values: Sequence[Any] = ()) -> Suite:
    """Turn a suite into the ablation of one parameter: its methods become FAC with each value."""
    check_choice("parameter", parameter, PARAMETERS, BenchError)
    swept = tuple(values) or suite.sweeps.get(parameter, ())
    if not swept:
        raise BenchError(f"suite {suite.name} has no values for {parameter}: pass some")
    variants = [variant_name("fac", parameter, value) for value in swept]
    # The filter as it is stays in, whatever values were asked for: it is what they compare with.
    names = dict.fromkeys([*suite.methods, "fac", *variants])
    return replace(suite, methods=tuple(names))


def with_required_methods(suite: Suite) -> tuple[Suite, list[str]]:
    """Add the methods that controls are made to match; give the notes about it too."""
    missing: dict[str, list[str]] = {}
    for name in suite.methods:
        method = suite.method(name)
        if method.needs is not None and method.source not in suite.methods:
            missing.setdefault(method.source, []).append(name)
    notes = [
        f"{source} is added: the size of {' and '.join(names)} comes from its runs"
        for source, names in missing.items()
    ]
    return replace(suite, methods=(*missing, *suite.methods)), notes


def parse_settings(table: object, source: str, *, of_method: bool = False) -> dict[str, Any]:
    """Check that a table holds settings of a run, by name."""
    from frugalrl.training.config import TrainConfig

    if not isinstance(table, Mapping):
        raise BenchError(f"{source}: settings must be a table, got {table!r}")
    known = [item.name for item in dataclasses.fields(TrainConfig) if item.name not in _RESERVED]
    for key in table:
        check_choice(f"{source}: setting", key, known, BenchError)
        if key in _OF_METHODS and not of_method:
            raise BenchError(
                f"{source}: {key} is what methods differ in: choose among those, or "
                "write a [method.NAME] of your own"
            )
    return dict(table)


def _tasks(entry: object, algorithms: Sequence[str], source: str) -> Iterable[Task]:
    if not isinstance(entry, dict) or not isinstance(entry.get("env"), str | list):
        raise BenchError(f'{source}: every task needs env = "...", got {entry!r}')
    _check_keys(entry, {"env", "steps", "settings", "algorithms", *ALGORITHMS}, source)
    env = entry["env"]
    if isinstance(env, list):
        import gymnasium

        # The first that is installed, else the last: its error is told later.
        names = _names(env, "env", source)
        env = next((name for name in names if name in gymnasium.registry), names[-1])
    common = parse_settings(entry.get("settings", {}), source)
    for algo in _names(entry.get("algorithms", list(algorithms)), "algorithms", source):
        if not isinstance(entry.get(algo, {}), dict):
            raise BenchError(f"{source}: {algo} of {env} must be a table, got {entry[algo]!r}")
        own = {"steps": entry.get("steps"), **entry.get(algo, {})}
        steps = own.pop("steps")
        yield Task(env, algo, steps, {**common, **parse_settings(own, source)})


def _own_method(name: str, table: Mapping[str, Any], source: str) -> Method:
    settings = dict(table)
    base = find_method(str(settings.pop("based_on", "baseline")))
    label = str(settings.pop("label", name))
    if name in METHODS or any(sign in name for sign in "@/,"):
        raise BenchError(f"{source}: a method of your own cannot be called {name!r}")
    merged = {**base.settings, **parse_settings(settings, source, of_method=True)}
    return replace(base, name=name, label=label, about=f"{base.name}, changed", settings=merged)


def _tables(document: Mapping[str, Any], key: str) -> Iterable[tuple[str, dict[str, Any]]]:
    tables = document.get(key, {})
    if not isinstance(tables, dict) or not all(isinstance(it, dict) for it in tables.values()):
        raise BenchError(f"{key} must be tables [{key}.NAME], got {tables!r}")
    return tables.items()


def _names(value: object, key: str, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise BenchError(f"{source}: {key} must be a list of names, got {value!r}")
    return tuple(dict.fromkeys(value))


def _check_keys(table: Mapping[str, Any], known: Iterable[str], source: str) -> None:
    for key in table:
        check_choice(f"{source}: key", key, sorted(known), BenchError)
