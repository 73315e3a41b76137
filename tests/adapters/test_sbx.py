"""FrugalReplayBuffer in SBX's algorithms."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import sbx

import frugalrl
from frugalrl.adapters.sb3 import FrugalReplayBuffer

SMALL = {
    "learning_starts": 20,
    "batch_size": 8,
    "buffer_size": 300,
    "train_freq": 10,
    "gradient_steps": 2,
    "seed": 0,
}


def parameters(model):
    states = [state for name, state in vars(model.policy).items() if name.endswith("_state")]
    leaves = jax.tree_util.tree_leaves([state.params for state in states])
    assert len(states) >= 2  # an actor and a critic at least
    return [np.array(leaf) for leaf in leaves]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["SAC", "TD3", "TQC", "CrossQ", "DDPG"])
def test_algorithms_learn_with_admission(name, pendulum):
    model = getattr(sbx, name)(
        "MlpPolicy",
        pendulum(),
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20, "bins": 2, "reward_scale": 100.0},
        **SMALL,
    )
    before = parameters(model)
    model.learn(60)
    assert not same(before, parameters(model))
    stats = model.replay_buffer.stats
    assert stats.offered == 60
    assert stats.stored < 60
    assert stats.stored + stats.replaced == 60
    assert model.replay_buffer.device.type == "cpu"


def test_admit_all_is_the_plain_run_to_the_bit(pendulum):
    results = []
    for settings in (
        {},
        {
            "replay_buffer_class": FrugalReplayBuffer,
            "replay_buffer_kwargs": {"admission": frugalrl.AdmitAll()},
        },
    ):
        model = sbx.SAC(
            "MlpPolicy", pendulum(), policy_kwargs={"net_arch": [8]}, **SMALL, **settings
        )
        results.append(parameters(model.learn(60)))
    assert same(*results)


@pytest.mark.filterwarnings("ignore:.*n_steps.* is ignored:UserWarning")
def test_returns_over_n_steps(pendulum):
    model = sbx.SAC(
        "MlpPolicy",
        pendulum(),
        n_steps=3,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20, "bins": 2, "reward_scale": 100.0},
        **SMALL,
    )
    before = parameters(model)
    model.learn(60)
    assert not same(before, parameters(model))
    assert model.replay_buffer.stats.offered == 60
    discounts = model.replay_buffer.sample(200).discounts.numpy()
    np.testing.assert_allclose(np.unique(discounts), [0.99**3, 0.99**2, 0.99], rtol=1e-6)


def test_dqn_learns_with_admission():
    model = sbx.DQN(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20, "bins": 2},
        **SMALL,
    )
    before = jax.tree_util.tree_leaves(model.policy.qf_state.params)
    before = [np.array(leaf) for leaf in before]
    model.learn(60)
    after = jax.tree_util.tree_leaves(model.policy.qf_state.params)
    assert not same(before, after)
    assert model.replay_buffer.stats.replaced > 0
