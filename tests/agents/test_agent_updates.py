"""What updates do to an agent: determinism, saving, delays, samplers."""

from __future__ import annotations

import json

import numpy as np
import optax
import pytest
import torch
from agent_cases import CASES, A, D, learner_state, make, make_batch

from frugalrl.agents.fused.networks import adam, polyak, select_by_error
from frugalrl.agents.jax.networks import select_by_error as select_by_error_jax

ONE = np.random.default_rng(8).normal(size=(1, D)).astype(np.float32)


def step(agent, count, seed=0):
    """Act, end an episode and learn a few times; return the actions."""
    actions = []
    for i in range(count):
        agent.rollout_started()
        actions.append(agent.act(ONE).environment)
        actions.append(agent.act_random(1).environment)
        agent.episode_ended(np.array([i % 3 == 2]))
        agent.update(make_batch(agent, updates=1 + i % 2, seed=seed + i), 1 - i / count)
    return np.concatenate(actions)


@pytest.mark.parametrize("case", CASES)
def test_every_part_moves(case):
    agent = make(case)
    before = learner_state(agent)
    agent.update(make_batch(agent, updates=4))
    after = learner_state(agent)
    still = {name for name in before if np.array_equal(before[name], after[name])}
    assert still == ({"ent_coef"} if case == "sac-fixed" else set())
    assert all(np.isfinite(value).all() for value in after.values())


@pytest.mark.parametrize(
    ("case", "engine"),
    [("sac", "fused"), ("sac-sde", "fused"), ("td3-delay", "fused"), ("sac", "jax")],
)
def test_same_seed_same_bits(case, engine):
    runs = []
    for seed in (1, 1, 2):
        agent = make(case, seed, engine=engine, action_noise="normal", learning_rate="lin_1e-3")
        runs.append((step(agent, 4), learner_state(agent)))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    for name, value in runs[0][1].items():
        np.testing.assert_array_equal(value, runs[1][1][name])
    assert (runs[0][0] != runs[2][0]).all()


@pytest.mark.parametrize(("case", "engine"), [*((case, "fused") for case in CASES), ("sac", "jax")])
def test_a_restored_agent_goes_on_with_the_same_bits(case, engine):
    settings = {"action_noise": "ornstein-uhlenbeck", "engine": engine}
    if "sde" in case:
        settings["sde_sample_freq"] = 3
    agent, other = make(case, **settings), make(case, seed=9, **settings)
    step(agent, 3)
    saved = agent.state_dict()
    plain = {name: value for name, value in saved.items() if name not in ("learner", "matrices")}
    if saved["noise"] is not None:
        plain["noise"] = {"value": saved["noise"]["value"].tolist()}
    saved = saved | json.loads(json.dumps(plain))
    expected = step(agent, 3, seed=50)
    other.load_state_dict(saved)
    np.testing.assert_array_equal(step(other, 3, seed=50), expected)
    after = learner_state(other)
    for name, value in learner_state(agent).items():
        np.testing.assert_array_equal(value, after[name])


def test_a_saved_state_is_a_copy():
    agent = make("sac")
    saved = agent.state_dict()["learner"]["actor"].copy()
    state = agent.state_dict()
    agent.update(make_batch(agent, updates=2))
    np.testing.assert_array_equal(state["learner"]["actor"], saved)


def test_other_settings_and_shapes_are_refused():
    state = make("sac").state_dict()
    with pytest.raises(ValueError, match="other settings"):
        make("sac", tau=0.1).load_state_dict(state)
    state["learner"]["critics"] = state["learner"]["critics"][:-1]
    with pytest.raises(ValueError, match="critics"):
        make("sac").load_state_dict(state)


def test_many_updates_at_once_are_the_same_as_one_by_one():
    for case in ("sac", "td3", "sac-large"):
        together, apart = make(case), make(case)
        batch = make_batch(together, updates=4)
        inputs = together._inputs(batch)
        together._learner.update(inputs, 1e-3)
        for k in range(4):
            apart._learner.update(type(inputs)(*(array[k : k + 1] for array in inputs)), 1e-3)
        after = learner_state(apart)
        for name, value in learner_state(together).items():
            np.testing.assert_array_equal(value, after[name])


def test_the_actor_waits_for_its_turn():
    agent = make("td3-delay")
    moved = []
    for k in range(7):
        before = learner_state(agent)
        agent.update(make_batch(agent, seed=k))
        after = learner_state(agent)
        moved.append(not np.array_equal(before["actor"], after["actor"]))
        assert moved[-1] != np.array_equal(before["targets"], after["targets"])
        assert not np.array_equal(before["critics"], after["critics"])
    assert moved == [False, False, True, False, False, True, False]


def test_targets_wait_for_their_interval():
    agent, usual = make("sac-interval"), make("sac")
    for one in (agent, usual):
        one.update(make_batch(one, updates=2))
    first = make("sac")
    first.update(make_batch(agent, updates=2))
    moved = learner_state(agent)["targets"] - learner_state(usual)["targets"]
    assert np.abs(moved).max() > 0


@pytest.mark.parametrize("case", ["sac-prioritized", "td3-prioritized"])
def test_weights_scale_each_rows_share_of_the_loss(case):
    first, second = make(case), make(case)
    batch = make_batch(first)
    losses = []
    for agent, factor in ((first, 1.0), (second, 0.5)):
        batch.weights = np.full((1, 8), factor, np.float32)
        result = agent.update(batch)
        losses.append(result.metrics["critic_loss"])
    assert losses[1] == pytest.approx(0.5 * losses[0], rel=1e-5)
    assert result.td_errors.shape == (1, 8)
    assert (result.td_errors > 0).all()


def test_batches_of_a_wrong_size_are_refused():
    agent = make("sac")
    batch = make_batch(make("sac", batch_size=9))
    with pytest.raises(ValueError, match="batch_size=8"):
        agent.update(batch)
    large = make("sac-large")
    with pytest.raises(ValueError, match="multiple"):
        large.update(batch)


def test_large_batches_are_selected_by_error():
    rng = np.random.default_rng(0)
    values, targets = np.zeros(6, np.float32), np.float32([1, 2, 3, 0, 4, -2])
    uniforms = rng.random(60_000, np.float32)
    rows, weights = select_by_error(values, targets, uniforms)
    errors = np.abs(targets)
    shares = np.bincount(rows, minlength=6) / len(rows)
    np.testing.assert_allclose(shares, errors / errors.sum(), atol=0.006)
    np.testing.assert_allclose(weights, errors.mean() / errors[rows], rtol=1e-6)
    # unbiased: the weighted mean of anything is the large batch's mean of it
    feature = np.where(errors > 0, rng.normal(size=6), 0)
    assert (weights * feature[rows]).mean() == pytest.approx(feature.mean(), abs=0.02)
    theirs = select_by_error_jax(errors, uniforms)
    assert (np.asarray(theirs[0]) == rows).mean() > 0.999
    np.testing.assert_allclose(np.asarray(theirs[1]).mean(), weights.mean(), rtol=1e-3)


def test_selection_works_where_every_error_vanishes():
    zeros = np.zeros(4, np.float32)
    rows, weights = select_by_error(zeros, zeros, np.linspace(0, 1, 9, dtype=np.float32))
    assert rows.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    np.testing.assert_allclose(weights, 1, rtol=1e-6)


def test_adam_is_optaxs_and_torchs():
    rng = np.random.default_rng(0)
    start = rng.normal(size=50).astype(np.float32)
    ours, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    rule = optax.adam(1e-2)
    theirs, state = start, rule.init(start)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.Adam([parameter], lr=1e-2)
    for count in range(1, 30):
        gradient = rng.normal(size=50).astype(np.float32)
        adam(ours, gradient, first, second, count, 1e-2)
        change, state = rule.update(gradient, state)
        theirs = optax.apply_updates(theirs, change)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours, parameter.detach(), rtol=1e-4, atol=1e-6)
    assert np.abs(ours - start).max() > 0.05


def test_polyak_moves_a_share():
    targets = np.zeros(4, np.float32)
    polyak(targets, np.arange(4, dtype=np.float32), np.float32(0.25))
    np.testing.assert_allclose(targets, [0, 0.25, 0.5, 0.75])


def test_networks_begin_as_torchs():
    agent = make("sac", net_arch=(400, 300))
    layer = torch.nn.Linear(D, 400)
    weights, biases = agent.spec.actor.layers(learner_state(agent)["actor"])[0]
    assert weights.shape == (D, 400)
    bound = 1 / np.sqrt(D)
    for ours, theirs in ((weights, layer.weight), (biases, layer.bias)):
        assert np.abs(ours).max() <= bound
        assert ours.std() == pytest.approx(float(theirs.detach().std()), rel=0.15)
        assert ours.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)
    state = learner_state(agent)
    np.testing.assert_array_equal(state["critics"], state["targets"])
    assert agent.spec.action_size == A
