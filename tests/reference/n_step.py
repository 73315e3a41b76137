"""Transitions over n steps, the slow and obvious way: from the whole list of steps."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    observation: float
    action: float
    reward: float
    next_observation: float
    terminated: bool
    truncated: bool


def n_step_transitions(steps: list[Step], n: int, gamma: float) -> list[tuple]:
    """List the transitions of one environment that are complete, in the order of their first step.

    An episode also ends where the next step begins elsewhere.
    """
    made = []
    for first in range(len(steps)):
        total, last = 0.0, first
        for last in range(first, len(steps)):
            total += gamma ** (last - first) * steps[last].reward
            if last - first == n - 1 or is_over(steps, last):
                break
        else:
            continue  # the steps that follow are not known yet
        end = steps[last]
        jumped = is_over(steps, last) and not (end.terminated or end.truncated)
        cut_short = jumped and last - first < n - 1
        made.append(
            (
                steps[first].observation,
                steps[first].action,
                total,
                end.next_observation,
                end.terminated,
                end.truncated or cut_short,
                gamma ** (last - first + 1),
            )
        )
    return made


def is_over(steps: list[Step], index: int) -> bool:
    step = steps[index]
    if step.terminated or step.truncated:
        return True
    return index + 1 < len(steps) and steps[index + 1].observation != step.next_observation
