"""The configuration of a run that takes a moment."""

from __future__ import annotations

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
