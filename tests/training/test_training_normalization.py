"""Learning from normalized values, with raw ones in the buffer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import frugalrl
from frugalrl.training import ConfigError, train
from frugalrl.training.normalization import Moments, Normalizer


def test_moments_are_those_of_all_rows():
    generator = np.random.default_rng(0)
    rows = generator.normal(3.0, 2.0, (500, 4))
    moments = Moments((4,))
    for part in np.array_split(rows, 37):
        moments.update(part)
    moments.update(np.full((1, 4), np.nan))
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.var, rows.var(0), rtol=1e-4)


@pytest.mark.parametrize("what", ["obs", "reward", "both"])
def test_the_buffer_and_its_filter_see_raw_values(what, tiny, tmp_path):
    quiet = {"learning_starts": 200, "steps": 240}
    raw = train(tiny(**quiet))
    scaled = train(tiny(normalize=what, out=tmp_path / "run", **quiet))
    one, other = raw.buffer.transitions(), scaled.buffer.transitions()
    np.testing.assert_array_equal(one.observations[:200], other.observations[:200])
    np.testing.assert_array_equal(one.rewards[:200], other.rewards[:200])
    assert not np.array_equal(raw.policy.parameters, scaled.policy.parameters)
    # Saved with the policy, applied when it is loaded, and frozen in the evaluation.
    policy = frugalrl.load_policy(tmp_path / "run")
    assert (policy.normalize is None) == (what == "reward")
    again = frugalrl.evaluate(tmp_path / "run", episodes=2)
    assert again.to_dict() == scaled.final.to_dict()


def test_a_normalized_run_is_resumed_to_the_bit(tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(normalize="both", envs=2)
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 40, 130)
    assert_same_run(whole, pieces)


def test_a_new_episode_begins_its_return_at_zero():
    normalizer = Normalizer("reward", (1,), 2, gamma=0.5)
    normalizer.update(np.zeros((2, 1)), np.array([3.0, 4.0]), np.zeros(2, bool))
    state = normalizer.state_dict()
    normalizer.load_state_dict(state, np.array([False, True]))
    assert normalizer.state_dict()["returns"].tolist() == [3.0, 0.0]


def test_an_unknown_kind_is_refused(tiny):
    with pytest.raises(ConfigError, match="normalize='observations'"):
        train(tiny(normalize="observations"))
