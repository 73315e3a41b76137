"""An object's attributes as arrays and JSON values, so that a copy can be made the same.

Types are kept exactly, and so is who shares what: two lists that were one are one again.
"""

from __future__ import annotations

import enum
import itertools
import logging
import types
from collections import deque
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

State = dict[str, Any]

# What an environment holds that does not change, or that only matters for pictures.
_CONSTANT_NAMES = frozenset(
    (
        *("spec", "metadata", "mujoco_renderer", "_cached_spec", "_saved_kwargs"),
        *("_ezpickle_args", "_ezpickle_kwargs"),
    )
)
_CONSTANT_TYPES = (
    *(gymnasium.Env, EnvSpec, type, types.ModuleType, types.FunctionType, types.MethodType),
    *(types.BuiltinFunctionType, np.ufunc, logging.Logger),
)
_PLAIN = (bool, int, float, str, type(None))


class UnreadableStateError(TypeError):
    """An object holds something that cannot be written down, or not be put back."""


class AttributeWriter:
    """Turns data into arrays and JSON values that keep exact types and who shares what.

    Args:
        strict: whether an attribute that cannot be written down is an error; else it is left out.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        # Objects met before: their number, and themselves, so that no other gets their id.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._spans: list[tuple[int, int, str]] = []

    def write(self, value: Any, path: str) -> State:
        """Write a value down.

        Raises:
            UnreadableStateError: naming what cannot be.
        """
        kind = type(value)
        if kind in _PLAIN:
            return {"value": value}
        if isinstance(value, np.generic):
            _check_dtype(value.dtype, path)
            return {"scalar": np.array(value)}
        if kind is tuple:
            return {"tuple": [self.write(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)][0]}
        if isinstance(value, np.random.Generator):
            self._remember(value)
            return {
                "generator": AttributeWriter(strict=True).write(value.bit_generator.state, path)
            }
        if isinstance(value, spaces.Space):
            self._remember(value)
            return {"space": self.write(value._np_random, path)}
        if kind is np.ndarray:
            return self._write_array(value, path)
        if kind in (list, deque):
            self._remember(value)
            items = [self.write(item, f"{path}[{index}]") for index, item in enumerate(value)]
            return {kind.__name__: items, "maxlen": getattr(value, "maxlen", None)}
        if kind is dict:
            self._remember(value)
            pairs = ((key, item, f"{path}[{key!r}]") for key, item in value.items())
            return {"dict": [[self.write(k, at), self.write(v, at)] for k, v, at in pairs]}
        return self.write_object(value, path)

    def write_object(self, value: Any, path: str) -> State:
        """Write an object's attributes down; it must hold nothing else."""
        ordinary = type(value).__basicsize__ <= _Ordinary.__basicsize__ and hasattr(
            value, "__dict__"
        )
        if not ordinary or isinstance(value, enum.Enum):
            raise UnreadableStateError(f"{path} is a {type(value).__name__}")
        self._remember(value)
        attributes = []
        for name, item in vars(value).items():
            met = len(self._seen)
            try:
                if name not in _CONSTANT_NAMES and not _is_constant(item):
                    attributes.append([name, self.write(item, f"{path}.{name}")])
            except UnreadableStateError:
                if self._strict:
                    raise
                for key in list(self._seen)[met:]:
                    del self._seen[key]
        return {"object": attributes, "type": _type_name(value)}

    def _write_array(self, value: np.ndarray[Any, Any], path: str) -> State:
        _check_dtype(value.dtype, path)
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise UnreadableStateError(f"{path} is a part of another array")
        self._remember(value)
        begin = value.__array_interface__["data"][0]
        self._spans.append((begin, begin + value.nbytes, path))
        return {"array": value.copy(), "fortran": not value.flags.c_contiguous}

    def check_overlaps(self) -> None:
        """Refuse arrays that share memory: put back, they would no longer.

        Raises:
            UnreadableStateError: naming two.
        """
        spans = sorted(span for span in self._spans if span[0] < span[1])
        for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
            if begin < end:
                raise UnreadableStateError(f"{one} and {other} share memory")

    def _remember(self, value: Any) -> None:
        self._seen[id(value)] = (len(self._seen), value)


class AttributeReader:
    """Gives back what `AttributeWriter` wrote down, into the objects of a new copy."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def read(self, encoded: State, existing: Any = None) -> Any:
        """Give a value back.

        Raises:
            UnreadableStateError: the copy has no such object.
        """
        kind = next(iter(encoded))
        content = encoded[kind]
        if kind == "value":
            return content
        if kind == "scalar":
            return content[()]
        if kind == "tuple":
            return tuple(self.read(v, e) for v, e in _pairs(content, existing))
        if kind == "same":
            return self._made[content]
        if kind == "generator":
            return self._keep(_read_generator(content, existing))
        if kind == "array":
            return self._keep(content.copy(order="F" if encoded["fortran"] else "C"))
        if kind in ("list", "deque"):
            items: Any = self._keep([] if kind == "list" else deque(maxlen=encoded["maxlen"]))
            items.extend([self.read(v, e) for v, e in _pairs(content, existing)])
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

    def _keep(self, value: Any) -> Any:
        self._made.append(value)
        return value


class _Ordinary:
    """What an object of pure Python is made of."""


def _is_constant(value: Any) -> bool:
    """Tell whether a value never changes, as far as the next step is concerned."""
    return isinstance(value, _CONSTANT_TYPES) or type(value).__name__ in ("MjModel", "MjData")


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
        raise UnreadableStateError(f"{path} is of {dtype}")


def _read_generator(content: State, existing: Any) -> np.random.Generator:
    state = AttributeReader().read(content)
    same = isinstance(existing, np.random.Generator)
    if same and existing.bit_generator.state["bit_generator"] == state["bit_generator"]:
        existing.bit_generator.state = state
        return cast("np.random.Generator", existing)
    bits = getattr(np.random, str(state["bit_generator"]))()
    bits.state = state
    return np.random.Generator(bits)


def _pairs(content: list[State], existing: Any) -> list[tuple[State, Any]]:
    old = list(existing) if isinstance(existing, (list, tuple, deque)) else []
    return list(zip(content, [*old, *[None] * len(content)], strict=False))


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
