"""Loops between the matrix products: activations, their gradients, Adam."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.compiling import compiled

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
# Sums may be reordered and multiply-adds contracted, which vectorises them; NaN stays NaN.
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}
ZERO, ONE = np.float32(0), np.float32(1)
BETA1, BETA2, ADAM_EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
REST1, REST2 = np.float32(1 - 0.9), np.float32(1 - 0.999)


@compiled(**OPTIONS)
def bias_relu(values: Floats, biases: Floats) -> None:
    """Add biases (h,) to values (n, h) and cut at zero, in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = values[i, j] + biases[j]
            values[i, j] = ZERO if value < ZERO else value


@compiled(**OPTIONS)
def bias_relu_head(
    values: Floats, biases: Floats, weights: Floats, bias: np.float32, outputs: Floats
) -> None:
    """Do ``bias_relu``, then reduce each row to one output: row @ weights (h,) + bias."""
    for i in range(values.shape[0]):
        total = ZERO
        for j in range(values.shape[1]):
            value = values[i, j] + biases[j]
            value = ZERO if value < ZERO else value
            values[i, j] = value
            total += value * weights[j]
        outputs[i] = total + bias


@compiled(**OPTIONS)
def add_bias(values: Floats, biases: Floats) -> None:
    """Add biases (a,) to values (n, a), in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] += biases[j]


@compiled(**OPTIONS)
def relu_gradient(slopes: Floats, hidden: Floats, bias_slopes: Floats) -> None:
    """Zero slopes (n, h) where the unit was cut, in place, and sum them over rows."""
    bias_slopes[:] = ZERO
    for i in range(slopes.shape[0]):
        for j in range(slopes.shape[1]):
            slope = slopes[i, j] if hidden[i, j] > ZERO else ZERO
            slopes[i, j] = slope
            bias_slopes[j] += slope


@compiled(**OPTIONS)
def head_gradient(
    output_slopes: Floats,
    weights: Floats,
    hidden: Floats,
    slopes: Floats,
    bias_slopes: Floats,
    weight_slopes: Floats,
) -> None:
    """Go back through a single output and the ReLU below it.

    Fills slopes (n, h) with the gradient before the ReLU, bias_slopes (h,) with its sum over
    rows, and weight_slopes (h,) with the gradient of the output's weights.
    """
    bias_slopes[:] = ZERO
    weight_slopes[:] = ZERO
    for i in range(hidden.shape[0]):
        up = output_slopes[i]
        for j in range(hidden.shape[1]):
            value = hidden[i, j]
            slope = up * weights[j] if value > ZERO else ZERO
            slopes[i, j] = slope
            bias_slopes[j] += slope
            weight_slopes[j] += up * value


@compiled(**OPTIONS)
def head_gradient_rows(
    output_slope: np.float32, weights: Floats, hidden: Floats, rows: Ints, slopes: Floats
) -> None:
    """Do ``head_gradient`` for some rows, all with the same slope, without parameter slopes."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(hidden.shape[1]):
            slopes[k, j] = output_slope * weights[j] if hidden[i, j] > ZERO else ZERO


@compiled(**OPTIONS)
def relu_gradient_rows(slopes: Floats, hidden: Floats, rows: Ints) -> None:
    """Zero slopes (k, h), which belong to some rows of hidden, where the unit was cut."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(hidden.shape[1]):
            slopes[k, j] = slopes[k, j] if hidden[i, j] > ZERO else ZERO


@compiled(**OPTIONS)
def sum_rows(values: Floats, totals: Floats) -> None:
    """Sum values (n, a) over rows into totals (a,)."""
    totals[:] = ZERO
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            totals[j] += values[i, j]


@compiled(**OPTIONS)
def adam_scales(steps: int, rate: float) -> tuple[np.float32, np.float32]:
    """Return the step size and the root's scale that correct Adam's bias at step 1, 2, ..."""
    return (
        np.float32(rate / (1 - 0.9**steps)),
        np.float32(1 / math.sqrt(1 - 0.999**steps)),
    )


@compiled(**OPTIONS)
def adam(
    parameters: Floats,
    slopes: Floats,
    first: Floats,
    second: Floats,
    scales: tuple[np.float32, np.float32],
) -> None:
    """Take one Adam step in place."""
    size, root = scales
    for i in range(parameters.shape[0]):
        slope = slopes[i]
        mean = BETA1 * first[i] + REST1 * slope
        square = BETA2 * second[i] + REST2 * slope * slope
        first[i] = mean
        second[i] = square
        parameters[i] -= size * mean / (np.sqrt(square) * root + ADAM_EPSILON)


@compiled(**OPTIONS)
def polyak(targets: Floats, parameters: Floats, tau: np.float32) -> None:
    """Move targets a share tau towards the parameters, in place."""
    rest = ONE - tau
    for i in range(targets.shape[0]):
        targets[i] = rest * targets[i] + tau * parameters[i]


@compiled(**OPTIONS)
def side_by_side(left: Floats, right: Floats, both: Floats) -> None:
    """Write left (n, d) and right (n, a) into both (n, d + a)."""
    d = left.shape[1]
    for i in range(left.shape[0]):
        for j in range(d):
            both[i, j] = left[i, j]
        for j in range(right.shape[1]):
            both[i, d + j] = right[i, j]
