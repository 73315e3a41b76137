"""The hand-written updates compute what JAX derives from the losses."""

from __future__ import annotations

import numpy as np
import pytest
from agent_cases import CASES, D, learner_state, make, make_batch


def check_equal(ours, theirs, close=1e-5):
    """Check states to rounding, averages of gradients to a share ``close`` of their largest.

    Both engines compute in float32 (rounding 6e-8) without cancellation, in different orders:
    these averages differ by up to 1e-6, whether actions saturate or not, and 1e-5 leaves room for
    other processors' matrix products. Adam divides a gradient by its size, so one that is only
    rounding still moves its parameter by up to the learning rate (1e-3): single parameters are
    compared with that, and closely as a whole.
    """
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-3, err_msg=name)
        scale = np.abs(value).max()
        assert np.abs(value - theirs[name]).mean() < 1e-5 * max(1, scale), name
        if name.endswith(("first", "second")):
            np.testing.assert_allclose(
                value / scale, theirs[name] / scale, atol=close, err_msg=name
            )


@pytest.mark.parametrize("case", CASES)
def test_engines_agree(case):
    fused, jax = (make(case, engine=engine) for engine in ("fused", "jax"))
    results = []
    for call in range(2):
        batch = make_batch(fused, updates=3, seed=call)
        results = [agent.update(batch) for agent in (fused, jax)]
    ours, theirs = learner_state(fused), learner_state(jax)
    assert ours["updates"] == theirs["updates"] == 6
    # LaBER divides by a row's error: the smaller a difference is, the more its rounding counts.
    large = fused.settings.sampler == "large_batch"
    check_equal(ours, theirs, close=1e-3 if large else 1e-5)
    for name, value in results[0].metrics.items():
        assert value == pytest.approx(results[1].metrics[name], rel=1e-4, abs=1e-5), name
    errors = [result.td_errors for result in results]
    if fused.settings.sampler == "prioritized":
        assert errors[0].shape == (3, 8)
        np.testing.assert_allclose(errors[0], errors[1], rtol=1e-4, atol=1e-5)
    else:
        assert errors == [None, None]


@pytest.mark.parametrize("case", ["sac", "td3"])
def test_engines_agree_on_discounts_of_several_steps(case):
    fused, jax = (make(case, engine=engine) for engine in ("fused", "jax"))
    batch = make_batch(fused, updates=3)
    plain = make(case)
    plain.update(batch)
    powers = np.random.default_rng(1).integers(1, 4, batch.rewards.shape)
    batch.extra = {"discount": (0.99**powers).astype(np.float32)}
    for agent in (fused, jax):
        agent.update(batch)
    check_equal(learner_state(fused), learner_state(jax))
    assert (learner_state(plain)["critics"] != learner_state(fused)["critics"]).any()


@pytest.mark.parametrize("net_arch", [(7,), (9, 5, 6)])
@pytest.mark.parametrize("case", ["sac", "sac-sde", "td3"])
def test_engines_agree_for_any_depth(case, net_arch):
    fused, jax = (make(case, engine=engine, net_arch=net_arch) for engine in ("fused", "jax"))
    start = learner_state(fused)
    for seed in range(8):
        batch = make_batch(fused, updates=4, seed=seed)
        if seed % 2:  # so large that many actions are one to the last bit
            batch.observations *= np.float32(4)
            batch.next_observations *= np.float32(4)
        for agent in (fused, jax):
            agent.load_state_dict(agent.state_dict() | {"learner": start})
            agent.update(batch)
        check_equal(learner_state(fused), learner_state(jax))


@pytest.mark.parametrize("case", ["sac", "sac-sde", "td3"])
def test_engines_act_alike(case):
    fused, jax = (make(case, engine=engine) for engine in ("fused", "jax"))
    batch = make_batch(fused, updates=3)
    for agent in (fused, jax):
        agent.update(batch)
    observations = np.random.default_rng(0).normal(size=(4, D)).astype(np.float32)
    np.testing.assert_allclose(fused._policy(observations), jax._policy(observations), atol=1e-5)


def test_nan_is_not_hidden():
    agent = make("sac")
    batch = make_batch(agent)
    batch.observations[0, 0, 0] = np.nan
    result = agent.update(batch)
    assert np.isnan(result.metrics["critic_loss"])
    assert np.isnan(learner_state(agent)["critics"]).any()
