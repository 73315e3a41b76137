"""Networks in flat vectors: forward, backward, Adam."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.blas import product, product_left_transposed, product_right_transposed
from frugalrl.agents.state import Floats, Ints

ZERO, ONE = np.float32(0), np.float32(1)
BETA1, BETA2, ADAM_EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
REST1, REST2 = np.float32(1 - 0.9), np.float32(1 - 0.999)


class Network(NamedTuple):
    """A network's parameters, and where its passes leave what they compute."""

    parameters: Floats
    gradient: Floats  # of the parameters, filled by a backward pass
    sizes: Ints  # widths, inputs and outputs included
    memory: Floats  # hidden layers of the last forward pass, one after the other
    space: Floats  # for two gradients of the widest hidden layer


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
def hidden_layer(network: Network, index: int, rows: int) -> Floats:
    """Return the hidden layer number index (1, 2, ...), (rows, h), as a view."""
    start = 0
    for k in range(1, index):
        start += rows * network.sizes[k]
    width = network.sizes[index]
    return network.memory[start : start + rows * width].reshape(rows, width)


@compiled
def space_for(network: Network, index: int, rows: int) -> Floats:
    """Return space for the gradient of a hidden layer; neighbours never share it."""
    last = len(network.sizes) - 2
    start = 0 if (last - index) % 2 == 0 else network.space.shape[0] // 2
    width = network.sizes[index]
    return network.space[start : start + rows * width].reshape(rows, width)


# Forward


@compiled
def bias_relu(values: Floats, biases: Floats) -> None:
    """Add biases (h,) to values (n, h) and cut at zero, in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = values[i, j] + biases[j]
            values[i, j] = ZERO if value < ZERO else value


@compiled
def forward(network: Network, inputs: Floats, outputs: Floats) -> None:
    """Compute the outputs (rows, m) from inputs (rows, n)."""
    rows, last = inputs.shape[0], len(network.sizes) - 2
    below = inputs
    for index in range(last):
        weights, biases = layer(network.parameters, network.sizes, index)
        above = hidden_layer(network, index + 1, rows)
        product(below, weights, above)
        bias_relu(above, biases)
        below = above
    weights, biases = layer(network.parameters, network.sizes, last)
    product(below, weights, outputs)
    for i in range(rows):
        for j in range(outputs.shape[1]):
            outputs[i, j] += biases[j]


# Backward


@compiled
def relu_gradient(gradients: Floats, hidden: Floats, bias_gradient: Floats) -> None:
    """Zero gradients (n, h) where the unit was cut, in place, and sum them over rows."""
    bias_gradient[:] = ZERO
    for i in range(gradients.shape[0]):
        for j in range(gradients.shape[1]):
            gradient = gradients[i, j] if hidden[i, j] > ZERO else ZERO
            gradients[i, j] = gradient
            bias_gradient[j] += gradient


@compiled
def backward(
    network: Network, inputs: Floats, output_gradients: Floats, latent_gradients: Floats
) -> None:
    """Fill the network's gradient, given that of its outputs (rows, m).

    ``latent_gradients`` (rows, h) reach the last hidden layer otherwise; there may be no rows.
    """
    sizes, rows = network.sizes, inputs.shape[0]
    last = len(sizes) - 2
    up = output_gradients
    _, bias_gradient = layer(network.gradient, sizes, last)
    bias_gradient[:] = ZERO
    for i in range(rows):
        for j in range(up.shape[1]):
            bias_gradient[j] += up[i, j]
    for index in range(last, 0, -1):
        weights, _ = layer(network.parameters, sizes, index)
        weight_gradient, _ = layer(network.gradient, sizes, index)
        hidden = hidden_layer(network, index, rows)
        product_left_transposed(hidden, up, weight_gradient)
        down = space_for(network, index, rows)
        product_right_transposed(up, weights, down)
        if index == last and latent_gradients.shape[0] == rows:
            down += latent_gradients
        _, bias_gradient = layer(network.gradient, sizes, index - 1)
        relu_gradient(down, hidden, bias_gradient)
        up = down
    weight_gradient, _ = layer(network.gradient, sizes, 0)
    product_left_transposed(inputs, up, weight_gradient)


@compiled
def zero_where_cut(gradients: Floats, hidden: Floats, rows: Ints) -> None:
    """Zero gradients (k, h), which belong to some rows of hidden, where the unit was cut."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(gradients.shape[1]):
            gradients[k, j] = gradients[k, j] if hidden[i, j] > ZERO else ZERO


@compiled
def add_action_gradients(
    network: Network, rows: Ints, value_gradient: np.float32, action_gradients: Floats
) -> None:
    """Add the gradient of a critic's values of some rows to those of all actions (n, a).

    Only the rows where this critic decides need the way back, so only they take it; every value
    among them has the same gradient.
    """
    sizes, count, (n, a) = network.sizes, rows.shape[0], action_gradients.shape
    last = len(sizes) - 2
    head, _ = layer(network.parameters, sizes, last)
    head_weights = head.reshape(-1)
    up = space_for(network, last, count)
    for k in range(count):
        for j in range(up.shape[1]):
            up[k, j] = value_gradient * head_weights[j]
    zero_where_cut(up, hidden_layer(network, last, n), rows)
    for index in range(last - 1, 0, -1):
        weights, _ = layer(network.parameters, sizes, index)
        down = space_for(network, index, count)
        product_right_transposed(up, weights, down)
        zero_where_cut(down, hidden_layer(network, index, n), rows)
        up = down
    weights, _ = layer(network.parameters, sizes, 0)
    result = np.empty((count, a), np.float32)
    product_right_transposed(up, weights[sizes[0] - a :], result)
    for k in range(count):
        for j in range(a):
            action_gradients[rows[k], j] += result[k, j]


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
    gradients: Floats,
    first: Floats,
    second: Floats,
    scales: tuple[np.float32, np.float32],
) -> None:
    """Take one Adam step in place."""
    size, root = scales
    for i in range(parameters.shape[0]):
        gradient = gradients[i]
        mean = BETA1 * first[i] + REST1 * gradient
        square = BETA2 * second[i] + REST2 * gradient * gradient
        first[i] = mean
        second[i] = square
        parameters[i] -= size * mean / (np.sqrt(square) * root + ADAM_EPSILON)


@compiled
def polyak(targets: Floats, parameters: Floats, tau: np.float32) -> None:
    """Move targets a share tau towards the parameters, in place."""
    rest = ONE - tau
    for i in range(targets.shape[0]):
        targets[i] = rest * targets[i] + tau * parameters[i]
