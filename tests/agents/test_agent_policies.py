"""Action distributions, noise and scaling against Stable-Baselines3's own code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agent_cases import A, D, make, make_batch
from gymnasium.spaces import Box
from stable_baselines3.common.distributions import (
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
)
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.policies import BasePolicy

from frugalrl.agents import Policy
from frugalrl.agents.agent import ActionNoise
from frugalrl.agents.jax.sac import sample_gaussian, sample_sde
from frugalrl.agents.policy import ActionScale
from reference.agents import gaussian_action, sde_action


def test_squashed_gaussian_is_stable_baselines3s():
    rng = np.random.default_rng(0)
    head = rng.normal(size=(20, 2 * A)).astype(np.float32)
    head[0, A] = 5.0  # beyond the clamp, as is the next
    head[1, A] = -30.0
    noise = rng.normal(size=(20, A)).astype(np.float32)
    actions, log_prob = sample_gaussian(head, noise)
    mean, log_std = torch.tensor(head[:, :A]), torch.tensor(head[:, A:]).clamp(-20, 2)
    theirs = SquashedDiagGaussianDistribution(A).proba_distribution(mean, log_std)
    raw = mean + log_std.exp() * torch.tensor(noise)
    expected = theirs.log_prob(torch.tanh(raw), raw)
    np.testing.assert_allclose(actions, torch.tanh(raw), rtol=1e-5, atol=1e-6)
    # where the standard deviation is e^-20 their (x - mean) / std is rounding
    sure = np.arange(20) != 1
    np.testing.assert_allclose(np.asarray(log_prob)[sure], expected[sure], rtol=1e-3, atol=1e-3)
    for i in range(20):
        action, value = gaussian_action(head[i].astype(float), noise[i].astype(float))
        np.testing.assert_allclose(actions[i], action, rtol=1e-4, atol=1e-6)
        assert float(log_prob[i]) == pytest.approx(value, rel=1e-2, abs=1e-3)


def test_state_dependent_exploration_is_stable_baselines3s():
    rng = np.random.default_rng(0)
    h = 6
    mean = 2 * rng.normal(size=(15, A)).astype(np.float32)
    latent = np.abs(rng.normal(size=(15, h))).astype(np.float32)
    log_std = rng.normal(-1, 0.3, (h, A)).astype(np.float32)
    noise = rng.normal(size=(h, A)).astype(np.float32)
    theirs = StateDependentNoiseDistribution(A, squash_output=True, learn_features=True)
    theirs.proba_distribution_net(h, latent_sde_dim=h)
    theirs.exploration_mat = torch.tensor(np.exp(log_std) * noise)
    center = torch.tensor(mean).clamp(-2, 2)
    expected_actions, expected = theirs.log_prob_from_params(
        center, torch.tensor(log_std), torch.tensor(latent)
    )
    actions, log_prob = sample_sde(mean, latent, log_std, noise)
    np.testing.assert_allclose(actions, expected_actions, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=2e-3)
    for i in range(15):
        action, value = sde_action(mean[i], latent[i], log_std.astype(float), noise.astype(float))
        np.testing.assert_allclose(actions[i], action, rtol=1e-4, atol=1e-6)
        assert float(log_prob[i]) == pytest.approx(value, rel=1e-3, abs=2e-3)


def test_ornstein_uhlenbeck_noise_is_stable_baselines3s(monkeypatch):
    ours, draws = ActionNoise("ornstein-uhlenbeck", 0.5, 1, A), np.random.default_rng(3)
    theirs = OrnsteinUhlenbeckActionNoise(np.zeros(A), np.full(A, 0.5))
    same = np.random.default_rng(3)
    monkeypatch.setattr(np.random, "normal", lambda size: same.standard_normal(size))
    for step in range(50):
        np.testing.assert_allclose(ours.draw(draws)[0], theirs(), rtol=1e-6)
        if step == 30:
            ours.reset(np.array([True]))
            theirs.reset()
    assert np.abs(ours.value).max() > 0.05


def test_ornstein_uhlenbeck_noise_resets_only_what_ended():
    noise = ActionNoise("ornstein-uhlenbeck", 0.5, 3, A)
    noise.draw(np.random.default_rng(0))
    before = noise.value.copy()
    noise.reset(np.array([False, True, False]))
    np.testing.assert_array_equal(noise.value[1], np.zeros(A))
    np.testing.assert_array_equal(noise.value[[0, 2]], before[[0, 2]])


def test_normal_noise_has_its_standard_deviation():
    draws = ActionNoise("normal", 0.1, 1000, A).draw(np.random.default_rng(0))
    assert draws.std() == pytest.approx(0.1, rel=0.05)
    assert abs(draws.mean()) < 0.01


def test_scaling_is_stable_baselines3s():
    space = Box(np.array([-3.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))
    scale = ActionScale(space.low, space.high)

    class Theirs:
        action_space = space

    actions = np.random.default_rng(0).uniform(-1, 1, (10, 2)).astype(np.float32)
    scaled = scale.to_environment(actions)
    np.testing.assert_allclose(scaled, BasePolicy.unscale_action(Theirs, actions), rtol=1e-6)
    np.testing.assert_allclose(scale.to_unit(scaled), actions, atol=1e-6)
    np.testing.assert_array_equal(scale.to_environment(np.float32([[1, 1]])), [space.high])
    np.testing.assert_array_equal(ActionScale([-1], [1]).to_environment(actions), actions)


@pytest.mark.parametrize("case", ["sac", "sac-sde", "td3", "ddpg"])
def test_a_saved_policy_acts_as_the_agent(case):
    agent = make(case, low=-0.5)
    agent.update(make_batch(agent, updates=2))
    policy = Policy.from_state(agent.policy_state())
    observations = np.random.default_rng(0).normal(size=(7, D)).astype(np.float32)
    expected = agent._policy(observations)
    np.testing.assert_array_equal(policy(observations), expected)
    np.testing.assert_allclose(policy(observations[0].astype(float)), expected[0], atol=1e-6)
    agent.update(make_batch(agent, updates=2))
    np.testing.assert_array_equal(policy(observations), expected)


@pytest.mark.parametrize("case", ["sac", "sac-sde"])
def test_numpy_policy_is_jaxs_without_noise(case):
    from frugalrl.agents.jax.sac import sample_actions

    agent = make(case)
    agent.update(make_batch(agent, updates=2))
    observations = np.random.default_rng(0).normal(size=(7, D)).astype(np.float32)
    actor = agent.state_dict()["learner"]["actor"]
    silence = np.zeros((12 if agent.settings.use_sde else 7, A), np.float32)
    actions, _ = sample_actions(agent.spec, actor, observations, silence)
    np.testing.assert_allclose(agent._policy(observations), 2 * actions, atol=1e-5)


def test_numpy_policy_is_jaxs_for_td3():
    from frugalrl.agents.jax.td3 import act

    agent = make("td3")
    observations = np.random.default_rng(0).normal(size=(7, D)).astype(np.float32)
    actor = agent.state_dict()["learner"]["actor"]
    np.testing.assert_allclose(
        agent._policy(observations), 2 * act(agent.spec, actor, observations), atol=1e-5
    )
