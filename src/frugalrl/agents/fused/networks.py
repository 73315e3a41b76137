"""Networks in flat vectors: forward, backward, Adam.

``sizes`` are a network's widths, inputs and outputs included. ``memory`` is scratch space that
holds, one after the other, the hidden layers' activations of ``rows`` rows.
"""

from __future__ import annotations

import math

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.blas import (
    product,
    product_left_transposed,
    product_right_transposed,
)
from frugalrl.agents.state import Floats, Ints

ZERO, ONE = np.float32(0), np.float32(1)
BETA1, BETA2, ADAM_EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
REST1, REST2 = np.float32(1 - 0.9), np.float32(1 - 0.999)

# Loops between the matrix products


@compiled
def bias_relu(values: Floats, biases: Floats) -> None:
    """Add biases (h,) to values (n, h) and cut at zero, in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = values[i, j] + biases[j]
            values[i, j] = ZERO if value < ZERO else value


@compiled
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


@compiled
def add_bias(values: Floats, biases: Floats) -> None:
    """Add biases (a,) to values (n, a), in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] += biases[j]


@compiled
def relu_gradient(slopes: Floats, hidden: Floats, bias_slopes: Floats) -> None:
    """Zero slopes (n, h) where the unit was cut, in place, and sum them over rows."""
    bias_slopes[:] = ZERO
    for i in range(slopes.shape[0]):
        for j in range(slopes.shape[1]):
            slope = slopes[i, j] if hidden[i, j] > ZERO else ZERO
            slopes[i, j] = slope
            bias_slopes[j] += slope


@compiled
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


@compiled
def head_gradient_rows(
    output_slope: np.float32, weights: Floats, hidden: Floats, rows: Ints, slopes: Floats
) -> None:
    """Do ``head_gradient`` for some rows, all with the same slope, without parameter slopes."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(hidden.shape[1]):
            slopes[k, j] = output_slope * weights[j] if hidden[i, j] > ZERO else ZERO


@compiled
def relu_gradient_rows(slopes: Floats, hidden: Floats, rows: Ints) -> None:
    """Zero slopes (k, h), which belong to some rows of hidden, where the unit was cut."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(hidden.shape[1]):
            slopes[k, j] = slopes[k, j] if hidden[i, j] > ZERO else ZERO


@compiled
def sum_rows(values: Floats, totals: Floats) -> None:
    """Sum values (n, a) over rows into totals (a,)."""
    totals[:] = ZERO
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            totals[j] += values[i, j]


@compiled
def side_by_side(left: Floats, right: Floats, both: Floats) -> None:
    """Write left (n, d) and right (n, a) into both (n, d + a)."""
    d = left.shape[1]
    for i in range(left.shape[0]):
        for j in range(d):
            both[i, j] = left[i, j]
        for j in range(right.shape[1]):
            both[i, d + j] = right[i, j]


# Whole networks


@compiled
def layer(flat: Floats, sizes: Ints, index: int) -> tuple[Floats, Floats]:
    """Return the weights (n, m) and biases (m,) of one layer, as views."""
    start = 0
    for k in range(index):
        start += (sizes[k] + 1) * sizes[k + 1]
    n, m = sizes[index], sizes[index + 1]
    middle = start + n * m
    return flat[start:middle].reshape(n, m), flat[middle : middle + m]


@compiled
def activations(memory: Floats, sizes: Ints, index: int, rows: int) -> Floats:
    """Return the hidden layer number index (1, 2, ...), (rows, h), as a view."""
    start = 0
    for k in range(1, index):
        start += rows * sizes[k]
    width = sizes[index]
    return memory[start : start + rows * width].reshape(rows, width)


@compiled
def forward_hidden(
    flat: Floats, sizes: Ints, inputs: Floats, memory: Floats, layers: int
) -> Floats:
    """Compute the first hidden layers from inputs (rows, n); return the last of them."""
    rows = inputs.shape[0]
    below = inputs
    for index in range(layers):
        weights, biases = layer(flat, sizes, index)
        above = activations(memory, sizes, index + 1, rows)
        product(below, weights, above)
        bias_relu(above, biases)
        below = above
    return below


@compiled
def forward(flat: Floats, sizes: Ints, inputs: Floats, memory: Floats, outputs: Floats) -> None:
    """Compute a network's outputs (rows, m), keeping its hidden layers in memory."""
    last = len(sizes) - 2
    hidden = forward_hidden(flat, sizes, inputs, memory, last)
    weights, biases = layer(flat, sizes, last)
    product(hidden, weights, outputs)
    add_bias(outputs, biases)


@compiled
def forward_critic(
    flat: Floats, sizes: Ints, inputs: Floats, memory: Floats, outputs: Floats
) -> None:
    """Compute a critic's values (rows,), keeping its hidden layers in memory."""
    last = len(sizes) - 2
    below = forward_hidden(flat, sizes, inputs, memory, last - 1)
    weights, biases = layer(flat, sizes, last - 1)
    above = activations(memory, sizes, last, inputs.shape[0])
    product(below, weights, above)
    head, bias = layer(flat, sizes, last)
    bias_relu_head(above, biases, head.reshape(-1), bias[0], outputs)


@compiled
def backward_hidden(
    flat: Floats,
    slopes: Floats,
    sizes: Ints,
    inputs: Floats,
    memory: Floats,
    scratch: Floats,
    up: Floats,
) -> None:
    """Go back from ``up``, the gradient before the last ReLU, to every parameter below it.

    Args:
        flat: Parameters.
        slopes: Their gradient, filled but for the last layer and the last hidden biases.
        sizes: Widths.
        inputs: What the network was given (rows, n).
        memory: Hidden layers, as the forward pass left them.
        scratch: Space for two gradients of the widest hidden layer.
        up: Gradient (rows, h) before the last ReLU, within the first half of scratch.
    """
    rows = inputs.shape[0]
    half = scratch.shape[0] // 2
    for index in range(len(sizes) - 3, 0, -1):
        weights, _ = layer(flat, sizes, index)
        weight_slopes, _ = layer(slopes, sizes, index)
        hidden = activations(memory, sizes, index, rows)
        product_left_transposed(hidden, up, weight_slopes)
        start = half if (len(sizes) - 3 - index) % 2 == 0 else 0
        down = scratch[start : start + rows * sizes[index]].reshape(rows, sizes[index])
        product_right_transposed(up, weights, down)
        _, bias_slopes = layer(slopes, sizes, index - 1)
        relu_gradient(down, hidden, bias_slopes)
        up = down
    weight_slopes, _ = layer(slopes, sizes, 0)
    product_left_transposed(inputs, up, weight_slopes)


@compiled
def backward_critic(
    flat: Floats,
    slopes: Floats,
    sizes: Ints,
    inputs: Floats,
    memory: Floats,
    scratch: Floats,
    output_slopes: Floats,
) -> None:
    """Fill slopes with the gradient of a critic, given that of its values (rows,)."""
    rows = inputs.shape[0]
    last = len(sizes) - 2
    hidden = activations(memory, sizes, last, rows)
    up = scratch[: rows * sizes[last]].reshape(rows, sizes[last])
    head, _ = layer(flat, sizes, last)
    head_slopes, bias_slope = layer(slopes, sizes, last)
    _, hidden_bias_slopes = layer(slopes, sizes, last - 1)
    head_gradient(
        output_slopes, head.reshape(-1), hidden, up, hidden_bias_slopes, head_slopes.reshape(-1)
    )
    bias_slope[0] = output_slopes.sum()
    backward_hidden(flat, slopes, sizes, inputs, memory, scratch, up)


@compiled
def backward_actor(
    flat: Floats,
    slopes: Floats,
    sizes: Ints,
    inputs: Floats,
    memory: Floats,
    scratch: Floats,
    output_slopes: Floats,
    extra: Floats,
) -> None:
    """Fill slopes with the gradient of an actor, given that of its outputs (rows, m).

    ``extra`` (rows, h) is added to the gradient of the last hidden layer; it may have no rows.
    """
    rows = inputs.shape[0]
    last = len(sizes) - 2
    hidden = activations(memory, sizes, last, rows)
    up = scratch[: rows * sizes[last]].reshape(rows, sizes[last])
    weights, _ = layer(flat, sizes, last)
    weight_slopes, bias_slopes = layer(slopes, sizes, last)
    product_left_transposed(hidden, output_slopes, weight_slopes)
    sum_rows(output_slopes, bias_slopes)
    product_right_transposed(output_slopes, weights, up)
    if extra.shape[0] == rows:
        up += extra
    _, hidden_bias_slopes = layer(slopes, sizes, last - 1)
    relu_gradient(up, hidden, hidden_bias_slopes)
    backward_hidden(flat, slopes, sizes, inputs, memory, scratch, up)


@compiled
def action_gradient(
    flat: Floats,
    sizes: Ints,
    memory: Floats,
    total_rows: int,
    scratch: Floats,
    output_slope: np.float32,
    rows: Ints,
    slopes: Floats,
) -> None:
    """Add the gradient of a critic's values of some rows to the actions' slopes.

    Only the rows where this critic decides need the way back, so only they take it.

    Args:
        flat: The critic's parameters.
        sizes: Its widths.
        memory: Its hidden layers for all rows.
        total_rows: How many rows these are.
        scratch: Space for two gradients of the widest hidden layer.
        output_slope: Gradient of each of the values.
        rows: The rows (k,).
        slopes: Gradient of the actions (total_rows, a), added to.
    """
    count = rows.shape[0]
    last = len(sizes) - 2
    half = scratch.shape[0] // 2
    head, _ = layer(flat, sizes, last)
    hidden = activations(memory, sizes, last, total_rows)
    up = scratch[: count * sizes[last]].reshape(count, sizes[last])
    head_gradient_rows(output_slope, head.reshape(-1), hidden, rows, up)
    for index in range(last - 1, 0, -1):
        weights, _ = layer(flat, sizes, index)
        start = half if (last - 1 - index) % 2 == 0 else 0
        down = scratch[start : start + count * sizes[index]].reshape(count, sizes[index])
        product_right_transposed(up, weights, down)
        hidden = activations(memory, sizes, index, total_rows)
        relu_gradient_rows(down, hidden, rows)
        up = down
    weights, _ = layer(flat, sizes, 0)
    a = slopes.shape[1]
    result = np.empty((count, a), np.float32)
    product_right_transposed(up, weights[sizes[0] - a :], result)
    for k in range(count):
        for j in range(a):
            slopes[rows[k], j] += result[k, j]


# Learning


@compiled
def adam_scales(steps: int, rate: float) -> tuple[np.float32, np.float32]:
    """Return the step size and the root's scale that correct Adam's bias at step 1, 2, ..."""
    return (
        np.float32(rate / (1 - 0.9**steps)),
        np.float32(1 / math.sqrt(1 - 0.999**steps)),
    )


@compiled
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


@compiled
def polyak(targets: Floats, parameters: Floats, tau: np.float32) -> None:
    """Move targets a share tau towards the parameters, in place."""
    rest = ONE - tau
    for i in range(targets.shape[0]):
        targets[i] = rest * targets[i] + tau * parameters[i]
