"""Priorities that can be drawn in proportion, in O(log n)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.compiling import compiled

FAN = 8
"""Children of a node: shallow enough for few cache misses, narrow enough to scan."""


class SumTree:
    """Non-negative numbers, one per slot, with their sums (and least positive one) over eights.

    A wide tree in place of the usual binary one: its inner nodes take a seventh of the leaves'
    bytes, and it grows by any number of leaves, not by doubling. A node is always computed anew
    from its children, so rounding errors never pile up.
    """

    def __init__(self) -> None:
        # All in one, so that it changes as a whole whatever interrupts.
        self._built = _build(np.empty(0), 0)

    @property
    def _parts(self) -> _Parts:
        """Sums, leaves first; least positive numbers of the inner nodes; where levels start."""
        return self._built[0]

    @staticmethod
    def nbytes_for(leaves: int) -> int:
        """Bytes allocated for a number of leaves."""
        offsets, total = _levels(leaves)
        return total * 8 + (total - int(offsets[1])) * 8 + offsets.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(part.nbytes for part in self._parts)

    def __len__(self) -> int:
        return self._built[1]

    @property
    def total(self) -> float:
        """Sum of all numbers."""
        return float(self._parts[0][-1])

    @property
    def least(self) -> float:
        """The least number above zero; infinite when there is none."""
        return float(self._parts[1][-1])

    @property
    def values(self) -> NDArray[np.float64]:
        """A copy of the numbers."""
        return self._parts[0][: len(self)].copy()

    def resize(self, leaves: int) -> None:
        """Change the number of leaves; new ones are zero."""
        self.replace_all(self.values[:leaves], leaves)

    def replace_all(self, values: NDArray[np.float64], leaves: int) -> None:
        """Set the first numbers of so many leaves, the others to zero."""
        self._built = _build(values, leaves)

    def set(
        self,
        slots: NDArray[np.int64],
        values: NDArray[np.float64],
        only_positive: bool = False,
    ) -> None:
        """Set the numbers of some slots, in order; or only of those whose number is not zero."""
        _set(*self._parts, slots, values, only_positive)

    def draw_stratified(
        self, uniform: NDArray[np.float64], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw batches of a size, one slot from each of as many equal shares of the sum.

        Args:
            uniform: (batches * size,) random numbers of [0, 1).
            size: of a batch.

        Returns:
            The slots, and the number of each over the least one.
        """
        sums, least, offsets = self._parts
        drawn: tuple[NDArray[np.int64], NDArray[np.float64]] = _draw_stratified(
            sums, offsets, uniform, size, least[-1]
        )
        return drawn


_Parts = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


def _build(values: NDArray[np.float64], leaves: int) -> tuple[_Parts, int]:
    """Build a tree with these numbers first and zeros after them."""
    offsets, total = _levels(leaves)
    sums = np.zeros(total, dtype=np.float64)
    sums[: len(values)] = values
    least = np.full(total - int(offsets[1]), np.inf)
    _rebuild(sums, least, offsets)
    return (sums, least, offsets), leaves


def _levels(leaves: int) -> tuple[NDArray[np.int64], int]:
    """Where each level starts in the flat arrays, leaves first, and their whole length.

    Every level but the root's is filled up to whole families of `FAN`.
    """
    offsets, start, nodes = [0], 0, leaves
    while True:
        families = max(1, -(-nodes // FAN))
        start += families * FAN
        offsets.append(start)
        if families == 1:
            return np.array(offsets, dtype=np.int64), start + 1
        nodes = families


@compiled
def _refresh(sums: Any, least: Any, offsets: Any, level: int, node: int) -> None:
    """Compute a node anew from its children."""
    first = offsets[level - 1] + node * FAN
    total = 0.0
    smallest = np.inf
    if level == 1:
        for i in range(first, first + FAN):
            value = sums[i]
            total += value
            if value > 0.0:
                smallest = min(smallest, value)
    else:
        shift = offsets[1]
        for i in range(first, first + FAN):
            total += sums[i]
            smallest = min(smallest, least[i - shift])
    sums[offsets[level] + node] = total
    least[offsets[level] + node - offsets[1]] = smallest


@compiled
def _rebuild(sums: Any, least: Any, offsets: Any) -> None:
    """Compute every node anew."""
    for level in range(1, len(offsets)):
        for node in range((offsets[level] - offsets[level - 1]) // FAN):
            _refresh(sums, least, offsets, level, node)


@compiled
def _set(sums: Any, least: Any, offsets: Any, slots: Any, values: Any, only_positive: bool) -> None:
    """Set leaves, then refresh the nodes above them, level by level."""
    nodes = np.empty(len(slots), dtype=np.int64)
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        if only_positive and not sums[slot] > 0.0:
            continue
        sums[slot] = values[i]
        nodes[count] = slot
        count += 1
    for level in range(1, len(offsets)):
        # Slots mostly come in order, so a parent that several have in common comes in a row.
        families = 0
        for i in range(count):
            parent = nodes[i] // FAN
            if families == 0 or nodes[families - 1] != parent:
                nodes[families] = parent
                families += 1
                _refresh(sums, least, offsets, level, parent)
        count = families


@compiled
def find(sums: Any, offsets: Any, mark: float) -> int:
    """Walk from the root to the leaf in whose share of the sum a mark falls; never to a zero."""
    node = 0
    for level in range(len(offsets) - 2, -1, -1):
        first = offsets[level] + node * FAN
        chosen = 0
        for child in range(FAN):
            share = sums[first + child]
            if share > 0.0:
                # Rounding may leave the mark at or beyond the end: the last share takes it.
                chosen = child
                if mark < share:
                    break
                mark -= share
        node = node * FAN + chosen
    return node


@compiled
def _draw_stratified(sums: Any, offsets: Any, uniform: Any, size: int, least: float) -> Any:
    """Draw one leaf from each of `size` equal shares, batch after batch."""
    found = np.empty(len(uniform), dtype=np.int64)
    ratio = np.empty(len(uniform), dtype=np.float64)
    share = sums[-1] / size
    for i in range(len(uniform)):
        found[i] = find(sums, offsets, (i % size + uniform[i]) * share)
        ratio[i] = sums[found[i]] / least
    return found, ratio
