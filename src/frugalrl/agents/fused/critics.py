"""The critics' side of an update, common to SAC and TD3."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.networks import (
    ZERO,
    action_gradient,
    adam,
    adam_scales,
    backward_critic,
    forward_critic,
    side_by_side,
)
from frugalrl.agents.fused.scratch import Numbers, Scratch
from frugalrl.agents.state import SMALLEST_ERROR, Floats, Ints, State


@compiled
def one_of(flat: Floats, index: int, count: int) -> Floats:
    """Return the parameters of one of several networks of the same size, as a view."""
    size = flat.shape[0] // count
    return flat[index * size : (index + 1) * size]


@compiled
def evaluate(critics: Floats, inputs: Floats, scratch: Scratch, numbers: Numbers) -> None:
    """Compute every critic's values of inputs (rows, d + a) into scratch.q."""
    for c in range(numbers.critics):
        forward_critic(
            one_of(critics, c, numbers.critics),
            numbers.critic_sizes,
            inputs,
            scratch.critic_memory[c],
            scratch.q[c, : inputs.shape[0]],
        )


@compiled
def first_above(sorted_values: NDArray[np.float64], value: float) -> int:
    """Return the first index whose value is greater, or the last index."""
    low, high = 0, sorted_values.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def select_by_error(
    values: Floats, targets: Floats, uniforms: Floats, rows: Ints, weights: Floats
) -> None:
    """Draw rows with probability proportional to their absolute error, with replacement.

    Weights mean(|error|) / |error| make the weighted loss an unbiased estimate of the mean.
    """
    m = targets.shape[0]
    cumulative = np.empty(m)
    total = 0.0
    for i in range(m):
        total += max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        cumulative[i] = total
    for k in range(rows.shape[0]):
        i = first_above(cumulative, uniforms[k] * total)
        rows[k] = i
        error = max(abs(values[i] - targets[i]), SMALLEST_ERROR)
        weights[k] = np.float32(total / m) / error


@compiled
def choose(uniforms: Floats, index: int, scratch: Scratch) -> None:
    """Gather LaBER's selection for one critic, whose values of the large batch are in q."""
    m = scratch.targets.shape[0]
    rows = scratch.rows
    select_by_error(scratch.q[index, :m], scratch.targets, uniforms, rows, scratch.chosen_weights)
    for k in range(rows.shape[0]):
        for j in range(scratch.inputs.shape[1]):
            scratch.chosen_inputs[k, j] = scratch.inputs[rows[k], j]
        scratch.chosen_targets[k] = scratch.targets[rows[k]]


@compiled
def learn_one(
    critic: Floats,
    slopes: Floats,
    inputs: Floats,
    targets: Floats,
    weights: Floats,
    index: int,
    scratch: Scratch,
    numbers: Numbers,
    half: bool,
    errors: Floats,
) -> float:
    """Compute one critic's slopes; return its loss. Adds its share to the absolute errors."""
    rows = inputs.shape[0]
    values = scratch.q[index, :rows]
    memory = scratch.critic_memory[index]
    sizes = numbers.critic_sizes
    forward_critic(critic, sizes, inputs, memory, values)
    scale = np.float32((1.0 if half else 2.0) / rows)
    loss = 0.0
    for i in range(rows):
        error = values[i] - targets[i]
        weighted = weights[i] * error
        loss += weighted * error
        scratch.q_slopes[i] = scale * weighted
        errors[i] += abs(error) / np.float32(numbers.critics)
    backward_critic(critic, slopes, sizes, inputs, memory, scratch.gradients, scratch.q_slopes)
    return float(loss / rows * (0.5 if half else 1.0))


@compiled
def learn_critics(
    state: State,
    data: tuple[Floats, Floats, Floats, Floats],
    scratch: Scratch,
    numbers: Numbers,
    rate: float,
    half: bool,
    errors: Floats,
) -> float:
    """Take one Adam step of every critic towards scratch.targets; return the loss.

    ``data`` is (observations, actions, weights, uniforms) of one update; ``half`` halves the loss.
    """
    observations, actions, weights, uniforms = data
    side_by_side(observations, actions, scratch.inputs)
    for i in range(errors.shape[0]):
        errors[i] = ZERO
    loss = 0.0
    if numbers.large:
        evaluate(state.critics, scratch.inputs, scratch, numbers)
    for c in range(numbers.critics):
        critic = one_of(state.critics, c, numbers.critics)
        slopes = one_of(scratch.critic_slopes, c, numbers.critics)
        rows, targets, row_weights = scratch.inputs, scratch.targets, weights
        if numbers.large:
            choose(uniforms[c], c, scratch)
            rows, targets = scratch.chosen_inputs, scratch.chosen_targets
            row_weights = scratch.chosen_weights
        loss += learn_one(
            critic, slopes, rows, targets, row_weights, c, scratch, numbers, half, errors
        )
    adam(
        state.critics,
        scratch.critic_slopes,
        state.critics_first,
        state.critics_second,
        adam_scales(state.updates[0], rate),
    )
    return loss


@compiled
def value_gradient(critics: Floats, scratch: Scratch, numbers: Numbers, used: int) -> float:
    """Fill action_slopes with the gradient of minus the mean of the least value.

    Args:
        critics: Their parameters.
        scratch: Has the values of n rows in q, the hidden layers in critic_memory.
        numbers: Settings.
        used: How many of the critics take part.

    Returns:
        The mean of the least value.
    """
    n = numbers.batch
    scratch.action_slopes[:] = ZERO
    total = 0.0
    for c in range(used):
        count = 0
        for i in range(n):
            least = 0
            for other in range(1, used):
                if scratch.q[other, i] < scratch.q[least, i]:
                    least = other
            if least == c:
                scratch.rows[count] = i
                total += scratch.q[c, i]
                count += 1
        if count > 0:
            action_gradient(
                one_of(critics, c, numbers.critics),
                numbers.critic_sizes,
                scratch.critic_memory[c],
                n,
                scratch.gradients,
                np.float32(-1.0 / n),
                scratch.rows[:count],
                scratch.action_slopes,
            )
    return total / n
