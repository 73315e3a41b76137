"""A file whose filter does not belong to what is stored is refused, whatever its checksum says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl import FrugalFilter, ReplayBuffer

SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)


def saved(steps: int) -> dict[str, Any]:
    """State of a buffer after some steps, of which 100 are the warm-up."""
    buffer = ReplayBuffer(
        200,
        observation_space=SPACE,
        action_space=SPACE,
        admission=FrugalFilter(warmup_steps=100, bins=3),
    )
    generator = np.random.Generator(np.random.PCG64(0))
    for _ in range(steps):
        state, next_state = generator.uniform(-1, 1, size=(2, 1, 2))
        buffer.add(state, state, 9 * generator.normal(size=1), next_state, [False], [False])
    return buffer.state_dict()


def forget_all(phi: dict[str, Any]) -> None:
    phi["links"][:] = -1


def lead_outside(phi: dict[str, Any]) -> None:
    phi["links"][:, 1] = 2**30


@pytest.mark.parametrize("damage", [forget_all, lead_outside])
def test_a_memory_of_other_rewards_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    state = saved(250)
    damage(state["admission"]["state"]["phi"])
    with pytest.raises(ValueError, match="damaged"):
        ReplayBuffer.from_state_dict(state)


@pytest.mark.parametrize("steps", [50, 250])
def test_the_filter_of_another_buffer_is_refused(steps: int) -> None:
    state, other = saved(steps), saved(steps - 7)
    if steps > 200:  # full: one slot fewer there
        other = saved(150)
    state["admission"] = other["admission"]
    with pytest.raises(ValueError, match="does not fit what is stored"):
        ReplayBuffer.from_state_dict(state)


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("dimensions", [1_000_000], "important dimension"),
        ("dimensions", [0, 1, 1, 1], "one length"),
        ("width", [0.0], "width"),
        ("low", [np.nan], "width"),
    ],
)
def test_a_partition_that_leads_outside_is_refused(
    name: str, values: list[float], complaint: str
) -> None:
    state = saved(250)
    partition = state["admission"]["state"]["partition"]
    for key in partition:
        partition[key] = partition[key][:1]
    partition[name] = np.array(values, dtype=partition[name].dtype)
    with pytest.raises(ValueError, match=complaint):
        ReplayBuffer.from_state_dict(state)


def test_a_warm_up_with_a_slot_twice_is_refused() -> None:
    state = saved(50)
    state["admission"]["state"]["warmup"]["slots"][3] = 4
    with pytest.raises(ValueError, match="a slot twice"):
        ReplayBuffer.from_state_dict(state)
