"""What the paper's two theorems speak of, measured on a real buffer.

Two transitions are *equivalent* when they lie in the same cell and in the same reward bin, of width
2 beta: the interval over which FAC looks for a reward's like. This is an equivalence relation, so
the buffer falls into classes and everything below follows from the classes' sizes.

The theorems count one repeated element: zeta (or lambda) copies of it. A real minibatch repeats
many elements a few times each, so each measure comes twice: as the theorem's formula with the
number of surplus transitions, and as the quantity the proof needs, which has no such assumption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Classes = NDArray[np.int64]


@dataclass(frozen=True)
class MinibatchMeasures:
    """Equivalent transitions in minibatches drawn uniformly with replacement (theorem 1)."""

    batch_size: int
    zeta: float
    """Mean number of surplus transitions: batch size minus classes present."""
    factor: float
    """The theorem's (b + zeta^2 + zeta) / b at the mean zeta."""
    pairs: float
    """Mean number of ordered pairs of equivalent transitions."""
    pair_factor: float
    """(b + pairs) / b: what the proof's sum has left; `factor` where one element repeats."""


@dataclass(frozen=True)
class BufferMeasures:
    """Equivalent transitions in the whole buffer (theorem 2)."""

    size: int
    classes: int
    surplus: int
    """Lambda: transitions that have an earlier equivalent."""
    entropy: float
    """Entropy of the (cell, reward bin) distribution, in nats."""
    entropy_limit: float
    """log m: the entropy of a buffer without equivalents."""
    theorem_gap: float
    """The theorem's (lambda + 1) log(lambda + 1) / m, at most correct for one repeated element."""
    gap: float
    """Measured distance from the limit: the sum of g log g over class sizes g, over m."""


def equivalence_classes(cells: ArrayLike, rewards: ArrayLike, beta: float) -> Classes:
    """Number the (cell, reward bin) classes of transitions from 0.

    A cell is one integer, or one row of integers; `beta` is half the width of a reward bin.
    """
    if not beta > 0.0:
        raise ValueError(f"beta must be positive, got {beta}")
    keys = np.asarray(cells, dtype=np.int64)
    bins = np.floor(np.asarray(rewards, dtype=np.float64) / (2.0 * beta)).astype(np.int64)
    if len(keys) != bins.size:
        raise ValueError(f"got {len(keys)} cells for {bins.size} rewards")
    _, classes = np.unique(np.column_stack((keys, bins)), axis=0, return_inverse=True)
    return np.asarray(classes, dtype=np.int64).ravel()


def surplus_and_pairs(classes: ArrayLike) -> tuple[int, int]:
    """Count transitions beyond the first of their class, and ordered pairs within classes."""
    _, counts = np.unique(np.asarray(classes), return_counts=True)
    return int(np.sum(counts - 1)), int(np.sum(counts * (counts - 1)))


def measure_minibatches(
    classes: ArrayLike, batch_size: int, generator: np.random.Generator, batches: int = 200
) -> MinibatchMeasures:
    """Draw minibatches as a uniform sampler does and count their equivalent transitions."""
    labels = np.asarray(classes, dtype=np.int64)
    if labels.size == 0:
        raise ValueError("an empty buffer has no minibatches")
    draws = [generator.integers(0, labels.size, size=batch_size) for _ in range(batches)]
    counted = [surplus_and_pairs(labels[drawn]) for drawn in draws]
    zeta, mean_pairs = (sum(counts) / batches for counts in zip(*counted, strict=True))
    return MinibatchMeasures(
        batch_size=batch_size,
        zeta=zeta,
        factor=(batch_size + zeta * zeta + zeta) / batch_size,
        pairs=mean_pairs,
        pair_factor=(batch_size + mean_pairs) / batch_size,
    )


def measure_buffer(classes: ArrayLike) -> BufferMeasures:
    """Count a buffer's equivalent transitions and its entropy over classes."""
    labels = np.asarray(classes, dtype=np.int64)
    if labels.size == 0:
        raise ValueError("an empty buffer has no entropy")
    _, counts = np.unique(labels, return_counts=True)
    size, surplus = int(labels.size), int(labels.size - counts.size)
    shares = counts / size
    entropy = float(-np.sum(shares * np.log(shares))) + 0.0
    return BufferMeasures(
        size=size,
        classes=int(counts.size),
        surplus=surplus,
        entropy=entropy,
        entropy_limit=math.log(size),
        theorem_gap=(surplus + 1) * math.log(surplus + 1) / size,
        gap=math.log(size) - entropy,
    )
