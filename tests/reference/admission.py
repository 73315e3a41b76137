"""The admission filter as plainly as it can be written: lists, loops, no cleverness."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import qr
from scipy.special import ndtr


def important_by_scipy(
    observations: np.ndarray, threshold: float, min_fraction: float
) -> list[int]:
    """Important dimensions by SciPy's column-pivoted QR, carried to its end."""
    r, pivots = qr(observations, mode="r", pivoting=True)
    magnitudes = np.abs(np.diagonal(r))
    leading = 0
    while leading < len(magnitudes) and magnitudes[leading] >= threshold * magnitudes[0]:
        leading += 1
    fewest = max(1, math.ceil(min_fraction * observations.shape[1]))
    return [int(column) for column in pivots[: max(leading, fewest)]]


def cumulative(kernel: str, t: float) -> float:
    """F(t)."""
    if kernel == "gaussian":
        return float(ndtr(t))
    t = max(-1.0, min(1.0, t))
    return 0.5 + 0.5 * t if kernel == "tophat" else 0.5 + 0.75 * t - 0.25 * t**3


def density(rewards: list[float], reward: float, kernel: str, h: float, beta: float) -> float:
    """RDE by a plain sum over all rewards."""
    if not rewards:
        return 0.0
    total = math.fsum(
        cumulative(kernel, (beta - (r - reward)) / h)
        - cumulative(kernel, (-beta - (r - reward)) / h)
        for r in rewards
    )
    return total / len(rewards)


@dataclass
class SlowPhi:
    """Rewards of each cell as a list of (slot, reward), oldest first, in a dictionary."""

    kernel: str = "epanechnikov"
    bandwidth: float = 0.3
    half_width: float = 0.2
    density_threshold: float = 0.2
    decay: float = 1e5
    replaces: bool = True
    cells: dict[object, list[tuple[int, float]]] = field(default_factory=dict)

    def mass(self, cell: object, reward: float) -> float:
        """RDE of a reward in a cell."""
        held = [r for _, r in self.cells.get(cell, [])]
        return density(held, reward, self.kernel, self.bandwidth, self.half_width)

    def margin(self, cell: object, reward: float) -> float:
        """How far the density is below the threshold; above 0: admitted."""
        held = self.cells.get(cell, [])
        if not held:
            return math.inf
        limit = self.density_threshold * math.exp(-len(held) / self.decay)
        return limit - self.mass(cell, reward)

    def victim(self, cell: object, reward: float) -> int:
        """Slot of the oldest within half_width, else of the nearest (of equals the oldest)."""
        held = self.cells[cell]
        for slot, other in held:
            if abs(other - reward) <= self.half_width:
                return slot
        return min(held, key=lambda item: abs(item[1] - reward))[0]

    def insert(self, cell: object, slot: int, reward: float) -> None:
        """Store as the youngest."""
        self.cells.setdefault(cell, []).append((slot, reward))

    def remove(self, slot: int) -> None:
        """Forget a slot."""
        for cell, held in list(self.cells.items()):
            left = [item for item in held if item[0] != slot]
            if len(left) == len(held):
                continue
            if left:
                self.cells[cell] = left
            else:
                del self.cells[cell]

    def decide(self, cell: object, reward: float, slot: int) -> tuple[str, int]:
        """Decide and follow: ("store" | "replace" | "drop", slot)."""
        if self.margin(cell, reward) > 0:
            self.insert(cell, slot, reward)
            return "store", slot
        if not self.replaces:
            return "drop", -1
        chosen = self.victim(cell, reward)
        self.remove(chosen)
        self.insert(cell, chosen, reward)
        return "replace", chosen


class OneCell:
    """One cell with room for many rewards, each question answered by looking at all of them."""

    def __init__(self, slots: int, half_width: float = 0.2, bandwidth: float = 0.3) -> None:
        self.rewards = np.full(slots, np.nan)
        self.ages = np.zeros(slots)
        self.half_width, self.bandwidth = half_width, bandwidth
        self.clock = 0

    def mass(self, reward: float) -> float:
        """RDE of a reward, Epanechnikov."""
        held = self.rewards[~np.isnan(self.rewards)]
        ends = reward + self.half_width * np.array([[1.0], [-1.0]])
        t = np.clip((ends - held) / self.bandwidth, -1.0, 1.0)
        upper, lower = 0.5 + 0.75 * t - 0.25 * t**3
        return float(np.mean(upper - lower))

    def victim(self, reward: float) -> int:
        """Slot of the oldest within half_width, else of the nearest (of equals the oldest)."""
        distances = np.abs(self.rewards - reward)
        reach = max(self.half_width, np.nanmin(distances))
        near = np.flatnonzero(distances <= reach)
        return int(near[np.argmin(self.ages[near])])

    def put(self, slot: int, reward: float) -> None:
        """Store as the youngest."""
        self.clock += 1
        self.rewards[slot], self.ages[slot] = reward, self.clock

    def forget(self, slot: int) -> None:
        """Empty a slot."""
        self.rewards[slot] = np.nan


def cell_of(
    observation: list[float],
    dimensions: list[int],
    low: list[float],
    high: list[float],
    bins: list[int],
    outside: str,
) -> tuple[int, ...]:
    """Bin of each important dimension."""
    cell = []
    for dimension, lower, upper, parts in zip(dimensions, low, high, bins, strict=True):
        number = math.floor((observation[dimension] - lower) / (upper / parts - lower / parts))
        cell.append(min(max(number, 0), parts - 1) if outside == "clip" else number)
    return tuple(cell)


class SlowReleased:
    """The released code's rule after its warm-up: a list of rewards and a slot for each cell."""

    def __init__(self, half_width: float, bandwidth: float, threshold: float, decay: float) -> None:
        self.half_width, self.bandwidth = half_width, bandwidth
        self.threshold, self.decay = threshold, decay
        self.rewards: dict[object, list[float]] = {}
        self.slot: dict[object, int] = {}
        self.in_use: set[int] = set()

    def density(self, cell: object, reward: float) -> float:
        """Kernel density of the cell's rewards at five points, times an interval."""
        held = self.rewards[cell]
        points = [reward + k * self.half_width / 2 for k in (-2, -1, 0, 1, 2)]
        heights = [
            math.fsum(max(0.0, 0.75 * (1 - ((y - r) / self.bandwidth) ** 2)) for r in held)
            / (len(held) * self.bandwidth)
            for y in points
        ]
        return math.fsum(heights) * self.half_width / 2

    def decide(self, cell: object, reward: float, slot: int) -> tuple[str, int]:
        """Decide and follow: ("store" | "replace", slot)."""
        if self.slot.get(cell) in self.in_use:
            limit = self.threshold * math.exp(-len(self.rewards[cell]) / self.decay)
            if self.density(cell, reward) >= limit:
                return "replace", self.slot[cell]
        self.store(cell, reward, slot)
        return "store", slot

    def store(self, cell: object, reward: float, slot: int) -> None:
        """Admit a transition into a slot."""
        self.in_use.add(slot)
        self.rewards.setdefault(cell, []).append(reward)
        if self.slot.get(cell) not in self.in_use:
            self.slot[cell] = slot

    def evict(self, slot: int) -> None:
        """The slot is free; its reward stays."""
        self.in_use.discard(slot)
