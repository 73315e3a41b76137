"""An offer of transitions to a filter, as compiled code wants it, and what is decided about it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import CODE_TYPE, SLOT_TYPE, Decisions
from frugalrl.compiling import compiled

Rows = tuple[NDArray[np.floating], NDArray[np.floating]]
"""(n, d) observations and (n,) rewards."""
NO_SLOTS, NOTHING_YET = np.zeros(0, SLOT_TYPE), np.zeros(2, SLOT_TYPE)
_COMPILED_FOR = [(np.dtype(kind), np.dtype(kind)) for kind in (np.float32, np.float64)]


class Offer:
    """What is decided about rows that are offered.

    It outlives the call that made it. Should an interrupt come between the decisions and their way
    to the owner, the owner offers the same again and gets the same answer.

    Args:
        rows: as the owner gave them.
        free: slots, as the owner gave them.

    Attributes:
        progress: rows decided, and free slots taken, or -1 when no more is to be decided.
        answer: which slots compiled code takes, and where it writes what it decides.
        released: slots that are given up with the last of these decisions.
    """

    released: NDArray[np.int64] | None = None

    def __init__(self, rows: tuple[Any, Any], free: Any) -> None:
        self._given = *rows, free
        count = len(rows[1])
        self.slots = np.ascontiguousarray(free, SLOT_TYPE)
        self.codes, self.places = np.empty(count, CODE_TYPE), np.empty(count, SLOT_TYPE)
        self.progress = NOTHING_YET.copy()
        self.answer = self.slots, self.codes, self.places, self.progress

    def is_same(self, rows: tuple[Any, Any], free: Any) -> bool:
        """Whether another offer is this one made again: of the very same arrays."""
        observations, rewards, slots = self._given
        return free is slots and rows[0] is observations and rows[1] is rewards

    def decisions(self) -> Decisions:
        """The answer."""
        decided = self.progress.item(0)
        codes, slots = self.codes, self.places
        if decided < len(codes):
            codes, slots = codes[:decided], slots[:decided]
        return Decisions(codes, slots, self.released)


@compiled
def all_finite(rows: Any) -> bool:
    """Whether no value is NaN or infinite."""
    # x - x is 0 for finite x and NaN for all else, so one sum tells, without a branch per value.
    total = 0.0
    for x in rows.flat:
        total += x - x
    return bool(total == 0.0)


@compiled
def are_finite(observations: Any, rewards: Any) -> bool:
    """Whether no value of rows is NaN or infinite."""
    return all_finite(observations) and all_finite(rewards)


def as_rows(observations: Any, rewards: Any, dimensions: int) -> Rows:
    """Give (n, d) observations and (n,) rewards, any numbers, as compiled code takes them.

    Args:
        observations: (n, d).
        rewards: (n,).
        dimensions: the d that is needed; 0 when any will do.

    Returns:
        The arrays themselves where both are float32, as in a buffer, or float64; else copies.
    """
    if not (
        isinstance(observations, np.ndarray)
        and isinstance(rewards, np.ndarray)
        and (observations.dtype, rewards.dtype) in _COMPILED_FOR
        and observations.flags.carray
        and rewards.flags.carray
    ):
        observations = _as_float64("observations", observations)
        rewards = _as_float64("rewards", rewards)
    shape = observations.shape
    if len(shape) != 2 or rewards.shape != shape[:1]:
        raise ValueError(
            f"observations has shape {shape} and rewards {rewards.shape}; "
            "(n, dimensions) and (n,) are needed"
        )
    found = shape[1]
    if found == 0:
        raise ValueError(f"observations has shape {shape}: there is nothing to observe")
    if found != dimensions != 0:
        raise ValueError(
            f"observations has {found} dimensions, but this filter has begun with {dimensions}"
        )
    return observations, rewards


def _as_float64(argument: str, values: Any) -> NDArray[np.float64]:
    """Copy real numbers; what NumPy would turn into such without a word is refused."""
    found = "something else"
    try:
        given = np.asarray(values)
        if given.dtype.kind in "fiub" or (
            given.dtype == object and not any(isinstance(it, str | bytes) for it in given.flat)
        ):
            return given.astype(np.float64, "C")
        found = f"of type {given.dtype}"
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(
        f"observations and rewards must be arrays of numbers, but {argument} is {found}"
    )
