"""Networks in flat vectors: matrix products by BLAS, forward, backward, Adam.

And the critics' side of an update, which SAC and TD3 have in common.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from frugalrl.agents.state import SMALLEST_ERROR, Floats, Inputs, Ints, State
from frugalrl.compiling import compiled_with

# Multiply-adds may be contracted; NaN stays NaN. Sums may not be reordered: the compiler's order
# may change where a function is inlined, and then the process that compiles would round otherwise
# than those that find compiled code on disk. Long sums are left to BLAS, or go row by row, which
# vectorises as it is.
compiled_fused = compiled_with(nogil=True, fastmath={"contract", "nsz", "arcp"})
ZERO, ONE = np.float32(0), np.float32(1)
BETA1, BETA2, ADAM_EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
REST1, REST2 = np.float32(1 - 0.9), np.float32(1 - 0.999)


_SINGLE, _AS_IS, _TRANSPOSED = ord("s"), ord("n"), ord("t")
_gemm: Any = types.ExternalFunction(
    "numba_xxgemm",
    # Precision, whether to transpose the first and the second; m, n, k, address of alpha, first and
    # its stride, second and its stride, address of beta, result and its stride.
    types.intc(*[types.char] * 3, *[types.intp] * 11),
)

# A constant of the compiled code: an array made in `product` might be gone before BLAS reads it,
# since all that is left of it there is its address.
_ONE_AND_ZERO = np.array([1.0, 0.0], np.float32)


@compiled_fused
def product(
    left: Floats,
    right: Floats,
    out: Floats,
    left_transposed: bool = False,
    right_transposed: bool = False,
) -> None:
    """Compute out (m, n) = left @ right by BLAS, where each may have to be transposed first.

    ``np.dot`` would do the same, but brings so much code to every call that compiling an update
    takes twice as long. This calls what ``np.dot`` calls in the end.
    """
    one = _ONE_AND_ZERO.ctypes.data
    n, m = out.shape
    if m and n:
        # Column-major BLAS sees every array transposed: out.T = right.T @ left.T.
        _gemm(
            _SINGLE,
            _TRANSPOSED if right_transposed else _AS_IS,
            _TRANSPOSED if left_transposed else _AS_IS,
            m,
            n,
            left.shape[0] if left_transposed else left.shape[1],
            one,
            right.ctypes.data,
            right.shape[1],
            left.ctypes.data,
            left.shape[1],
            one + 4,
            out.ctypes.data,
            m,
        )


class Networks(NamedTuple):
    """Networks of one shape, and where their passes leave what they compute."""

    sizes: Ints  # widths, inputs and outputs included
    parameters: Floats  # (networks, parameters of one)
    gradients: Floats  # of the parameters, filled by backward passes
    hidden: Floats  # (networks, hidden layers, ...) activations of the last forward pass
    scratch: Floats  # (2, ...) for two gradients of the widest hidden layer


class Workspace(NamedTuple):
    """What an update works with but the state and the data: networks, arrays and settings.

    It is made for batches of m rows, of which n are learned from.
    """

    actor: Networks
    critics: Networks
    target_actor: Networks  # TD3's; SAC has none, so its actor
    target_critics: Networks
    inputs: Floats  # (m, d + a) observations and actions
    outputs: Floats  # (m, actor outputs)
    actions: Floats  # (m, a) next actions, then (n, a) of the policy now
    slopes: Floats  # (m, a) of tanh there
    log_prob: Floats  # (m,)
    q: Floats  # (critics, m)
    targets: Floats  # (m,) what the critics should say
    action_gradients: Floats  # (n, a)
    output_gradients: Floats  # (n, actor outputs)
    matrix: Floats  # (h, a) gSDE's exploration matrix
    variances: Floats  # (h, a) squares of gSDE's standard deviations
    deviation: Floats  # (m, a) what the matrix adds to the mean
    variance: Floats  # (m, a) of that
    latent_gradients: Floats  # (n, h) with gSDE, else (0, h)
    squares: Floats  # (m, h) with gSDE, else (0, h)
    batch: int  # n
    tau: np.float32
    sde: bool
    learn_ent_coef: bool
    ent_coef: np.float32  # unless learned
    target_entropy: float
    target_update_interval: int
    policy_delay: int
    target_noise: np.float32
    target_noise_clip: np.float32


@compiled_fused
def layer(flat: Floats, sizes: Ints, index: int) -> tuple[Floats, Floats]:
    """Return the weights (n, m) and biases (m,) of one layer, as views."""
    start = 0
    for k in range(index):
        start += (sizes[k] + 1) * sizes[k + 1]
    n, m = sizes[index], sizes[index + 1]
    middle = start + n * m
    return flat[start:middle].reshape(n, m), flat[middle : middle + m]


@compiled_fused
def hidden_layer(networks: Networks, which: int, index: int, rows: int) -> Floats:
    """Return a network's hidden layer number index (1, 2, ...), (rows, h), as a view."""
    width = networks.sizes[index]
    return networks.hidden[which, index - 1, : rows * width].reshape(rows, width)


@compiled_fused
def scratch_layer(networks: Networks, index: int, rows: int) -> Floats:
    """Return memory for the gradient of a hidden layer; neighbours never share it."""
    width = networks.sizes[index]
    return networks.scratch[index % 2, : rows * width].reshape(rows, width)


@compiled_fused
def bias_relu(values: Floats, biases: Floats) -> None:
    """Add biases (h,) to values (n, h) and cut at zero, in place."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = values[i, j] + biases[j]
            values[i, j] = ZERO if value < ZERO else value


@compiled_fused
def forward(networks: Networks, which: int, inputs: Floats, outputs: Floats) -> None:
    """Compute a network's outputs (rows, m) from inputs (rows, n)."""
    rows, last = inputs.shape[0], len(networks.sizes) - 2
    parameters = networks.parameters[which]
    below = inputs
    for index in range(last):
        weights, biases = layer(parameters, networks.sizes, index)
        above = hidden_layer(networks, which, index + 1, rows)
        product(below, weights, above)
        bias_relu(above, biases)
        below = above
    weights, biases = layer(parameters, networks.sizes, last)
    product(below, weights, outputs)
    outputs += biases


@compiled_fused
def relu_gradient(gradients: Floats, hidden: Floats, bias_gradient: Floats) -> None:
    """Zero gradients (n, h) where the unit was cut, in place, and sum them over rows."""
    bias_gradient[:] = ZERO
    for i in range(gradients.shape[0]):
        for j in range(gradients.shape[1]):
            gradient = gradients[i, j] if hidden[i, j] > ZERO else ZERO
            gradients[i, j] = gradient
            bias_gradient[j] += gradient


@compiled_fused
def backward(
    networks: Networks,
    which: int,
    inputs: Floats,
    output_gradients: Floats,
    latent_gradients: Floats,
) -> None:
    """Fill a network's gradient, given that of its outputs (rows, m).

    ``latent_gradients`` (rows, h) reach the last hidden layer otherwise; there may be no rows.
    """
    sizes, rows = networks.sizes, inputs.shape[0]
    parameters, gradients = networks.parameters[which], networks.gradients[which]
    last = len(sizes) - 2
    up = output_gradients
    _, bias_gradient = layer(gradients, sizes, last)
    bias_gradient[:] = ZERO
    for i in range(rows):
        for j in range(up.shape[1]):
            bias_gradient[j] += up[i, j]
    for index in range(last, 0, -1):
        weights, _ = layer(parameters, sizes, index)
        weight_gradient, _ = layer(gradients, sizes, index)
        hidden = hidden_layer(networks, which, index, rows)
        product(hidden, up, weight_gradient, left_transposed=True)
        down = scratch_layer(networks, index, rows)
        product(up, weights, down, right_transposed=True)
        if index == last and latent_gradients.shape[0] == rows:
            down += latent_gradients
        _, bias_gradient = layer(gradients, sizes, index - 1)
        relu_gradient(down, hidden, bias_gradient)
        up = down
    weight_gradient, _ = layer(gradients, sizes, 0)
    product(inputs, up, weight_gradient, left_transposed=True)


@compiled_fused
def zero_where_cut(gradients: Floats, hidden: Floats, rows: Ints) -> None:
    """Zero gradients (k, h), which belong to some rows of hidden, where the unit was cut."""
    for k in range(rows.shape[0]):
        i = rows[k]
        for j in range(gradients.shape[1]):
            gradients[k, j] = gradients[k, j] if hidden[i, j] > ZERO else ZERO


@compiled_fused
def add_action_gradients(
    networks: Networks, which: int, rows: Ints, value_gradient: np.float32, into: Floats
) -> None:
    """Add the gradient of a critic's values of some rows to those of all actions, into (n, a).

    Only the rows where this critic decides need the way back, so only they take it; every value
    among them has the same gradient.
    """
    sizes, count, (n, a) = networks.sizes, rows.shape[0], into.shape
    parameters, last = networks.parameters[which], len(networks.sizes) - 2
    head, _ = layer(parameters, sizes, last)
    head_weights = head.reshape(-1)
    up = scratch_layer(networks, last, count)
    for k in range(count):
        for j in range(up.shape[1]):
            up[k, j] = value_gradient * head_weights[j]
    zero_where_cut(up, hidden_layer(networks, which, last, n), rows)
    for index in range(last - 1, 0, -1):
        weights, _ = layer(parameters, sizes, index)
        down = scratch_layer(networks, index, count)
        product(up, weights, down, right_transposed=True)
        zero_where_cut(down, hidden_layer(networks, which, index, n), rows)
        up = down
    weights, _ = layer(parameters, sizes, 0)
    result = np.empty((count, a), np.float32)
    product(up, weights[sizes[0] - a :], result, right_transposed=True)
    for k in range(count):
        for j in range(a):
            into[rows[k], j] += result[k, j]


@compiled_fused
def adam(
    parameters: Floats, gradients: Floats, first: Floats, second: Floats, step: int, rate: float
) -> None:
    """Take Adam's step number 1, 2, ... in place."""
    # Both averages begin at zero; these correct for that.
    size = np.float32(rate / (1 - 0.9**step))
    root = np.float32(1 / math.sqrt(1 - 0.999**step))
    for i in range(parameters.shape[0]):
        gradient = gradients[i]
        mean = BETA1 * first[i] + REST1 * gradient
        square = BETA2 * second[i] + REST2 * gradient * gradient
        first[i] = mean
        second[i] = square
        parameters[i] -= size * mean / (np.sqrt(square) * root + ADAM_EPSILON)


@compiled_fused
def polyak(targets: Floats, parameters: Floats, tau: np.float32) -> None:
    """Move targets a share tau towards the parameters, in place."""
    rest = ONE - tau
    for i in range(targets.shape[0]):
        targets[i] = rest * targets[i] + tau * parameters[i]


@compiled_fused
def one_update(inputs: Inputs, k: int) -> Inputs:
    """Return the data of one of K updates, as views."""
    return Inputs(
        inputs.observations[k],
        inputs.actions[k],
        inputs.rewards[k],
        inputs.next_observations[k],
        inputs.discounts[k],
        inputs.weights[k],
        inputs.noise[k],
        inputs.uniforms[k],
    )


@compiled_fused
def evaluate_critics(
    critics: Networks, used: int, observations: Floats, actions: Floats, work: Workspace
) -> None:
    """Compute the values that the first critics give to rows of actions into work.q."""
    rows, d = observations.shape
    inputs = work.inputs[:rows]
    for i in range(rows):
        for j in range(d):
            inputs[i, j] = observations[i, j]
        for j in range(actions.shape[1]):
            inputs[i, d + j] = actions[i, j]
    for c in range(used):
        forward(critics, c, inputs, work.q[c, :rows].reshape(rows, 1))


@compiled_fused
def least_critic(q: Floats, row: int, used: int) -> int:
    """Return which of the first critics says least of a row."""
    found = 0
    for c in range(1, used):
        if q[c, row] < q[found, row]:
            found = c
    return found


@compiled_fused
def compute_targets(batch: Inputs, ent_coef: np.float32, work: Workspace) -> None:
    """Fill work.targets with what the critics should say: reward plus discounted soft value.

    The next actions are in work.actions, their log-probabilities, which TD3 leaves at zero, in
    work.log_prob.
    """
    count = work.q.shape[0]
    evaluate_critics(work.target_critics, count, batch.next_observations, work.actions, work)
    for i in range(work.targets.shape[0]):
        value = work.q[least_critic(work.q, i, count), i]
        soft = value - ent_coef * work.log_prob[i]
        work.targets[i] = batch.rewards[i] + batch.discounts[i] * soft


@compiled_fused
def select_by_error(values: Floats, targets: Floats, uniforms: Floats) -> tuple[Ints, Floats]:
    """Draw rows (n,) with probability proportional to their absolute error (m,) (LaBER).

    Their loss weights mean(|error|) / |error| (n,), which are returned too, make the weighted loss
    an unbiased estimate of the large batch's mean loss.
    """
    m, n = targets.shape[0], uniforms.shape[0]
    cumulative, rows, weights = np.empty(m), np.empty(n, np.int64), np.empty(n, np.float32)
    total = 0.0
    for i in range(m):
        total += max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        cumulative[i] = total
    for k in range(n):
        i = min(np.searchsorted(cumulative, uniforms[k] * total, side="right"), m - 1)
        rows[k] = i
        error = max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        weights[k] = np.float32(total / m) / error
    return rows, weights


@compiled_fused
def learn_critics(
    state: State, batch: Inputs, work: Workspace, rate: float, scale: float, errors: Floats
) -> float:
    """Take one Adam step of every critic towards work.targets.

    Fills ``errors`` (n,) with the mean absolute errors. The loss is ``scale`` times the mean
    squared error, summed over critics, and returned.
    """
    n, count = work.batch, work.q.shape[0]
    evaluate_critics(work.critics, count, batch.observations, batch.actions, work)
    errors[:] = ZERO
    gradients = np.empty((n, 1), np.float32)  # of the values
    loss = 0.0
    for c in range(count):
        inputs, targets, weights = work.inputs, work.targets, batch.weights
        values = work.q[c, :n]
        if batch.uniforms.size:
            rows, weights = select_by_error(work.q[c], work.targets, batch.uniforms[c])
            inputs, targets = work.inputs[rows], work.targets[rows]
            forward(work.critics, c, inputs, values.reshape(n, 1))
        total = 0.0
        for i in range(n):
            error = values[i] - targets[i]
            weighted = weights[i] * error
            total += weighted * error
            gradients[i, 0] = np.float32(2 * scale / n) * weighted
            errors[i] += abs(error) / np.float32(count)
        backward(work.critics, c, inputs, gradients, work.latent_gradients[:0])
        loss += total / n * scale
    gradient, step = work.critics.gradients.reshape(-1), state.updates[0]
    adam(state.critics, gradient, state.critics_first, state.critics_second, step, rate)
    return loss


@compiled_fused
def value_of_actions(used: int, observations: Floats, actions: Floats, work: Workspace) -> float:
    """Return the mean of the least value that the first critics give to n rows of actions.

    Fills action_gradients with the gradient of minus that mean.
    """
    evaluate_critics(work.critics, used, observations, actions, work)
    n = work.batch
    work.action_gradients[:] = ZERO
    rows = np.empty(n, np.int64)
    total = 0.0
    for c in range(used):
        count = 0
        for i in range(n):
            if least_critic(work.q, i, used) == c:
                rows[count] = i
                total += work.q[c, i]
                count += 1
        if count > 0:
            into, weight = work.action_gradients, np.float32(-1.0 / n)
            add_action_gradients(work.critics, c, rows[:count], weight, into)
    return total / n
