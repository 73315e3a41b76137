"""SAC of Tianshou on MountainCarContinuous-v0 with a frugal buffer, two environments at once.

    python examples/tianshou_sac.py

Needs the extra `tianshou`: pip install ".[tianshou]".
"""

from __future__ import annotations

import argparse
import warnings

import gymnasium
import torch
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

from frugalrl.adapters.tianshou import FrugalVectorReplayBuffer


def make_sac(env, hidden=(64, 64), n_step_return_horizon=1):
    """Build Tianshou's SAC with small networks."""
    states, actions = env.observation_space.shape, env.action_space.shape
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=states, hidden_sizes=hidden),
        action_shape=actions,
        unbounded=True,
        conditioned_sigma=True,
    )
    critics = [
        ContinuousCritic(
            preprocess_net=Net(
                state_shape=states, action_shape=actions, hidden_sizes=hidden, concat=True
            )
        )
        for _ in range(2)
    ]
    return SAC(
        policy=SACPolicy(actor=actor, action_space=env.action_space),
        policy_optim=AdamOptimizerFactory(lr=1e-3),
        critic=critics[0],
        critic_optim=AdamOptimizerFactory(lr=1e-3),
        critic2=critics[1],
        critic2_optim=AdamOptimizerFactory(lr=1e-3),
        alpha=AutoAlpha(-float(actions[0]), 0.0, AdamOptimizerFactory(lr=1e-3)),
        n_step_return_horizon=n_step_return_horizon,
    )


def main(steps: int = 1_500, warmup_steps: int = 500, seed: int = 0) -> FrugalVectorReplayBuffer:
    """Collect `warmup_steps` random steps, then train; the filter decides from then on."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    envs = DummyVectorEnv([lambda: gymnasium.make("MountainCarContinuous-v0") for _ in range(2)])
    envs.seed(seed)
    env = envs.workers[0].env
    algorithm = make_sac(env)
    # The one changed line: VectorReplayBuffer(...) before.
    buffer = FrugalVectorReplayBuffer(
        100_000, len(envs), warmup_steps=warmup_steps, observation_space=env.observation_space
    )
    collector = Collector(algorithm, envs, buffer)
    collector.reset()
    collector.collect(n_step=warmup_steps, random=True)
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=steps - warmup_steps,
            collection_step_num_env_steps=10,
            update_step_num_gradient_steps_per_sample=0.2,
            batch_size=128,
            verbose=False,
            show_progress=False,
        )
    )
    stats = buffer.stats
    print(f"{stats.offered} transitions offered: {stats.stored} stored, {stats.replaced} replaced")
    return buffer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--warmup-steps", type=int, default=500)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.warmup_steps)
