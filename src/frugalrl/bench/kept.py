"""Which states of a run a filter keeps, and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from frugalrl.admission.frugal import FrugalFilter

MAP_SIZE = 40
"""Bins of the map of states along each of its two dimensions."""

Floats = NDArray[np.floating[Any]]


def replay_through(
    partition: FrugalFilter, observations: Floats, rewards: Floats, begun: int
) -> NDArray[np.int64]:
    """Offer the rest of a run to a fitted filter and give the rows that it holds at the end.

    Args:
        partition: A filter that has taken the first `begun` rows into slots 0 to `begun - 1`.
        observations: (m, d), the whole run in order.
        rewards: (m,).
        begun: Rows the filter has taken.
    """
    from frugalrl.admission.protocol import DROP

    rows = np.arange(len(rewards), dtype=np.int64)
    row_in_slot = rows.copy()
    used = begun
    position = begun
    while position < len(rewards):
        free = np.arange(used, used + len(rewards) - position, dtype=np.int64)
        decided = partition.offer(observations[position:], rewards[position:], free)
        count = len(decided.codes)
        taken = decided.codes != DROP
        # Where a slot is written twice the later row stays: assignment goes in order.
        row_in_slot[decided.slots[taken]] = rows[position : position + count][taken]
        used = max(used, int(decided.slots.max(initial=-1)) + 1)
        position += count
    return np.sort(row_in_slot[:used])


def state_map(observations: Floats, kept: NDArray[np.int64], warmup: int) -> dict[str, Any]:
    """Count visited and kept states on a grid over the two leading dimensions."""
    from frugalrl.admission.dimensions import important_dimensions

    width = observations.shape[1]
    order = important_dimensions(observations[: max(warmup, width)], 1e-9, 1.0)
    first, second = int(order[0]), int(order[min(1, width - 1)])
    x, y = observations[:, first], observations[:, second]
    ranges = [_range(x), _range(y)]
    visited = np.histogram2d(y, x, MAP_SIZE, [ranges[1], ranges[0]])[0]
    stored = np.histogram2d(y[kept], x[kept], MAP_SIZE, [ranges[1], ranges[0]])[0]
    return {
        "dimensions": [first, second],
        "ranges": ranges,
        "visited": visited.astype(int).tolist(),
        "stored": stored.astype(int).tolist(),
    }


def _range(values: Floats) -> list[float]:
    low, high = float(values.min()), float(values.max())
    return [low, high] if high > low else [low - 0.5, high + 0.5]
