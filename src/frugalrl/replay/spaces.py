"""Which spaces can be stored, how their values lie in memory, and how spaces are saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from frugalrl.checks import integer_from

WORD = 4
"""Bytes of one word of a stored record."""
ACTION = "action"
"""Name of the action among the fields of a transition."""

_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.int64)

_MOST_PAYLOAD = 2**24
"""Bytes; a file may say anything of shapes of which it holds no array."""
_USUAL_FIELDS = (ACTION, "self", "observations", "actions", "rewards", "next_observations",
                 "terminated", "truncated")  # fmt: skip

Field = tuple[str, tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class Layout:
    """How a transition of these spaces lies in memory."""

    observation_shape: tuple[int, ...]
    width: int
    """Numbers in an observation."""
    float_dtype: np.dtype[Any]
    """In which observations and float actions are kept: float32 or float16."""
    state_words: int
    """Words that a state takes."""
    payload: np.dtype[Any]
    """The action and extra fields, filled up to whole words."""
    payload_words: int
    """Words that these take."""
    action_range: tuple[NDArray[Any], NDArray[Any]] | None
    """Least and greatest integer actions; None for float actions."""
    action_out: np.dtype[Any]
    """As drawn."""
    extra: tuple[Field, ...]
    """Fields beside those that every transition has."""

    def as_floats(self, words: NDArray[np.int32]) -> NDArray[Any]:
        """See (..., words) of states as (..., d) numbers."""
        return words.view(self.float_dtype)[..., : self.width]

    def as_fields(self, words: NDArray[np.int32]) -> NDArray[Any]:
        """See (n, words) of payloads as (n,) records."""
        return words.view(self.payload)[:, 0] if self.payload_words else words


SLOTS_ALONE = Layout(
    (0,), 0, np.dtype(np.float32), 0, np.dtype([]), 0, None, np.dtype(np.float32), ()
)
"""Of a storage that keeps nothing but slots: what is in them is kept elsewhere."""


def make_layout(
    observation_space: Any, action_space: Any, dtype: str, extra: tuple[Field, ...]
) -> Layout:
    """Check the spaces and decide how their values are stored.

    Raises:
        TypeError: a space is of a kind that cannot be stored.
        ValueError: a space is empty.
    """
    _check_observation_space(observation_space)
    floats = np.dtype(dtype)
    limits = _action_range(action_space)
    shape = action_space.shape
    if math.prod(shape) == 0:
        raise ValueError(f"action_space has shape {shape}, which holds no numbers")
    action = floats if limits is None else _smallest_integer(*limits)
    parts = [(ACTION, shape, action), *extra]
    size = sum(math.prod(form) * kind.itemsize for _, form, kind in parts)
    if size > _MOST_PAYLOAD:
        raise ValueError(
            f"an action with its extra fields takes {size} bytes; the most is {_MOST_PAYLOAD}"
        )
    names, formats = [name for name, _, _ in parts], [(kind, form) for _, form, kind in parts]
    width, words = math.prod(observation_space.shape), -(-size // WORD)
    return Layout(
        observation_shape=observation_space.shape,
        width=width,
        float_dtype=floats,
        state_words=-(-width * floats.itemsize // WORD),
        payload=np.dtype({"names": names, "formats": formats, "itemsize": words * WORD}),
        payload_words=words,
        action_range=limits,
        action_out=np.dtype(np.float32 if limits is None else action_space.dtype),
        extra=extra,
    )


def fields_from(extra_fields: Any) -> tuple[Field, ...]:
    """Check the fields that a user wants beside the usual ones.

    Raises:
        TypeError: they are not (name, shape, dtype) each.
        ValueError: a name, shape or type cannot be had.
    """
    fields: list[Field] = []
    for given in extra_fields:
        try:
            name, shape, kind = given
            size = tuple(integer_from("shape", n, 1) for n in shape)
            dtype = np.dtype(kind).newbyteorder("=")
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"extra_fields: {given!r} is not (name, shape, dtype), such as "
                f"('discount', (), 'float32') ({error})"
            ) from None
        if not isinstance(name, str) or not name.isidentifier() or name in _USUAL_FIELDS:
            raise ValueError(f"extra_fields: {name!r} cannot be the name of an argument of add")
        if name in [other for other, _, _ in fields]:
            raise ValueError(f"extra_fields: {name!r} stands twice")
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise ValueError(
                f"extra_fields: {name!r} has dtype {dtype}; use bool, an integer or a float type"
            )
        fields.append((name, size, dtype))
    return tuple(fields)


def _check_observation_space(space: Any) -> None:
    """Say what could be stored if observations of a space cannot."""
    help_text = (
        "observations must come from a Box of numbers of any shape; "
        "wrap the environment in gymnasium.wrappers.FlattenObservation, "
        "or reduce what it observes to a vector first"
    )
    if not isinstance(space, spaces.Box):
        raise TypeError(f"observation_space={space!r} is not supported: {help_text}")
    if len(space.shape) == 3 and space.dtype == np.uint8:
        raise TypeError(
            f"observation_space={space!r} looks like images, which are not supported: {help_text}"
        )
    if math.prod(space.shape) == 0:
        raise ValueError(f"observation_space has shape {space.shape}, which holds no numbers")


def limits_of(space: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Least and greatest of each number in a space; None for a space of another kind."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        low = np.asarray(space.start, dtype=np.int64)
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return low, low + np.asarray(count, dtype=np.int64) - 1
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, dtype=np.int64), np.ones(space.shape, dtype=np.int64)
    return None


def _action_range(space: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Least and greatest integer actions, one for each number; None for float actions."""
    limits = limits_of(space)
    if limits is None or limits[0].dtype == np.uint64:
        raise TypeError(
            f"action_space={space!r} is not supported: actions must come from a Box, Discrete, "
            "MultiDiscrete or MultiBinary space; gymnasium.spaces.utils.flatten_space makes one"
        )
    low, high = limits
    return None if low.dtype.kind == "f" else (low.astype(np.int64), high.astype(np.int64))


def _smallest_integer(low: NDArray[Any], high: NDArray[Any]) -> np.dtype[Any]:
    """The smallest integer type that holds the whole range."""
    least, greatest = low.min(), high.max()
    limits = (np.iinfo(kind) for kind in _INTEGERS)
    return next(it.dtype for it in limits if it.min <= least and greatest <= it.max)


# What each space is made from; `dtype` is saved by its name.
_SAVED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "Box": (spaces.Box, ("low", "high", "dtype")),
    "Discrete": (spaces.Discrete, ("n", "start", "dtype")),
    "MultiDiscrete": (spaces.MultiDiscrete, ("nvec", "start", "dtype")),
    "MultiBinary": (spaces.MultiBinary, ("n",)),
}


def describe_space(space: Any) -> dict[str, Any]:
    """Describe a space by arrays and JSON values."""
    for kind, (made_by, names) in _SAVED.items():
        if isinstance(space, made_by):
            values = {name: np.array(getattr(space, name)) for name in names if name != "dtype"}
            described = {n: v if v.ndim or kind == "Box" else v.item() for n, v in values.items()}
            # A Discrete space is of int64, unless it says otherwise, as older ones cannot.
            if "dtype" in names and (kind != "Discrete" or space.dtype != np.int64):
                described["dtype"] = np.dtype(space.dtype).name
            return {"kind": kind, **described}
    raise TypeError(f"{space!r} is not a space that can be saved")


def restore_space(description: dict[str, Any]) -> Any:
    """Make the space that `describe_space` described."""
    if description["kind"] not in _SAVED:
        raise ValueError(f"unknown space {description['kind']!r}")
    made_by, names = _SAVED[description["kind"]]
    settings = {name: description[name] for name in names if name in description}
    if "dtype" in settings:
        settings["dtype"] = np.dtype(settings["dtype"]).type
    return made_by(**settings)


def check_space(name: str, wanted: Any, found: Any) -> None:
    """Raise unless a space is the wanted one to the last bit of its bounds; None wants nothing."""
    if wanted is None:
        return
    saved = describe_space(found)
    given = describe_space(wanted) if isinstance(wanted, type(found)) else {}
    if given.keys() != saved.keys() or not all(np.array_equal(given[k], saved[k]) for k in saved):
        raise ValueError(f"it was saved with {name}={found!r}, which is not {wanted!r}")
