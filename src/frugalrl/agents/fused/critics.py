"""The critics' side of an update, common to SAC and TD3."""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.networks import (
    ZERO,
    adam,
    adam_scales,
    add_action_gradients,
    backward,
    forward,
)
from frugalrl.agents.fused.scratch import Constants, Scratch, critic_network
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
    critics: Floats,
    used: int,
    observations: Floats,
    actions: Floats,
    scratch: Scratch,
    constants: Constants,
) -> None:
    """Compute the values that the first critics give to rows of actions into scratch.q."""
    rows, d = observations.shape
    inputs = scratch.inputs[:rows]
    for i in range(rows):
        for j in range(d):
            inputs[i, j] = observations[i, j]
        for j in range(actions.shape[1]):
            inputs[i, d + j] = actions[i, j]
    for c in range(used):
        values = scratch.q[c, :rows].reshape(rows, 1)
        forward(critic_network(critics, c, scratch, constants), inputs, values)


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
def choose(uniforms: Floats, index: int, scratch: Scratch) -> None:
    """Gather LaBER's selection for one critic, whose values of the large batch are in q."""
    rows = scratch.rows
    select_by_error(scratch.q[index], scratch.targets, uniforms, rows, scratch.chosen_weights)
    for k in range(rows.shape[0]):
        for j in range(scratch.inputs.shape[1]):
            scratch.chosen_inputs[k, j] = scratch.inputs[rows[k], j]
        scratch.chosen_targets[k] = scratch.targets[rows[k]]


@compiled
def learn_critics(
    state: State,
    batch: Inputs,
    scratch: Scratch,
    constants: Constants,
    rate: float,
    scale: float,
    errors: Floats,
) -> float:
    """Take one Adam step of every critic towards scratch.targets.

    Args:
        state: Changed in place.
        batch: One update's data.
        scratch: Working space.
        constants: Shapes and settings.
        rate: Learning rate.
        scale: Of the mean squared error.
        errors: Filled with the mean absolute errors (n,).

    Returns:
        The loss, summed over critics.
    """
    n = constants.batch
    evaluate(
        state.critics, constants.critics, batch.observations, batch.actions, scratch, constants
    )
    errors[:] = ZERO
    loss = 0.0
    for c in range(constants.critics):
        critic = critic_network(state.critics, c, scratch, constants)
        inputs, targets, weights = scratch.inputs, scratch.targets, batch.weights
        values = scratch.q[c, :n]
        if constants.large:
            choose(batch.uniforms[c], c, scratch)
            inputs, targets = scratch.chosen_inputs, scratch.chosen_targets
            weights = scratch.chosen_weights
            forward(critic, inputs, values.reshape(n, 1))
        total = 0.0
        for i in range(n):
            error = values[i] - targets[i]
            weighted = weights[i] * error
            total += weighted * error
            scratch.q_gradients[i] = np.float32(2 * scale / n) * weighted
            errors[i] += abs(error) / np.float32(constants.critics)
        backward(critic, inputs, scratch.q_gradients.reshape(n, 1), scratch.latent_gradients[:0])
        loss += total / n * scale
    adam(
        state.critics,
        scratch.critic_gradients,
        state.critics_first,
        state.critics_second,
        adam_scales(state.updates[0], rate),
    )
    return loss


@compiled
def least(q: Floats, row: int, used: int) -> int:
    """Return which of the first critics says least of a row."""
    found = 0
    for c in range(1, used):
        if q[c, row] < q[found, row]:
            found = c
    return found


@compiled
def value_gradient(critics: Floats, used: int, scratch: Scratch, constants: Constants) -> float:
    """Fill action_gradients with the gradient of minus the mean of the least value.

    Args:
        critics: Their parameters.
        used: How many of them take part.
        scratch: Has the values of n rows in q, the hidden layers in critic_memory.
        constants: Shapes and settings.

    Returns:
        The mean of the least value.
    """
    n = constants.batch
    scratch.action_gradients[:] = ZERO
    total = 0.0
    for c in range(used):
        count = 0
        for i in range(n):
            if least(scratch.q, i, used) == c:
                scratch.rows[count] = i
                total += scratch.q[c, i]
                count += 1
        if count > 0:
            add_action_gradients(
                critic_network(critics, c, scratch, constants),
                scratch.rows[:count],
                np.float32(-1.0 / n),
                scratch.action_gradients,
            )
    return total / n
