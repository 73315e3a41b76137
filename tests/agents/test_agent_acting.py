"""How agents explore."""

from __future__ import annotations

import numpy as np
import pytest
from agent_cases import A, D, make, make_batch

from frugalrl.agents.policy import ActionScale

ONE = np.random.default_rng(8).normal(size=(1, D)).astype(np.float32)


@pytest.mark.parametrize("case", ["sac", "sac-sde", "td3"])
@pytest.mark.parametrize("environments", [1, 3])
def test_shapes_types_and_scale(case, environments):
    agent = make(case, environments=environments, low=-1.0, action_noise="normal")
    observations = np.repeat(ONE, environments, 0)
    for actions in (agent.act(observations), agent.act_random(environments)):
        assert actions.environment.shape == actions.buffer.shape == (environments, A)
        assert actions.environment.dtype == actions.buffer.dtype == np.float32
        assert np.abs(actions.buffer).max() <= 1
        scale = ActionScale(np.full(A, -1.0), np.full(A, 2.0))
        np.testing.assert_allclose(scale.to_environment(actions.buffer), actions.environment)
        np.testing.assert_allclose(scale.to_unit(actions.environment), actions.buffer, atol=1e-6)


def test_random_actions_fill_the_space():
    agent = make("sac", environments=4000)
    actions = agent.act_random().environment
    np.testing.assert_allclose(actions.min(0), -2, atol=0.01)
    np.testing.assert_allclose(actions.max(0), 2, atol=0.01)
    np.testing.assert_allclose(actions.mean(0), 0, atol=0.1)


def test_sac_explores_with_the_policys_own_spread():
    agent = make("sac", environments=6000)
    actions = agent.act(np.repeat(ONE, 6000, 0)).buffer
    output, _ = agent._policy.forward(ONE)
    raw = np.arctanh(actions.astype(float))
    np.testing.assert_allclose(raw.mean(0), output[0, :A], atol=0.06)
    np.testing.assert_allclose(raw.std(0), np.exp(output[0, A:]), rtol=0.05)


def test_td3_adds_noise_and_clips():
    agent = make("td3", environments=6000, action_noise="normal", action_noise_std=0.3)
    actions = agent.act(np.repeat(ONE, 6000, 0)).buffer
    mean = agent._policy(ONE)[0] / 2
    inside = np.abs(mean) < 0.2
    assert inside.any()
    np.testing.assert_allclose(actions.std(0)[inside], 0.3, rtol=0.05)
    assert np.abs(actions).max() == 1
    quiet = make("td3")
    np.testing.assert_array_equal(quiet.act(ONE).environment, quiet._policy(ONE))


def test_state_dependent_noise_is_a_function_of_the_state_within_a_rollout():
    agent = make("sac-sde")
    agent.rollout_started()
    first = agent.act(ONE).buffer
    np.testing.assert_array_equal(agent.act(ONE).buffer, first)
    agent.rollout_started()
    assert (agent.act(ONE).buffer != first).all()


def test_state_dependent_noise_is_drawn_anew_every_so_often():
    agent = make("sac-sde", sde_sample_freq=2)
    agent.rollout_started()
    taken = [agent.act(ONE).buffer for _ in range(4)]
    np.testing.assert_array_equal(taken[0], taken[1])
    np.testing.assert_array_equal(taken[2], taken[3])
    assert (taken[1] != taken[2]).all()


@pytest.mark.parametrize("every", [-1, 2])
def test_random_steps_count_for_state_dependent_noise(every):
    """As in Stable-Baselines3: matrices are drawn when a rollout begins, whoever acts first."""
    agent, other = (make("sac-sde", sde_sample_freq=every) for _ in range(2))
    for one in (agent, other):
        one.rollout_started()
    drawn = agent._matrices.copy()
    assert (drawn != 0).all()
    agent.act_random(1)
    agent.act(ONE)
    np.testing.assert_array_equal(agent._matrices, drawn)
    np.testing.assert_array_equal(agent.act(ONE).buffer == other.act(ONE).buffer, every < 0)
    before = agent._matrices.copy()
    agent.rollout_started()
    assert (agent._matrices != before).all()


def test_state_dependent_noise_differs_between_environments():
    agent = make("sac-sde", environments=2)
    actions = agent.act(np.repeat(ONE, 2, 0)).buffer
    assert (actions[0] != actions[1]).all()


def test_state_dependent_noise_has_the_spread_that_is_learned():
    agent = make("sac-sde", environments=5000, log_std_init=-1.5)
    mean, latent = agent._policy.forward(ONE)
    raw = np.arctanh(agent.act(np.repeat(ONE, 5000, 0)).buffer.astype(float))
    expected = np.sqrt((latent**2).sum()) * np.exp(-1.5)
    np.testing.assert_allclose(raw.std(0), expected, rtol=0.06)
    np.testing.assert_allclose(raw.mean(0), mean[0], atol=4 * expected / np.sqrt(5000))


def test_ended_episodes_reset_the_noise():
    agent = make("td3", environments=2, action_noise="ornstein-uhlenbeck", action_noise_std=0.5)
    agent.act(np.repeat(ONE, 2, 0))
    agent.episode_ended(np.array([True, False]))
    assert (agent._noise.value[0] == 0).all()
    assert (agent._noise.value[1] != 0).all()


@pytest.mark.parametrize("case", ["sac", "sac-sde", "td3"])
def test_acting_follows_every_update(case):
    agent = make(case)
    before = agent._policy(ONE)
    agent.update(make_batch(agent, updates=2))
    assert (agent._policy(ONE) != before).any()
