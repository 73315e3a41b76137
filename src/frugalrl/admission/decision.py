"""Deciding about transitions, compiled: finite? which cell? dense there? whom to replace?"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.density import (
    COUNT,
    ENOUGH,
    cell_mass,
    equivalent_slot,
    find_cell,
    insert,
    phi_at,
    replace,
    room_for,
)
from frugalrl.admission.forest import FURTHEST
from frugalrl.admission.lookahead import expect_insertion
from frugalrl.admission.partition import cell_key, partition_at
from frugalrl.admission.protocol import DROP, REPLACE, STORE
from frugalrl.admission.reward_leaf import Mass
from frugalrl.admission.settings import FrugalSettings

REFUSED = 3
"""The row holds NaN or infinity; nothing was done with it."""


class Rule(NamedTuple):
    """The filter's settings, as compiled functions see them."""

    mass: Mass
    density_threshold: float
    decay: float
    reward_scale: float
    replaces: bool

    @classmethod
    def of(cls, settings: FrugalSettings, reward_scale: float) -> Rule:
        """Take what the compiled functions need from the settings."""
        return cls(
            mass=Mass(settings.kernel_code, float(settings.bandwidth), float(settings.half_width)),
            density_threshold=float(settings.density_threshold),
            decay=float(settings.decay),
            reward_scale=reward_scale,
            replaces=settings.on_equivalent == "replace",
        )

    def limits(self) -> NDArray[np.float64]:
        """All numbers in one array, which enters compiled code faster."""
        return np.array([*self.mass, *self[1:]], dtype=np.float64)

    def admitting_all(self) -> Rule:
        """The same, but every reward is new."""
        return self._replace(density_threshold=math.inf, decay=math.inf)


@compiled
def _is_finite(observation: NDArray[np.float64], reward: Real) -> bool:
    # x - x is 0 for finite x and NaN for all else, so one sum tells, without a branch a value.
    total = reward - reward
    for x in observation:
        total += x - x
    return bool(total == 0.0)


@inlined
def _scaled(reward: Real, scale: Real) -> Real:
    """A reward in units of the scale, as phi holds it."""
    return min(max(reward / scale, -FURTHEST), FURTHEST)


@compiled
def decide(
    table: Any,
    grid: Any,
    last_bin: Real,
    limits: NDArray[np.float64],
    observations: NDArray[np.float64],
    rewards: NDArray[np.float64],
    free: NDArray[np.int64],
    taken: Whole,
    codes: NDArray[np.int8],
    slots: NDArray[np.int64],
    row: Whole,
    refused: Whole,
) -> tuple[Whole, Whole, Whole, Whole, Whole]:
    """Decide about rows from `row` on, in order, writing `codes` and `slots`.

    `table` and `grid` tell where the arrays of Phi and Partition lie; `limits` are a Rule's.

    Returns:
        The next undecided row; how many free slots are taken and rows refused, counted on from what
        was given; what there is no room for (the next row was not touched); and the slot that wants
        the room. Stops after a STORE without a slot.
    """
    phi = phi_at(table)
    partition = partition_at(grid, last_bin)
    mass = Mass(int(limits[0]), limits[1], limits[2])
    rule = Rule(mass, limits[3], limits[4], limits[5], limits[6] > 0.0)
    next_first = next_second = np.uint64(0)
    foreseen = np.int64(-1)  # the next row, when its key is known
    while row < len(rewards):
        slots[row] = -1
        if foreseen == row:
            first, second = next_first, next_second
        elif _is_finite(observations[row], rewards[row]):
            first, second = cell_key(partition, observations[row])
        else:
            codes[row] = REFUSED
            refused += 1
            row += 1
            continue
        reward = _scaled(rewards[row], rule.reward_scale)
        cell = find_cell(phi, first, second)
        is_new = cell < 0
        if not is_new:
            count = phi.cells[cell, COUNT]
            limit = rule.density_threshold * math.exp(-count / rule.decay)
            is_new = cell_mass(table, mass, cell, reward, limit) < limit
        equivalent = np.int64(-1)
        if not is_new and rule.replaces:
            equivalent = equivalent_slot(table, cell, reward, mass.half_width)
        following = row + 1
        if following < len(rewards) and _is_finite(observations[following], rewards[following]):
            foreseen = following
            next_first, next_second = cell_key(partition, observations[following])
            next_reward = _scaled(rewards[following], rule.reward_scale)
            expect_insertion(table, next_first, next_second, next_reward)
        if is_new:
            codes[row] = STORE
            if taken == len(free):
                return row + 1, taken, refused, ENOUGH, -1
            slot = free[taken]
            shortage = room_for(phi, cell, slot)
            if shortage != ENOUGH:
                return row, taken, refused, shortage, slot
            insert(table, cell, first, second, slot, reward)
            slots[row] = slot
            taken += 1
        elif rule.replaces:
            codes[row] = REPLACE
            shortage = room_for(phi, cell, equivalent)
            if shortage != ENOUGH:
                return row, taken, refused, shortage, equivalent
            replace(table, cell, equivalent, reward)
            slots[row] = equivalent
        else:
            codes[row] = DROP
        row += 1
    return row, taken, refused, ENOUGH, -1


@compiled
def density_at(
    table: Any,
    grid: Any,
    last_bin: Real,
    mass: Mass,
    observation: NDArray[np.float64],
    reward: Real,
    scale: Real,
) -> Real:
    """Reward density estimate of a reward in the cell of a state; 0 in an empty cell."""
    phi = phi_at(table)
    first, second = cell_key(partition_at(grid, last_bin), observation)
    cell = find_cell(phi, first, second)
    if cell < 0:
        return 0.0
    return cell_mass(table, mass, cell, _scaled(reward, scale), math.nan)
