"""Losses against plain NumPy, their gradients against finite differences, in float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from agent_cases import make, make_batch

from frugalrl.agents.jax import networks as critics
from frugalrl.agents.jax import sac, td3
from reference import agents as reference


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def prepare(case):
    """Return spec, state and inputs of one update, in float64, and the networks for NumPy."""
    agent = make(case)
    agent.update(make_batch(agent, updates=3, seed=5))
    inputs = agent._inputs(make_batch(agent, seed=1))
    inputs = type(inputs)(*(np.asarray(array[0], float) for array in inputs))
    state = agent._learner.state
    state = type(state)(*(np.asarray(array, float) for array in state))
    spec = agent.spec
    return spec, state, inputs


def networks(spec, flat):
    size = spec.critic.size
    count = spec.settings.critics
    parts = [flat[i * size : (i + 1) * size] for i in range(count)]
    return [reference.unflatten(part, spec.critic.sizes) for part in parts]


def some(flat):
    return np.random.default_rng(0).choice(len(flat), 25, replace=False)


def check_gradient(loss, flat, slow, indices=None):
    """Check a loss and its gradient against the slow twin and its finite differences."""
    value, gradient = jax.value_and_grad(loss)(flat)
    indices = some(flat) if indices is None else indices
    assert value == pytest.approx(slow(flat), rel=1e-9)
    expected = reference.finite_difference(slow, flat, indices)
    np.testing.assert_allclose(np.asarray(gradient)[indices], expected, rtol=1e-5, atol=1e-8)
    assert np.abs(expected).max() > 1e-4


def draw(spec, actor, observations, noise):
    layers = reference.unflatten(actor[: spec.actor.size], spec.actor.sizes)
    outputs = [reference.network(layers, row) for row in observations]
    if not spec.settings.use_sde:
        return [
            reference.gaussian_action(out, eps)
            for (out, _), eps in zip(outputs, noise, strict=True)
        ]
    log_std = actor[spec.actor.size :].reshape(-1, spec.action_size)
    return [reference.sde_action(mean, latent, log_std, noise) for mean, latent in outputs]


@pytest.mark.parametrize("case", ["sac", "sac-sde"])
def test_sac_targets(case):
    spec, state, inputs = prepare(case)
    noise = inputs.noise if spec.settings.use_sde else inputs.noise[:8]
    drawn = draw(spec, state.actor, inputs.next_observations, noise)
    expected = reference.sac_targets(
        inputs.rewards,
        inputs.discounts,
        inputs.next_observations,
        drawn,
        networks(spec, state.targets),
        0.3,
    )
    np.testing.assert_allclose(sac.target_values(spec, state, inputs, 0.3), expected, rtol=1e-9)


@pytest.mark.parametrize("case", ["sac", "sac-sde"])
def test_sac_actor_loss(case):
    spec, state, inputs = prepare(case)
    noise = inputs.noise if spec.settings.use_sde else inputs.noise[-8:]

    def slow(actor):
        drawn = draw(spec, actor, inputs.observations, noise)
        return reference.sac_actor_loss(
            inputs.observations, drawn, networks(spec, state.critics), 0.3
        )

    def loss(actor):
        return sac.actor_loss(actor, spec, state.critics, inputs, 0.3)[0]

    check_gradient(loss, state.actor, slow)
    if spec.settings.use_sde:
        check_gradient(loss, state.actor, slow, np.arange(spec.actor.size, len(state.actor), 5))


@pytest.mark.parametrize(("case", "scale"), [("sac-prioritized", 0.5), ("td3-prioritized", 1.0)])
def test_critic_loss(case, scale):
    spec, state, inputs = prepare(case)
    targets = np.linspace(-1, 1, 8)
    batches = critics.critic_batches(spec, state.critics, inputs, targets)

    def slow(flat):
        return reference.critic_loss(
            networks(spec, flat),
            inputs.observations,
            inputs.actions,
            targets,
            inputs.weights,
            scale,
        )

    check_gradient(
        lambda flat: critics.critic_loss(flat, spec, batches, scale)[0], state.critics, slow
    )


def test_ent_coef_loss():
    def slow(log_ent_coef):
        return float(-log_ent_coef[0] * (-2.5 + -3.0))

    def loss(log_ent_coef):
        return sac.ent_coef_loss(log_ent_coef[0], -2.5, -3.0)

    check_gradient(loss, np.array([0.7]), slow, np.array([0]))


def test_td3_targets():
    spec, state, inputs = prepare("td3")
    noise = np.clip(0.2 * inputs.noise, -0.5, 0.5)
    actor = reference.unflatten(state.actor_target, spec.actor.sizes)
    expected = reference.td3_targets(
        inputs.rewards,
        inputs.discounts,
        inputs.next_observations,
        actor,
        noise,
        networks(spec, state.targets),
    )
    np.testing.assert_allclose(td3.target_values(spec, state, inputs), expected, rtol=1e-9)


@pytest.mark.parametrize("case", ["td3", "ddpg"])
def test_td3_actor_loss(case):
    spec, state, inputs = prepare(case)
    first = networks(spec, state.critics)[0]

    def slow(actor):
        layers = reference.unflatten(actor, spec.actor.sizes)
        return reference.td3_actor_loss(inputs.observations, layers, first)

    check_gradient(
        lambda actor: td3.actor_loss(actor, spec, state.critics, inputs.observations),
        state.actor,
        slow,
    )


def test_a_batch_may_bring_its_own_discounts():
    agent = make("sac")
    batch = make_batch(agent)
    batch.extra = {}
    np.testing.assert_array_equal(agent._inputs(batch).discounts.max(), np.float32(0.99))
    batch.extra = {"discount": np.random.default_rng(0).random((1, 8), np.float32)}
    expected = np.where(batch.terminated, np.float32(0), batch.extra["discount"])
    np.testing.assert_array_equal(agent._inputs(batch).discounts, expected)


def test_only_terminal_transitions_have_no_future():
    agent = make("sac")
    batch = make_batch(agent)
    inputs = agent._inputs(batch)
    assert batch.truncated.any()
    np.testing.assert_array_equal(
        inputs.discounts, np.where(batch.terminated, np.float32(0), np.float32(0.99))
    )


@pytest.mark.parametrize("engine", ["fused", "jax"])
def test_single_precision_costs_no_more_than_its_rounding(engine):
    """SAC's actor gradient in float32 is that of float64, also where actions saturate."""
    for seed in range(6):
        agent = make("sac", engine=engine, net_arch=(7,))
        batch, actor = make_batch(agent, seed=seed), np.array(agent._learner.state.actor, float)
        with jax.enable_x64(False):
            agent.update(batch)
        inputs = make("sac", net_arch=(7,))._inputs(batch)
        inputs = type(inputs)(*(np.asarray(array[0], float) for array in inputs))
        critics_after = np.array(agent._learner.state.critics, float)
        exact = jax.grad(
            lambda flat, data=inputs, after=critics_after, spec=agent.spec: sac.actor_loss(
                flat, spec, after, data, 1.0
            )[0]
        )(actor)
        gradient = np.asarray(agent._learner.state.actor_first) / np.float32(0.1)
        np.testing.assert_allclose(gradient, exact, atol=1e-5)
