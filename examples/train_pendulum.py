"""Train SAC with a frugal buffer on Pendulum-v1, then use the policy.

    python examples/train_pendulum.py [directory]

Needs the extra `train` and takes well under a minute. Interrupt it with Ctrl-C and start it again:
it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import gymnasium

import frugalrl
from frugalrl.training import TrainingInterrupted, resume


def main(directory: str = "runs/pendulum-example", steps: int = 5_000) -> float:
    """Train or go on training, then play one episode; returns its reward."""
    run = Path(directory)
    config = frugalrl.TrainConfig(
        env="Pendulum-v1",
        algo="sac",
        admission=frugalrl.FrugalFilter(warmup_steps=2_000),
        steps=steps,
        final_episodes=10,
        seed=0,
        out=run,
    )
    try:
        if not (run / "config.json").is_file():
            frugalrl.train(config, say=print)
        elif not (run / "final.json").is_file():
            resume(run, say=print)
    except TrainingInterrupted:
        sys.exit(f"saved; run this again to go on from {run}")

    policy = frugalrl.load_policy(run)
    environment = gymnasium.make("Pendulum-v1")
    observation, _ = environment.reset(seed=7)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(policy(observation))
        total += float(reward)
        over = terminated or truncated
    print(f"one episode with the trained policy: {total:.1f}")
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="runs/pendulum-example")
    main(**vars(parser.parse_args()))
