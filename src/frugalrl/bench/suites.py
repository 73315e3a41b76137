"""Suites of experiments: which tasks, methods and seeds, read from TOML.

The suites that come with the package are files in `frugalrl/bench/data`. `frugalrl bench NAME
--print` writes one out; copy it, edit it, and pass the file's path instead of a name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from frugalrl.bench.errors import BenchError, unknown
from frugalrl.bench.methods import METHODS, PARAMETERS, Method, find_method, variant_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUITES = ("smoke", "classic", "paper", "ablation", "budget", "budget-quick", "small-actor")
ALGORITHMS = ("sac", "td3", "ddpg")
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

    @property
    def name(self) -> str:
        """Name for tables and messages, for example `Hopper-v5 (SAC)`."""
        return f"{self.env} ({self.algo.upper()})"


@dataclass(frozen=True)
class Suite:
    """Everything that defines a grid of runs."""

    name: str
    description: str
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
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    source = resources.files("frugalrl.bench").joinpath(f"data/{name}.toml")
    return source.read_text(encoding="utf-8")


def load_suite(name: str) -> Suite:
    """Load a suite by its name or from a TOML file.

    Raises:
        BenchError: Naming what is unknown, missing or of the wrong kind.
    """
    if name.endswith(".toml") or "/" in name:
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise BenchError(f"cannot read the suite {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BenchError(f"cannot read the suite {name}: it is no text") from None
        return parse_suite(text, name)
    return parse_suite(suite_text(name), name)


def parse_suite(text: str, source: str) -> Suite:
    """Make a suite from TOML; `source` names it in messages."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"{source} is not valid TOML: {error}") from None
    known = {item.name for item in dataclasses.fields(Suite)} - {"own_methods", "sweeps"}
    _only_known(document, {*known, "algorithms", "method", "sweep"}, source)
    own = {key: _own_method(key, value, source) for key, value in _tables(document, "method")}
    methods = _names(document.get("methods", []), "methods", source)
    for method in methods:
        find_method(method, own)
    algorithms = _names(document.get("algorithms", ["sac"]), "algorithms", source)
    tasks = document.get("tasks", [])
    if not isinstance(tasks, list) or not tasks:
        raise BenchError(f"{source} has no [[tasks]]")
    return Suite(
        name=str(document.get("name", Path(source).stem)),
        description=str(document.get("description", "")),
        tasks=tuple(task for entry in tasks for task in _tasks(entry, algorithms, source)),
        methods=methods,
        seeds=parse_seeds(document.get("seeds", 3)),
        evaluations=_positive(document.get("evaluations", 25), "evaluations", source),
        settings=parse_settings(document.get("settings", {}), source),
        frugal=parse_settings(document.get("frugal", {}), source),
        own_methods=own,
        sweeps={key: _sweep(key, value, source) for key, value in _tables(document, "sweep")},
    )


def parse_seeds(given: object) -> tuple[int, ...]:
    """Turn a number of seeds, or the seeds themselves, into distinct seeds."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = range(given)
    if not isinstance(given, (list, tuple, range)) or not all(_is_int(seed) for seed in given):
        raise BenchError(f"seeds={given!r} is neither a number of seeds nor a list of seeds")
    numbers = [int(seed) for seed in given]
    if not numbers:
        raise BenchError("no seeds: ask for at least one, for a comparison at least three")
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise BenchError(f"seeds={given!r} must be different and not negative")
    return tuple(numbers)


def parse_value(text: str) -> Any:
    """Read a value as TOML does, else as plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def choose(suite: Suite, only: Iterable[str]) -> Suite:
    """Keep the tasks and methods that some words name: `hopper`, `sac`, `fac`.

    Words of one kind add up (`hopper,walker`), words of different kinds narrow (`hopper,sac`).
    """
    envs: set[str] = set()
    algos: set[str] = set()
    methods: list[str] = []
    all_envs = {task.env for task in suite.tasks}
    all_algos = {task.algo for task in suite.tasks}
    for word in filter(None, (word.strip() for word in only)):
        matching = {env for env in all_envs if word.lower() in env.lower()}
        if word.lower() in all_algos:
            algos.add(word.lower())
        elif word in suite.methods:
            methods.append(word)
        elif matching:
            envs |= matching
        else:
            names = [*sorted(all_envs), *sorted(all_algos), *suite.methods]
            raise unknown("environment, algorithm or method", word, names)
    tasks = tuple(
        task
        for task in suite.tasks
        if (not envs or task.env in envs) and (not algos or task.algo in algos)
    )
    if not tasks:
        raise BenchError(f"nothing in suite {suite.name} is left by --only {','.join(only)}")
    chosen = tuple(method for method in suite.methods if not methods or method in methods)
    return replace(suite, tasks=tasks, methods=chosen)


def with_sweep(suite: Suite, parameter: str, values: Sequence[Any] = ()) -> Suite:
    """Turn a suite into the ablation of one parameter: its methods become FAC with each value."""
    if parameter not in PARAMETERS:
        raise unknown("parameter", parameter, PARAMETERS)
    swept = tuple(values) or suite.sweeps.get(parameter, ())
    if not swept:
        raise BenchError(f"suite {suite.name} has no values for {parameter}: pass some")
    variants = [variant_name("fac", parameter, value) for value in swept]
    for variant in variants:
        find_method(variant)
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
        f"{source} is added: {' and '.join(names)} take{'s' * (len(names) == 1)} "
        f"{'its size' if len(names) == 1 else 'their sizes'} from its runs"
        for source, names in missing.items()
    ]
    return replace(suite, methods=(*missing, *suite.methods)), notes


def _tasks(entry: object, algorithms: Sequence[str], source: str) -> Iterable[Task]:
    if not isinstance(entry, dict) or not isinstance(entry.get("env"), str | list):
        raise BenchError(f'{source}: every task needs env = "...", got {entry!r}')
    if isinstance(entry["env"], list):
        entry = {**entry, "env": _first_installed(_names(entry["env"], "env", source))}
    _only_known(entry, {"env", "steps", "settings", "algorithms", *ALGORITHMS}, source)
    for algo in _names(entry.get("algorithms", list(algorithms)), "algorithms", source):
        if algo not in ALGORITHMS:
            raise unknown("algorithm", algo, ALGORITHMS)
        own = entry.get(algo, {})
        if not isinstance(own, dict):
            raise BenchError(f"{source}: {algo} of {entry['env']} must be a table, got {own!r}")
        own = dict(own)
        steps = own.pop("steps", entry.get("steps"))
        if steps is not None:
            steps = _positive(steps, f"steps of {entry['env']}", source)
        settings = {
            **parse_settings(entry.get("settings", {}), source),
            **parse_settings(own, source),
        }
        yield Task(entry["env"], algo, steps, settings)


def _first_installed(names: Sequence[str]) -> str:
    """Choose the first environment that Gymnasium knows, else the last: its error is told later."""
    import gymnasium

    return next((name for name in names if name in gymnasium.registry), names[-1])


def _own_method(name: str, table: object, source: str) -> Method:
    if not isinstance(table, dict):
        raise BenchError(f"{source}: [method.{name}] must be a table")
    settings = dict(table)
    base = find_method(str(settings.pop("based_on", "baseline")))
    label = str(settings.pop("label", name))
    if name in METHODS or any(sign in name for sign in "@/,"):
        raise BenchError(f"{source}: a method of your own cannot be called {name!r}")
    merged = {**base.settings, **parse_settings(settings, source, of_method=True)}
    return replace(base, name=name, label=label, about=f"{base.name}, changed", settings=merged)


def parse_settings(table: object, source: str, *, of_method: bool = False) -> dict[str, Any]:
    """Check that a table holds settings of a run, by name."""
    from frugalrl.training.config import TrainConfig

    if not isinstance(table, Mapping):
        raise BenchError(f"{source}: settings must be a table, got {table!r}")
    known = [item.name for item in dataclasses.fields(TrainConfig) if item.name not in _RESERVED]
    for key in table:
        if key not in known:
            raise unknown(f"setting in {source}", str(key), known)
        if key in _OF_METHODS and not of_method:
            raise BenchError(
                f"{source}: {key} is what methods differ in: choose among those, or "
                "write a [method.NAME] of your own"
            )
    return dict(table)


def _sweep(parameter: str, table: object, source: str) -> tuple[Any, ...]:
    if parameter not in PARAMETERS:
        raise unknown("parameter", parameter, PARAMETERS)
    values = table.get("values") if isinstance(table, Mapping) else None
    if not isinstance(values, list) or not values:
        raise BenchError(f"{source}: [sweep.{parameter}] needs values = [...]")
    return tuple(values)


def _tables(document: Mapping[str, Any], key: str) -> Iterable[tuple[str, Any]]:
    value = document.get(key, {})
    if not isinstance(value, Mapping):
        raise BenchError(f"{key} must be tables [{key}.NAME], got {value!r}")
    return value.items()


def _names(value: object, key: str, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise BenchError(f"{source}: {key} must be a list of names, got {value!r}")
    return tuple(dict.fromkeys(value))


def _positive(value: object, key: str, source: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BenchError(f"{source}: {key} must be a whole number of at least 1, got {value!r}")
    return value


def _only_known(table: Mapping[str, Any], known: Iterable[str], source: str) -> None:
    for key in table:
        if key not in set(known):
            raise unknown(f"key in {source}", key, sorted(known))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
