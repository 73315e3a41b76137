"""The state of an environment, exact to the bit, so that a run can stop in mid-episode.

Nothing here changes what an environment does: it is read, or its actions are written down. Three
ways, of which `choose_method` finds the first that works by trying it on copies:

- `fields`: every attribute of the environment and its wrappers is data, a generator or MuJoCo's
  simulation, which can be written down and put back.
- `replay`: the state cannot be read (Box2D, PyBullet), but the generator before the last reset, the
  wrappers' data and the actions since then lead to it again.
- `fresh`: neither reproduces the environment. A resumed run begins a new episode, with the
  generator and what can be read of the wrappers, such as running means, put back.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import logging
import random
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from frugalrl.training.environments import Environment, EnvironmentFactory
from frugalrl.training.run_directory import StateMethod

EnvState = dict[str, Any]

# What an environment holds that does not change, or that only matters for pictures.
_CONSTANT_NAMES = {
    *("spec", "metadata", "mujoco_renderer", "_cached_spec", "_saved_kwargs"),
    *("_ezpickle_args", "_ezpickle_kwargs"),
}
_CONSTANT_TYPES = (
    *(gymnasium.Env, EnvSpec, type, types.ModuleType, types.FunctionType, types.MethodType),
    *(types.BuiltinFunctionType, np.ufunc, logging.Logger),
)
_PLAIN = (bool, int, float, str, type(None))
_ORDINARY_SIZE = type("Ordinary", (), {}).__basicsize__  # of an object that is pure Python


class UnreadableStateError(TypeError):
    """An object holds something that cannot be written down, or not be put back."""


class AttributeWriter:
    """Turns data into arrays and JSON values that keep exact types and who shares what.

    An attribute that cannot be written down is left out, or an error if `strict`.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        # Objects met before: their number, and themselves, so that no other gets their id.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._spans: list[tuple[int, int, str]] = []

    def write(self, value: Any, path: str) -> EnvState:
        """Write a value down; what cannot be is named by its path."""
        kind = type(value)
        if kind in _PLAIN:
            return {"value": value}
        if isinstance(value, np.generic):
            _check_dtype(value.dtype, path)
            return {"scalar": np.array(value)}
        if kind is tuple:
            return {"tuple": self._items(value, path)}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)][0]}
        self._seen[id(value)] = (len(self._seen), value)
        if isinstance(value, np.random.Generator):
            state = value.bit_generator.state
            return {"generator": AttributeWriter(strict=True).write(state, path)}
        if isinstance(value, spaces.Space):
            return {"space": self.write(value._np_random, path)}
        if kind is np.ndarray:
            return self._array(value, path)
        if kind in (list, deque):
            items = self._items(value, path)
            return {kind.__name__: items, "maxlen": getattr(value, "maxlen", None)}
        if kind is dict:
            pairs = ((key, item, f"{path}[{key!r}]") for key, item in value.items())
            return {"dict": [[self.write(k, at), self.write(v, at)] for k, v, at in pairs]}
        return self._object(value, path)

    def _items(self, items: Iterable[Any], path: str) -> list[EnvState]:
        return [self.write(item, f"{path}[{index}]") for index, item in enumerate(items)]

    def _array(self, value: np.ndarray[Any, Any], path: str) -> EnvState:
        _check_dtype(value.dtype, path)
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise UnreadableStateError(f"{path} is a part of another array")
        begin = value.__array_interface__["data"][0]
        self._spans.append((begin, begin + value.nbytes, path))
        return {"array": value.copy(), "fortran": not value.flags.c_contiguous}

    def _object(self, value: Any, path: str) -> EnvState:
        """Write an object's attributes down; it must hold nothing else."""
        ordinary = type(value).__basicsize__ <= _ORDINARY_SIZE and hasattr(value, "__dict__")
        if not ordinary or isinstance(value, enum.Enum):
            raise UnreadableStateError(f"{path} is a {type(value).__name__}")
        attributes = []
        for name, item in vars(value).items():
            simulation = type(item).__name__ in ("MjModel", "MjData")
            if simulation or name in _CONSTANT_NAMES or isinstance(item, _CONSTANT_TYPES):
                continue
            met = len(self._seen)
            try:
                attributes.append([name, self.write(item, f"{path}.{name}")])
            except UnreadableStateError:
                if self._strict:
                    raise
                for key in list(self._seen)[met:]:
                    del self._seen[key]
        return {"object": attributes, "type": _type_name(value)}

    def check_overlaps(self) -> None:
        """Refuse arrays that share memory: put back, they would no longer."""
        spans = sorted(span for span in self._spans if span[0] < span[1])
        for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
            if begin < end:
                raise UnreadableStateError(f"{one} and {other} share memory")


class AttributeReader:
    """Gives back what `AttributeWriter` wrote down, into the objects of a new copy."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def read(self, encoded: EnvState, existing: Any = None) -> Any:
        """Give a value back; the copy must have what can only be put back into."""
        kind, content = next(iter(encoded.items()))
        if kind == "value":
            return content
        if kind == "scalar":
            return content[()]
        if kind == "tuple":
            return tuple(self._read_items(content, existing))
        if kind == "same":
            return self._made[content]
        if kind == "generator":
            state = AttributeReader().read(content)
            kind_of_bits = getattr(np.random, state["bit_generator"])
            if not isinstance(getattr(existing, "bit_generator", None), kind_of_bits):
                existing = np.random.Generator(kind_of_bits())
            existing.bit_generator.state = state
            return self._keep(existing)
        if kind == "array":
            return self._keep(content.copy(order="F" if encoded["fortran"] else "C"))
        if kind in ("list", "deque"):
            items: Any = self._keep([] if kind == "list" else deque(maxlen=encoded["maxlen"]))
            items.extend(self._read_items(content, existing))
            return items
        if kind == "dict":
            table = self._keep({})
            old = existing if isinstance(existing, dict) else {}
            for key, value in content:
                name = self.read(key)
                table[name] = self.read(value, old.get(name))
            return table
        if kind == "space" and isinstance(existing, spaces.Space):
            self._keep(existing)
            existing._np_random = self.read(content, existing._np_random)
            return existing
        if existing is None or _type_name(existing) != encoded.get("type"):
            raise UnreadableStateError(f"there is no {encoded.get('type', kind)} to put back into")
        self._keep(existing)
        for name, value in content:
            vars(existing)[name] = self.read(value, vars(existing).get(name))
        return existing

    def _read_items(self, content: list[EnvState], existing: Any) -> list[Any]:
        old = list(existing)[: len(content)] if isinstance(existing, (list, tuple, deque)) else []
        return [self.read(item, other) for item, other in itertools.zip_longest(content, old)]

    def _keep(self, value: Any) -> Any:
        self._made.append(value)
        return value


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
        raise UnreadableStateError(f"{path} is of {dtype}")


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


_TRIAL_SECONDS = 30.0


class Restored(NamedTuple):
    """What putting an environment back has come to."""

    observation: Any
    """The new observation after a replay or where a new episode began; None: as it was."""
    problem: str | None
    """Why the environment could not be put back exactly; None: it was."""


class ActionRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers how the current episode came about: where it started, then the actions."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.start: EnvState = {}
        self.actions: list[np.ndarray[Any, Any]] = []

    def reset(self, *, seed: int | None = None, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode and a new record."""
        self.start = {**_start(self), "seed": seed}
        self.actions = []
        return self.env.reset(seed=seed, **how)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and remember the action."""
        self.actions.append(np.array(action))
        return self.env.step(action)


def prepare(factory: EnvironmentFactory, method: StateMethod) -> Environment:
    """Make an environment whose state `capture` can read by this method."""
    made = factory.make()
    return ActionRecorder(made) if method == "replay" else made


def capture(environment: Environment, method: StateMethod) -> EnvState:
    """Write an environment's state down; what cannot be read is left out, with a `problem`."""
    try:
        if method == "replay":
            recorder = cast("ActionRecorder", environment)
            return {"method": method, **recorder.start, "actions": np.array(recorder.actions)}
        if method == "fields":
            writer = AttributeWriter(strict=True)
            layers = [writer.write(layer, type(layer).__name__) for layer in _layers(environment)]
            writer.check_overlaps()
            mujoco = _capture_simulation(environment)
            return {"method": method, "layers": layers, "mujoco": mujoco}
        problem = None
    except Exception as error:
        # Whatever an attribute has become: a run is not lost to it.
        problem = f"{type(error).__name__}: {error}"
    return {"method": "fresh", **_start(environment), "seed": None, "problem": problem}


def restore(environment: Environment, state: EnvState, seed: int) -> Restored:
    """Put a fresh copy into a captured state, or begin a new episode from the seed."""
    try:
        # The first reset lets an environment build whatever it builds lazily: a simulator's may
        # load files where later ones only rewind.
        environment.reset(seed=seed)
        layers, reader = _layers(environment), AttributeReader()
        if state["method"] == "fields":
            for layer, encoded in zip(layers, state["layers"], strict=True):
                reader.read(encoded, layer)
            if state["mujoco"] is not None:
                _restore_simulation(environment, state["mujoco"])
            return Restored(None, None)
        if state["generator"] is not None:
            # In place, because parts of an environment may share it.
            reader.read(state["generator"], layers[-1].np_random)
        for layer, encoded in zip(layers[:-1], state["wrappers"], strict=False):
            reader.read(encoded, layer)
        observation, _ = environment.reset(seed=state["seed"])
        for action in state.get("actions", ()):
            observation, *_ = environment.step(action)
    except Exception as error:
        observation, _ = environment.reset(seed=seed)
        return Restored(observation, f"{type(error).__name__}: {error}")
    exact = state["method"] == "replay"
    return Restored(observation, None if exact else state["problem"] or "it cannot be reproduced")


def choose_method(factory: EnvironmentFactory) -> StateMethod:
    """Find the first way that reproduces this environment bit for bit, by trying it."""
    with undisturbed():
        if _reproduces(factory, "fields", seed=0, steps=24):
            return "fields"
        # What a simulator carries over shows late, and not in every episode.
        if all(_reproduces(factory, "replay", seed, steps=250) for seed in range(2)):
            return "replay"
    return "fresh"


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave the global random generators as they were: an environment may draw from them."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _reproduces(factory: EnvironmentFactory, method: StateMethod, seed: int, steps: int) -> bool:
    """Try a way in the first episode and in a later one."""
    deadline = time.monotonic() + _TRIAL_SECONDS
    # Whatever goes wrong, the run itself will tell of it, if it gets that far.
    with contextlib.suppress(Exception), contextlib.ExitStack() as made:

        def make() -> Environment:
            return made.enter_context(contextlib.closing(prepare(factory, method)))

        original = make()
        space = cast("spaces.Box", original.action_space)
        generator = np.random.default_rng(seed)

        def play(environments: list[Environment], count: int) -> bool:
            """Take the same random actions in all; says whether the same came of it."""
            for _ in range(count):
                action = generator.uniform(space.low, space.high).astype(space.dtype)
                results = [env.step(action.copy())[:4] for env in environments]
                same = all(_same(result, results[0]) for result in results)
                if results[0][2] or results[0][3]:
                    firsts = [env.reset()[0] for env in environments]
                    same = same and all(_same(first, firsts[0]) for first in firsts)
                if not same or time.monotonic() > deadline:
                    return False
            return True

        original.reset(seed=seed)
        for before in (steps // 2, 2 * steps):
            play([original], before)
            if before > steps:
                original.reset()
                play([original], steps // 2)
            copy = make()
            state = capture(original, method)
            if state["method"] != method or restore(copy, state, seed + 1).problem is not None:
                return False
            if not play([original, copy], steps):
                return False
        return _same(original.reset()[0], copy.reset()[0])
    return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


def _layers(environment: Environment) -> list[Environment]:
    """List the layers from the outermost wrapper but ours to the environment itself."""
    layers: list[Environment] = []
    while isinstance(environment, gymnasium.Wrapper):
        layers += [] if isinstance(environment, ActionRecorder) else [environment]
        environment = environment.env
    return [*layers, environment]


def _start(environment: Environment) -> EnvState:
    """Write down what a reset starts from: the generator, and what can be read of the wrappers."""
    *wrappers, inner = _layers(environment)
    generator = getattr(inner, "_np_random", None)
    writer = AttributeWriter(strict=False)
    try:
        return {
            "generator": None if generator is None else writer.write(generator, "generator"),
            "wrappers": [writer.write(layer, type(layer).__name__) for layer in wrappers],
        }
    except Exception:
        return {"generator": None, "wrappers": []}


def _capture_simulation(environment: Environment) -> EnvState | None:
    """Write down MuJoCo's integration state, and the quantities derived from it.

    The integration state with its warm start is what the next step starts from. Rewards however
    are also computed from positions of bodies and the like, which lag one substep behind it and
    cannot be computed again from it.
    """
    inner = environment.unwrapped
    model, data = getattr(inner, "model", None), getattr(inner, "data", None)
    if type(model).__name__ != "MjModel" or type(data).__name__ != "MjData":
        return None
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    derived = {name: array.copy() for name, array in _derived(data).items() if array.size}
    return {"integration": state, "derived": derived}


def _restore_simulation(environment: Environment, state: EnvState) -> None:
    import mujoco

    inner: Any = environment.unwrapped
    # Solver output of the throw-away reset would otherwise stay where sizes differ.
    mujoco.mj_resetData(inner.model, inner.data)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(inner.model, inner.data, state["integration"], kind)
    for name, array in _derived(inner.data).items():
        saved = state["derived"].get(name)
        # Arrays of contacts have the size of the last step's; the next step makes them anew.
        if saved is not None and saved.shape == array.shape:
            array[...] = saved


def _derived(data: Any) -> dict[str, np.ndarray[Any, Any]]:
    values = {name: getattr(data, name) for name in dir(data) if not name.startswith("_")}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {n: a for n, a in arrays.items() if a.flags.writeable and a.dtype.kind in "fib"}
