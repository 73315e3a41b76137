"""Thin an offline dataset: keep one of every set of equivalent transitions.

    python examples/offline_dataset.py [--minari NAME]

The data have Minari's form (episodes with one observation more than steps): a dataset of Minari's
that is on disk, or one made on the spot from random steps, which needs nothing but the core. Out
come the flat arrays that d3rlpy, D4RL and others read.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import frugalrl


class Episode(NamedTuple):
    """What Minari calls EpisodeData, as far as it is needed here."""

    observations: np.ndarray  # (steps + 1, d)
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def random_episodes(env_id: str, steps: int, seed: int = 0) -> list[Episode]:
    """Make a dataset of random steps."""
    env = gymnasium.make(env_id)
    env.action_space.seed(seed)
    episodes: list[Episode] = []
    taken = 0
    while taken < steps:
        observations, rows = [env.reset(seed=seed + len(episodes))[0]], []
        over = False
        while not over and taken < steps:
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            taken += 1
            cut = truncated or (taken == steps and not terminated)
            observations.append(observation)
            rows.append((action, reward, terminated, cut))
            over = terminated or truncated
        columns = (np.array(column) for column in zip(*rows, strict=True))
        episodes.append(Episode(np.array(observations), *columns))
    return episodes


def flatten(episodes: list[Episode]) -> dict[str, np.ndarray]:
    """Join episodes into flat arrays under D4RL's and d3rlpy's names."""
    return {
        "observations": np.concatenate([episode.observations[:-1] for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "rewards": np.concatenate([episode.rewards for episode in episodes]),
        "next_observations": np.concatenate([episode.observations[1:] for episode in episodes]),
        "terminals": np.concatenate([episode.terminations for episode in episodes]),
        "timeouts": np.concatenate([episode.truncations for episode in episodes]),
    }


def thin(data: dict[str, np.ndarray], **arguments: Any) -> np.ndarray:
    """Tell which transitions to keep.

    All data are known, so the first pass shows them to the filter, which finds the important
    dimensions and their bounds; the second one decides about the same rows, in order.
    """
    states, rewards = data["observations"], data["rewards"]
    frugal = frugalrl.FrugalFilter(
        warmup_steps=len(states), warmup="observe", on_equivalent="discard", **arguments
    )
    frugal.admit(states, rewards)
    kept = frugal.admit(states, rewards)
    print(f"important dimensions {frugal.important_dimensions_.tolist()}, {frugal.cells:,} cells")
    return kept


def main(
    env_id: str = "MountainCarContinuous-v0", steps: int = 20_000, dataset: str | None = None
) -> dict[str, np.ndarray]:
    """Make a dataset, or read one of Minari's; thin it and say what is left."""
    if dataset is None:
        episodes = random_episodes(env_id, steps)
    else:
        import minari

        episodes = list(minari.load_dataset(dataset).iterate_episodes())
    data = flatten(episodes)
    kept = thin(data)
    thinned = {name: values[kept] for name, values in data.items()}
    before = sum(values.nbytes for values in data.values())
    after = sum(values.nbytes for values in thinned.values())
    print(f"{kept.sum():,} of {len(kept):,} transitions kept: {after / before:.0%} of the bytes")
    return thinned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env-id", default="MountainCarContinuous-v0")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minari", metavar="NAME", help="a dataset on disk to read instead")
    options = parser.parse_args()
    main(options.env_id, options.steps, options.minari)
