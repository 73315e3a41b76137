"""SAC in one file, in the manner of CleanRL, with a frugal buffer in place of CleanRL's.

    python examples/cleanrl_sac.py --env-id InvertedPendulum-v5 --total-timesteps 2500

Everything that matters is here, in reading order: networks, one loop, three losses. Needs PyTorch
and Gymnasium (0.29 as CleanRL pins it, or 1.1 and newer). The one changed line is the import.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, optim

import frugalrl
from frugalrl.adapters.torch import ReplayBuffer  # was: from cleanrl_utils.buffers import ...


@dataclass
class Args:
    """Settings; each is a flag of the same name."""

    env_id: str = "InvertedPendulum-v5"
    """the environment"""
    seed: int = 1
    """of everything random"""
    total_timesteps: int = 2_500
    """steps in all environments together"""
    num_envs: int = 1
    """environments side by side"""
    buffer_size: int = 1_000_000
    """most transitions that are kept"""
    admission: str = "fac"
    """fac (Frugal Actor-Critic), none (an ordinary buffer) or random"""
    warmup_steps: int = 1_000
    """steps from which the filter learns the important dimensions"""
    on_equivalent: str = "replace"
    """what becomes of a transition that is not new: replace or discard"""
    gamma: float = 0.99
    """the discount factor"""
    tau: float = 0.005
    """how fast the target networks follow"""
    batch_size: int = 128
    """transitions in a batch"""
    hidden: int = 128
    """width of the networks' two layers"""
    learning_starts: int = 500
    """steps before the first update"""
    policy_lr: float = 3e-4
    """the actor's learning rate"""
    q_lr: float = 1e-3
    """the critics' learning rate"""
    policy_frequency: int = 2
    """updates of the critics before the actor is updated as often"""


def make_admission(args: Args) -> frugalrl.AdmissionFilter:
    """Build the filter that decides what enters the buffer."""
    if args.admission == "none":
        return frugalrl.AdmitAll()
    if args.admission == "random":
        return frugalrl.RandomAdmit(rate=0.4, seed=args.seed)
    return frugalrl.FrugalFilter(warmup_steps=args.warmup_steps, on_equivalent=args.on_equivalent)


class SoftQNetwork(nn.Module):
    """The value of an action in a state."""

    def __init__(self, envs: gym.vector.VectorEnv, hidden: int) -> None:
        super().__init__()
        states, actions = envs.single_observation_space.shape, envs.single_action_space.shape
        self.fc1 = nn.Linear(int(np.prod(states) + np.prod(actions)), hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """(B, d), (B, a) -> (B, 1)."""
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


LOG_STD_MAX, LOG_STD_MIN = 2, -5


class Actor(nn.Module):
    """A squashed Gaussian over actions."""

    def __init__(self, envs: gym.vector.VectorEnv, hidden: int) -> None:
        super().__init__()
        space = envs.single_action_space
        self.fc1 = nn.Linear(int(np.prod(envs.single_observation_space.shape)), hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc_mean = nn.Linear(hidden, int(np.prod(space.shape)))
        self.fc_logstd = nn.Linear(hidden, int(np.prod(space.shape)))
        scale, bias = (space.high - space.low) / 2.0, (space.high + space.low) / 2.0
        self.register_buffer("action_scale", torch.as_tensor(scale, dtype=torch.float32))
        self.register_buffer("action_bias", torch.as_tensor(bias, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, d) -> mean and log standard deviation, (B, a) each."""
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        log_std = torch.tanh(self.fc_logstd(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return self.fc_mean(x), log_std

    def get_action(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, d) -> actions (B, a) and their log-probability (B, 1)."""
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t)
        log_prob -= torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.action_scale + self.action_bias, log_prob.sum(1, keepdim=True)


def main(args: Args) -> ReplayBuffer:
    """Train and return the buffer."""
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 - the buffer draws from it, as CleanRL's does
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    # With same-step autoreset, the only one of Gymnasium 0.29, the true last observation comes in
    # `infos`; `next_obs` holds the reset's.
    modes = getattr(gym.vector, "AutoresetMode", None)
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(args.env_id)] * args.num_envs,
        **({} if modes is None else {"autoreset_mode": modes.SAME_STEP}),
    )
    final = "final_observation" if modes is None else "final_obs"
    envs.action_space.seed(args.seed)
    actor = Actor(envs, args.hidden)
    qf1, qf2, qf1_target, qf2_target = (SoftQNetwork(envs, args.hidden) for _ in range(4))
    qf1_target.load_state_dict(qf1.state_dict())
    qf2_target.load_state_dict(qf2.state_dict())
    q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=args.q_lr)
    actor_optimizer = optim.Adam(actor.parameters(), lr=args.policy_lr)
    target_entropy = -float(np.prod(envs.single_action_space.shape))
    log_alpha = torch.zeros(1, requires_grad=True)
    a_optimizer = optim.Adam([log_alpha], lr=args.q_lr)

    rb = ReplayBuffer(
        args.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        "cpu",
        n_envs=args.num_envs,
        handle_timeout_termination=False,
        admission=make_admission(args),
        dtype="float32",
    )
    start_time = time.time()
    obs, _ = envs.reset(seed=args.seed)
    episodic_return, finished = np.zeros(args.num_envs), []
    for global_step in range(0, args.total_timesteps, args.num_envs):
        # ACT: at random until learning starts.
        if global_step < args.learning_starts:
            actions = envs.action_space.sample()
        else:
            with torch.no_grad():
                actions = actor.get_action(torch.as_tensor(obs, dtype=torch.float32))[0].numpy()

        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        episodic_return += rewards
        real_next_obs = next_obs.copy()
        for i in np.flatnonzero(terminations | truncations):
            real_next_obs[i] = infos[final][i]
            finished.append(episodic_return[i])
            episodic_return[i] = 0.0

        # STORE what the filter admits.
        rb.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs

        # LEARN.
        if global_step < args.learning_starts:
            continue
        data = rb.sample(args.batch_size)
        x, a, x_next = data.observations, data.actions, data.next_observations
        not_over = 1 - data.dones.flatten()  # truncated episodes bootstrap
        alpha = log_alpha.exp().item()
        with torch.no_grad():
            next_actions, next_log_pi = actor.get_action(x_next)
            next_q = torch.min(qf1_target(x_next, next_actions), qf2_target(x_next, next_actions))
            soft_value = (next_q - alpha * next_log_pi).view(-1)
            target = data.rewards.flatten() + not_over * args.gamma * soft_value
        q_loss = F.mse_loss(qf1(x, a).view(-1), target) + F.mse_loss(qf2(x, a).view(-1), target)
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        if global_step % args.policy_frequency == 0:
            for _ in range(args.policy_frequency):
                pi, log_pi = actor.get_action(x)
                actor_loss = (alpha * log_pi - torch.min(qf1(x, pi), qf2(x, pi))).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                alpha_loss = (-log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()
                a_optimizer.zero_grad()
                alpha_loss.backward()
                a_optimizer.step()
                alpha = log_alpha.exp().item()

        with torch.no_grad():
            for network, follower in ((qf1, qf1_target), (qf2, qf2_target)):
                for p, p_target in zip(network.parameters(), follower.parameters(), strict=True):
                    p_target.lerp_(p, args.tau)

        if global_step % 500 == 0:
            sps = int(global_step / (time.time() - start_time))
            print(
                f"step {global_step}: return {np.mean(finished[-10:]):.1f}, {sps} steps/s, "
                f"{len(rb)} of {rb.stats.offered} held, {rb.nbytes / 1e3:.0f} kB"
            )
    envs.close()
    return rb


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Args):
        flag = "--" + field.name.replace("_", "-")
        known = ("fac", "none", "random") if field.name == "admission" else None
        parser.add_argument(flag, type=type(field.default), default=field.default, choices=known)
    main(Args(**vars(parser.parse_args())))
