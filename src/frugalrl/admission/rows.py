"""Rows of transitions as compiled code wants them, and an offer of them on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.admission.protocol import REPLACE, STORE, Decisions
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_NO_REAL_NUMBERS = "cSUMm"
"""Kinds of arrays that NumPy would turn into real numbers: complex, texts, dates, durations."""


class Call:
    """An offer: the rows, and what is decided about them.

    It outlives the call that made it. Should an interrupt come between the decisions and their way
    to the owner, the owner offers the same again and gets the same answer.

    Args:
        observations: (n, d), not the owner's own array.
        rewards: (n,), neither.
        free: slots, as the owner gave them.
        given_up: slots that the filter has given up and the owner does not know of yet. When free
            ones run out they are replaced, the others are released.
    """

    def __init__(
        self,
        observations: NDArray[np.float64],
        rewards: NDArray[np.float64],
        free: Any,
        given_up: NDArray[np.int64] | None = None,
    ) -> None:
        count = len(rewards)
        self.observations = observations
        self.rewards = rewards
        self.free = free
        self.slots = np.array(free[:count], dtype=np.int64)
        self.given_up = given_up
        if given_up is not None:
            self.slots = np.append(self.slots, given_up)
        self.codes = np.empty(count, dtype=np.int8)
        self.chosen = np.full(count, -1, dtype=np.int64)
        self.progress = np.zeros(3, dtype=np.int64)
        """Rows decided, free slots taken, and whether that is all."""
        self.released: NDArray[np.int64] | None = None

    def is_same(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64], free: Any
    ) -> bool:
        """Whether an offer is this one made again."""
        return (
            free is self.free
            and np.array_equal(rewards, self.rewards)
            and np.array_equal(observations, self.observations)
        )

    def decisions(self) -> Decisions:
        """The answer."""
        rows = int(self.progress[0])
        codes, slots = self.codes[:rows], self.chosen[:rows]
        if self.given_up is None:
            return Decisions(codes, slots, self.released)
        is_reused = (codes == STORE) & np.isin(slots, self.given_up)
        left = np.setdiff1d(self.given_up, slots[is_reused])
        return Decisions(np.where(is_reused, REPLACE, codes).astype(np.int8), slots, left)


@compiled
def all_finite(observations: Any, rewards: Any) -> bool:
    """Whether no value of (n, d) observations and (n,) rewards is NaN or infinite."""
    # x - x is 0 for finite x and NaN for all else, so one sum tells, without a branch per value.
    total = 0.0
    for row in range(len(rewards)):
        total += rewards[row] - rewards[row]
        for x in observations[row]:
            total += x - x
    return bool(total == 0.0)


def as_rows(
    observations: ArrayLike, rewards: ArrayLike, dimensions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give (n, d) observations and (n,) rewards as new, contiguous arrays of float64.

    Args:
        observations: (n, d) numbers.
        rewards: (n,) numbers.
        dimensions: the d that is needed; 0 when any will do.
    """
    states = _as_numbers("observations", observations)
    values = _as_numbers("rewards", rewards)
    if states.ndim != 2 or values.ndim != 1 or len(states) != len(values):
        raise ValueError(
            f"observations has shape {states.shape} and rewards {values.shape}; "
            "(n, dimensions) and (n,) are needed"
        )
    if states.shape[1] == 0:
        raise ValueError(f"observations has shape {states.shape}: there is nothing to observe")
    if dimensions and states.shape[1] != dimensions:
        raise ValueError(
            f"observations has {states.shape[1]} dimensions, "
            f"but this filter has begun with {dimensions}"
        )
    return states, values


def _as_numbers(argument: str, values: ArrayLike) -> NDArray[np.float64]:
    """Give real numbers as contiguous float64; what only looks like them is refused."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in _NO_REAL_NUMBERS and not _holds_texts(given):
            return np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(_complaint(argument, "something else")) from error
    raise TypeError(_complaint(argument, f"of type {given.dtype}"))


def _holds_texts(given: NDArray[Any]) -> bool:
    """Whether an array of Python objects has texts among them, which would be read as numbers."""
    return given.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in given.flat)


def _complaint(argument: str, found: str) -> str:
    return f"observations and rewards must be arrays of numbers, but {argument} is {found}"
