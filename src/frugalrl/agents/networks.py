"""Fully connected networks whose parameters lie in one flat vector.

A flat vector keeps the number of arrays that enter and leave a compiled update small, lets one
fused loop do Adam for a whole network, and lets the acting side read parameters without copying.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = TypeVar("Array", bound=Any)  # jax.Array in updates, np.ndarray when acting


@dataclass(frozen=True)
class Mlp:
    """Shape of a ReLU network: ``sizes`` counts inputs, hidden units and outputs.

    The vector holds, layer by layer, the weights (inputs, outputs) and the biases (outputs,).
    """

    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum((n + 1) * m for n, m in pairwise(self.sizes))

    def layers(self, flat: Array) -> list[tuple[Array, Array]]:
        """View a flat vector as weights and biases."""
        views = []
        start = 0
        for n, m in pairwise(self.sizes):
            weights = flat[start : start + n * m].reshape(n, m)
            start += n * m
            views.append((weights, flat[start : start + m]))
            start += m
        return views

    def init(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw parameters as Torch's ``nn.Linear`` does: uniform within 1/sqrt(inputs)."""
        flat = np.empty(self.size, np.float32)
        for weights, biases in self.layers(flat):
            bound = 1.0 / math.sqrt(len(weights))
            weights[...] = rng.uniform(-bound, bound, weights.shape)
            biases[...] = rng.uniform(-bound, bound, biases.shape)
        return flat


def forward(layers: list[tuple[Array, Array]], inputs: Array) -> tuple[Array, Array]:
    """Return the outputs (n, out) and what the last hidden layer says (n, hidden)."""
    hidden = inputs
    for weights, biases in layers[:-1]:
        hidden = hidden @ weights + biases
        hidden = hidden * (hidden > 0)
    weights, biases = layers[-1]
    return hidden @ weights + biases, hidden


def split_critics(critic: Mlp, flat: Array, count: int) -> list[list[tuple[Array, Array]]]:
    """View the flat vector of ``count`` critics, one after the other, as their layers."""
    size = critic.size
    return [critic.layers(flat[i * size : (i + 1) * size]) for i in range(count)]
