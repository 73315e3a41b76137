"""Networks in flat vectors: forward and backward, layer by layer.

``sizes`` are a network's widths, inputs and outputs included. ``memory`` is scratch space that
holds, one after the other, the hidden layers' activations of ``rows`` rows.
"""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused.blas import (
    product,
    product_left_transposed,
    product_right_transposed,
)
from frugalrl.agents.fused.kernels import (
    OPTIONS,
    Floats,
    Ints,
    add_bias,
    bias_relu,
    bias_relu_head,
    head_gradient,
    head_gradient_rows,
    relu_gradient,
    relu_gradient_rows,
    sum_rows,
)
from frugalrl.compiling import compiled


@compiled(**OPTIONS)
def layer(flat: Floats, sizes: Ints, index: int) -> tuple[Floats, Floats]:
    """Return the weights (n, m) and biases (m,) of one layer, as views."""
    start = 0
    for k in range(index):
        start += (sizes[k] + 1) * sizes[k + 1]
    n, m = sizes[index], sizes[index + 1]
    middle = start + n * m
    return flat[start:middle].reshape(n, m), flat[middle : middle + m]


@compiled(**OPTIONS)
def activations(memory: Floats, sizes: Ints, index: int, rows: int) -> Floats:
    """Return the hidden layer number index (1, 2, ...), (rows, h), as a view."""
    start = 0
    for k in range(1, index):
        start += rows * sizes[k]
    width = sizes[index]
    return memory[start : start + rows * width].reshape(rows, width)


@compiled(**OPTIONS)
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


@compiled(**OPTIONS)
def forward(flat: Floats, sizes: Ints, inputs: Floats, memory: Floats, outputs: Floats) -> None:
    """Compute a network's outputs (rows, m), keeping its hidden layers in memory."""
    last = len(sizes) - 2
    hidden = forward_hidden(flat, sizes, inputs, memory, last)
    weights, biases = layer(flat, sizes, last)
    product(hidden, weights, outputs)
    add_bias(outputs, biases)


@compiled(**OPTIONS)
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


@compiled(**OPTIONS)
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


@compiled(**OPTIONS)
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


@compiled(**OPTIONS)
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


@compiled(**OPTIONS)
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
