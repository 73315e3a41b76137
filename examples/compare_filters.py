"""Show what different filters keep of one and the same stream of random steps.

    python examples/compare_filters.py [environment] [steps]

Needs only the core of Frugal; MuJoCo's environments need the extra `mujoco`.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

import frugalrl


def transitions(env_id: str, steps: int, seed: int = 0):
    """Yield (observation, action, reward, next observation, terminated, truncated)."""
    env = gymnasium.make(env_id)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    for _ in range(steps):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        yield observation, action, reward, following, terminated, truncated
        observation = env.reset()[0] if terminated or truncated else following
    env.close()


def main(
    env_id: str = "MountainCarContinuous-v0", steps: int = 20_000
) -> dict[str, frugalrl.ReplayBuffer]:
    """Fill one buffer for each filter with the same transitions and print a table."""
    env = gymnasium.make(env_id)
    warmup = max(steps // 10, int(np.prod(env.observation_space.shape)))
    filters = {
        "keep all": frugalrl.AdmitAll(),
        "frugal, replace": frugalrl.FrugalFilter(warmup_steps=warmup),
        "frugal, discard": frugalrl.FrugalFilter.paper(warmup_steps=warmup),
        "random, 40 %": frugalrl.RandomAdmit(rate=0.4, seed=0),
    }
    buffers = {
        name: frugalrl.ReplayBuffer(
            steps,
            observation_space=env.observation_space,
            action_space=env.action_space,
            admission=admission,
        )
        for name, admission in filters.items()
    }
    for transition in transitions(env_id, steps):
        for buffer in buffers.values():
            buffer.add(*transition)

    print(f"{env_id}, {steps} random steps, warm-up {warmup}")
    print(
        f"{'filter':<16} {'stored':>8} {'replaced':>9} {'dropped':>8} {'kB':>8} {'of filter':>10}"
    )
    for name, buffer in buffers.items():
        stats = buffer.stats
        print(
            f"{name:<16} {len(buffer):>8} {stats.replaced:>9} {stats.dropped:>8} "
            f"{buffer.nbytes / 1000:>8.0f} {buffer.admission.nbytes / 1000:>10.0f}"
        )
    return buffers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", nargs="?", default="MountainCarContinuous-v0")
    parser.add_argument("steps", nargs="?", type=int, default=20_000)
    arguments = parser.parse_args()
    main(arguments.environment, arguments.steps)
