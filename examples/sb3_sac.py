"""SAC of Stable-Baselines3 on MountainCarContinuous-v0 with a frugal buffer.

    python examples/sb3_sac.py

Needs the extra `sb3`: pip install ".[sb3]".
"""

from __future__ import annotations

import argparse

import torch
from stable_baselines3 import SAC

from frugalrl.adapters.sb3 import FrugalCallback, FrugalReplayBuffer


def main(steps: int = 3_000, warmup_steps: int = 500, verbose: int = 1) -> SAC:
    """Train, with the admission statistics in Stable-Baselines3's own log."""
    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy",
        "MountainCarContinuous-v0",
        replay_buffer_class=FrugalReplayBuffer,
        # FrugalFilter's arguments; the paper's warm-up of 10,000 steps is for longer runs.
        replay_buffer_kwargs={"warmup_steps": warmup_steps, "on_equivalent": "replace"},
        learning_starts=warmup_steps,
        train_freq=8,
        gradient_steps=4,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        verbose=verbose,
        device="cpu",
    )
    model.learn(steps, callback=FrugalCallback(), log_interval=1)
    stats = model.replay_buffer.stats
    print(f"{stats.offered} transitions offered: {stats.stored} stored, {stats.replaced} replaced")
    print(f"{model.replay_buffer.nbytes / 1e3:.0f} kB")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--warmup-steps", type=int, default=500)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.warmup_steps)
