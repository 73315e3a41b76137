"""The critics' side of an update, common to SAC and TD3."""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused.networks import (
    ZERO,
    Networks,
    Workspace,
    adam,
    add_action_gradients,
    backward,
    compiled,
    forward,
)
from frugalrl.agents.state import SMALLEST_ERROR, Floats, Inputs, Ints, State


@compiled
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


@compiled
def evaluate(
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


@compiled
def least(q: Floats, row: int, used: int) -> int:
    """Return which of the first critics says least of a row."""
    found = 0
    for c in range(1, used):
        if q[c, row] < q[found, row]:
            found = c
    return found


@compiled
def select_by_error(
    values: Floats, targets: Floats, uniforms: Floats, rows: Ints, weights: Floats
) -> None:
    """Draw rows with probability proportional to their absolute error, with replacement (LaBER).

    Weights mean(|error|) / |error| make the weighted loss an unbiased estimate of the mean.
    """
    m = targets.shape[0]
    cumulative = np.empty(m)
    total = 0.0
    for i in range(m):
        total += max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        cumulative[i] = total
    for k in range(rows.shape[0]):
        i = min(np.searchsorted(cumulative, uniforms[k] * total, side="right"), m - 1)
        rows[k] = i
        error = max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        weights[k] = np.float32(total / m) / error


@compiled
def choose(uniforms: Floats, critic: int, work: Workspace) -> tuple[Floats, Floats, Floats]:
    """Return LaBER's selection for one critic: its inputs (n, d + a), targets and weights (n,)."""
    n, width = uniforms.shape[0], work.inputs.shape[1]
    rows, weights = np.empty(n, np.int64), np.empty(n, np.float32)
    select_by_error(work.q[critic], work.targets, uniforms, rows, weights)
    inputs, targets = np.empty((n, width), np.float32), np.empty(n, np.float32)
    for k in range(n):
        for j in range(width):
            inputs[k, j] = work.inputs[rows[k], j]
        targets[k] = work.targets[rows[k]]
    return inputs, targets, weights


@compiled
def learn_critics(
    state: State, batch: Inputs, work: Workspace, rate: float, scale: float, errors: Floats
) -> float:
    """Take one Adam step of every critic towards work.targets.

    Fills ``errors`` (n,) with the mean absolute errors. The loss is ``scale`` times the mean
    squared error, summed over critics, and returned.
    """
    n, count = work.batch, work.q.shape[0]
    evaluate(work.critics, count, batch.observations, batch.actions, work)
    errors[:] = ZERO
    gradients = np.empty((n, 1), np.float32)  # of the values
    loss = 0.0
    for c in range(count):
        inputs, targets, weights = work.inputs, work.targets, batch.weights
        values = work.q[c, :n]
        if work.large:
            inputs, targets, weights = choose(batch.uniforms[c], c, work)
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


@compiled
def value_gradient(used: int, work: Workspace) -> float:
    """Fill action_gradients with the gradient of minus the mean of the least value; return it.

    ``evaluate`` has just left the values of n rows in q, and the critics' hidden layers.
    """
    n = work.batch
    work.action_gradients[:] = ZERO
    rows = np.empty(n, np.int64)
    total = 0.0
    for c in range(used):
        count = 0
        for i in range(n):
            if least(work.q, i, used) == c:
                rows[count] = i
                total += work.q[c, i]
                count += 1
        if count > 0:
            into, weight = work.action_gradients, np.float32(-1.0 / n)
            add_action_gradients(work.critics, c, rows[:count], weight, into)
    return total / n
