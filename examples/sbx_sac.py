"""SAC of SBX (Stable-Baselines3 in JAX) on MountainCarContinuous-v0 with a frugal buffer.

    python examples/sbx_sac.py

Needs the extra `sbx`: pip install ".[sbx]".
"""

from __future__ import annotations

import argparse

from sbx import SAC

from frugalrl.adapters.sb3 import FrugalCallback, FrugalReplayBuffer


def main(steps: int = 3_000, warmup_steps: int = 500, verbose: int = 1) -> SAC:
    """Train; the buffer class is the one for Stable-Baselines3."""
    model = SAC(
        "MlpPolicy",
        "MountainCarContinuous-v0",
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": warmup_steps},
        learning_starts=warmup_steps,
        train_freq=8,
        gradient_steps=4,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        verbose=verbose,
    )
    model.learn(steps, callback=FrugalCallback(), log_interval=1)
    stats = model.replay_buffer.stats
    print(f"{stats.offered} transitions offered: {stats.stored} stored, {stats.replaced} replaced")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--warmup-steps", type=int, default=500)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.warmup_steps)
