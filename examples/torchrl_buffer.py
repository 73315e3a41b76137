"""A TorchRL replay buffer with the frugal filter, filled by TorchRL's collector.

    python examples/torchrl_buffer.py

Needs the extra `torchrl`: pip install ".[torchrl]".
"""

from __future__ import annotations

import argparse

import gymnasium
import torch
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv

from frugalrl.adapters.torchrl import FrugalWriter


def main(steps: int = 3_000, warmup_steps: int = 500) -> TensorDictReplayBuffer:
    """Collect random steps and fit a value to the rewards, to show both ends of the buffer."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    env_id = "MountainCarContinuous-v0"
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100_000),
        batch_size=128,
        # The one changed line; the space's limits bound the filter's cells.
        writer=FrugalWriter(
            warmup_steps=warmup_steps, observation_space=gymnasium.make(env_id).observation_space
        ),
    )
    value = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
    collector = Collector(GymEnv(env_id), None, frames_per_batch=100, total_frames=steps)
    for data in collector:
        buffer.extend(data.reshape(-1))
        for _ in range(10):
            batch = buffer.sample()
            inputs = torch.cat([batch["observation"], batch["action"]], dim=-1)
            loss = (value(inputs) - batch["next", "reward"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    collector.shutdown()
    stats = buffer.writer.stats
    print(f"{stats.offered} transitions offered: {stats.stored} stored, {stats.replaced} replaced")
    print(f"loss {loss.item():.5f}")
    return buffer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--warmup-steps", type=int, default=500)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.warmup_steps)
