"""Agents and batches for the tests of this directory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from gymnasium.spaces import Box

from frugalrl.agents import Agent, AgentSettings, make_agent

D, A = 5, 3
CASES = {
    "sac": ("sac", {}),
    "sac-fixed": ("sac", {"ent_coef": 0.2}),
    "sac-start": ("sac", {"ent_coef": "auto_0.1", "target_entropy": -1.5}),
    "sac-interval": ("sac", {"target_update_interval": 2}),
    "sac-sde": ("sac", {"use_sde": True, "log_std_init": -1.0}),
    "sac-prioritized": ("sac", {"sampler": "prioritized"}),
    "sac-large": ("sac", {"sampler": "large_batch"}),
    "sac-sde-large": ("sac", {"use_sde": True, "log_std_init": -1.0, "sampler": "large_batch"}),
    "td3": ("td3", {}),
    "td3-prioritized": ("td3", {"sampler": "prioritized"}),
    "td3-large": ("td3", {"sampler": "large_batch"}),
    "td3-delay": ("td3", {"policy_delay": 3}),
    "ddpg": ("ddpg", {}),
    "sac-unequal": ("sac", {"net_arch": {"pi": [6], "qf": [16, 12]}}),
    "sac-sde-unequal": (
        "sac",
        {"use_sde": True, "log_std_init": -1.0, "net_arch": {"pi": [16, 9], "qf": [7, 8, 5]}},
    ),
    "td3-unequal": ("td3", {"net_arch": {"pi": [20, 6], "qf": [16]}}),
}


def make(case: str, seed: int = 0, environments: int = 1, low: float = -2.0, **overrides) -> Agent:
    """Build the agent of a case, small."""
    algo, settings = CASES[case]
    settings = {"net_arch": (16, 12), "batch_size": 8, **settings, **overrides}
    return make_agent(
        AgentSettings.defaults(algo, **settings),
        Box(-np.inf, np.inf, (D,)),
        Box(low, 2.0, (A,)),
        seed,
        environments,
    )


def make_batch(agent: Agent, updates: int = 1, seed: int = 0, d: int = D, a: int = A):
    """Draw a batch of the shape the agent learns from."""
    rng = np.random.default_rng(seed)
    rows = agent.settings.batch_size * (4 if agent.settings.sampler == "large_batch" else 1)
    shape = (updates, rows)
    return SimpleNamespace(
        observations=rng.normal(size=(*shape, d)).astype(np.float32),
        actions=rng.uniform(-1, 1, (*shape, a)).astype(np.float32),
        rewards=rng.normal(size=shape).astype(np.float32),
        next_observations=rng.normal(size=(*shape, d)).astype(np.float32),
        terminated=rng.random(shape) < 0.2,
        truncated=rng.random(shape) < 0.2,
        weights=rng.uniform(0.3, 1, shape).astype(np.float32),
    )


def learner_state(agent: Agent) -> dict[str, np.ndarray]:
    return agent.state_dict()["learner"]
