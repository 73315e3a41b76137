"""Deciding about transitions, compiled: finite? which cell? dense there? whom to replace?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frugalrl.admission.density import (
    COUNT,
    ENOUGH,
    Phi,
    cell_mass,
    equivalent_slot,
    find_cell,
    insert,
    replace,
    room_for,
)
from frugalrl.admission.partition import Partition, cell_key
from frugalrl.admission.protocol import DROP, REPLACE, STORE
from frugalrl.admission.reward_tree import Mass

REFUSED = 3
"""The row holds NaN or infinity; nothing was done with it."""


class Rule(NamedTuple):
    """The filter's settings, as compiled functions see them."""

    mass: Mass
    density_threshold: float
    decay: float
    reward_scale: float
    replaces: bool

    def admitting_all(self) -> Rule:
        """The same, but every reward is new."""
        return self._replace(density_threshold=math.inf, decay=math.inf)


@njit(cache=True, nogil=True, error_model="numpy")
def _is_finite(observation: NDArray[np.float64], reward: float) -> bool:
    # x - x is 0 for finite x and NaN for all else, so one sum tells, without a branch a value.
    total = reward - reward
    for x in observation:
        total += x - x
    return total == 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def decide(
    phi: Phi,
    partition: Partition,
    rule: Rule,
    observations: NDArray[np.float64],
    rewards: NDArray[np.float64],
    free: NDArray[np.int64],
    taken: int,
    codes: NDArray[np.int8],
    slots: NDArray[np.int64],
    row: int,
) -> tuple[int, int, int, int]:
    """Decide about rows from `row` on, in order, writing `codes` and `slots`.

    Returns:
        The next undecided row; how many free slots are taken; what there is no room for (the next
        row was not touched); and the slot that wants the room. Stops after a STORE without a slot.
    """
    mass = rule.mass
    while row < len(rewards):
        slots[row] = -1
        if not _is_finite(observations[row], rewards[row]):
            codes[row] = REFUSED
            row += 1
            continue
        reward = rewards[row] / rule.reward_scale
        first, second = cell_key(partition, observations[row])
        cell = find_cell(phi, first, second)
        is_new = cell < 0
        if not is_new:
            count = phi.cells[cell, COUNT]
            limit = rule.density_threshold * math.exp(-count / rule.decay)
            is_new = cell_mass(phi, mass, cell, reward, limit) < limit
        if is_new:
            codes[row] = STORE
            if taken == len(free):
                return row + 1, taken, ENOUGH, -1
            slot = free[taken]
            shortage = room_for(phi, cell, slot)
            if shortage != ENOUGH:
                return row, taken, shortage, slot
            insert(phi, cell, first, second, slot, reward)
            slots[row] = slot
            taken += 1
        elif rule.replaces:
            codes[row] = REPLACE
            slot = equivalent_slot(phi, cell, reward, mass.half_width)
            shortage = room_for(phi, cell, slot)
            if shortage != ENOUGH:
                return row, taken, shortage, slot
            replace(phi, cell, slot, reward)
            slots[row] = slot
        else:
            codes[row] = DROP
        row += 1
    return row, taken, ENOUGH, -1


@njit(cache=True, nogil=True, error_model="numpy")
def density_at(
    phi: Phi, partition: Partition, rule: Rule, observation: NDArray[np.float64], reward: float
) -> float:
    """Reward density estimate of a reward in the cell of a state; 0 in an empty cell."""
    first, second = cell_key(partition, observation)
    cell = find_cell(phi, first, second)
    if cell < 0:
        return 0.0
    return cell_mass(phi, rule.mass, cell, reward / rule.reward_scale, math.nan)
