"""The configuration of a run that takes a moment, and what a filter of one's own needs."""

from __future__ import annotations

import numpy as np

from frugalrl.admission.protocol import Decisions
from frugalrl.training import TrainConfig

TINY = TrainConfig(
    env="FrugalPoint-v0",
    steps=240,
    learning_starts=60,
    batch_size=16,
    net_arch=(8, 8),
    eval_every=80,
    eval_episodes=2,
    final_episodes=2,
    log_every=50,
    checkpoint_every=100,
    tensorboard=False,
)


def take_slots(wanted, free) -> Decisions:
    """Decide as a filter of one's own: wanted rows get free slots, of which there are enough."""
    slots = np.full(len(wanted), -1)
    slots[wanted] = free[: wanted.sum()]
    return Decisions(wanted.astype(np.int8), slots)
