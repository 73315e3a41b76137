"""Arguments of a buffer, checked before anything is created."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import check_choice, integer_from
from frugalrl.replay.storage import MOST_TRANSITIONS

_UNITS = {"": 1, **{f"{p}b": 1000**i for i, p in enumerate(("", "k", "m", "g", "t"))}}
_UNITS |= {f"{p}ib": 1024**i for i, p in enumerate(("k", "m", "g", "t"), start=1)}


def slots_from(value: Any) -> NDArray[np.int64]:
    """Give slots as a contiguous array; a single one as an array of one."""
    slots = np.asarray(value)
    # An empty list has no type of its own and counts as float.
    if slots.size and slots.dtype.kind not in "iu":
        raise TypeError(f"slots has dtype {slots.dtype}; expected integers")
    return np.ascontiguousarray(slots, dtype=np.int64)


def capacity_from(capacity: Any, capacity_bytes: Any) -> tuple[int, int | None]:
    """Give the most transitions and the most bytes that may be held."""
    if capacity is None and capacity_bytes is None:
        raise ValueError("capacity is None and so is capacity_bytes; give at least one of them")
    limit = None if capacity_bytes is None else bytes_from(capacity_bytes)
    if capacity is None:
        return MOST_TRANSITIONS, limit
    number = integer_from("capacity", capacity, 1)
    if number > MOST_TRANSITIONS:
        raise ValueError(f"capacity={capacity!r} is out of range; use at most {MOST_TRANSITIONS}")
    return number, limit


def bytes_from(value: Any) -> int:
    """Read a number of bytes, such as 1000000, "512MB" or "2GiB"."""
    if isinstance(value, str):
        parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", value)
        unit = _UNITS.get(parts[2].lower()) if parts else None
        if parts is None or unit is None:
            raise ValueError(
                f"capacity_bytes={value!r} is no size; write it as 512MB, 1.5GB, 2GiB or a number"
            )
        value = int(float(parts[1]) * unit)
    return integer_from("capacity_bytes", value, 1)


def check_dtype(dtype: Any) -> str:
    """Give the name of the type in which observations are stored."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    check_choice("dtype", name, ("float32", "float16"))
    return str(name)
