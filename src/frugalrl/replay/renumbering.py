"""Slot numbers that were given out with a draw, and what they have become since."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Renumbering:
    """Knows the present number of every slot there was at the last draw.

    Like a batch, this is about numbers that someone else holds, not about what the buffer keeps,
    and it goes with the next draw. So it is neither counted among the buffer's bytes nor saved: a
    loaded buffer has given out no numbers yet.
    """

    def __init__(self) -> None:
        self._has_given_out = False
        # (slots at the first renumbering,) present number of each, -1 if it is gone.
        self._names: NDArray[np.int32] | None = None

    def give_out(self) -> None:
        """Numbers have been drawn: follow these, and forget those before."""
        self._has_given_out = True
        self._names = None

    def follow(self, names: NDArray[np.int64]) -> None:
        """Take in that all slots have been renumbered.

        Args:
            names: (slots + 1,) the new number of each, -1 if it is gone; the last is -1.
        """
        if not self._has_given_out:
            return  # nobody can ask
        if self._names is None:
            self._names = names[:-1].astype(np.int32)
        else:
            self._names = names[self._names].astype(np.int32)  # -1 finds the last, which is -1

    def known(self, slots: int) -> int:
        """How many numbers, from 0, can be asked about while there are so many slots."""
        return slots if self._names is None else len(self._names)

    def present(
        self, slots: NDArray[np.int64], errors: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the present numbers of slots, all below `known`, and their errors; none if gone."""
        if self._names is None:
            return slots, errors
        now = self._names[slots].astype(np.int64)
        is_left = now >= 0
        return now[is_left], errors[is_left]
