"""Fragments and their numbers, and the actor that makes them, all in this process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl.distributed.fragments import Ledger, Steps, pack
from frugalrl.distributed.rollout import Rollout
from frugalrl.training.config import resolve
from frugalrl.training.runner import make_factory

ABOUT = {"actor": 0, "sequence": 0, "version": 0, "steps": 0, "seconds": 0.0}
ABOUT |= {"episodes": np.empty((0, 2)), "successes": np.empty(0)}


def made_up_steps(moments: int, count: int, seed: int) -> Steps:
    """Make steps of some environments whose episodes end by chance."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(moments + 1, count, 3)).astype(np.float32)
    final = states[1:].copy()
    terminated = rng.random((moments, count)) < 0.2
    truncated = rng.random((moments, count)) < 0.2
    ended = terminated | truncated
    final[ended] = rng.normal(size=(int(ended.sum()), 3))
    return Steps(
        states[:-1],
        rng.normal(size=(moments, count, 2)).astype(np.float32),
        rng.normal(size=(moments, count)),
        final,
        terminated,
        truncated,
    )


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 1000), st.floats(0.0, 1.0))
def test_what_is_unpacked_is_what_was_packed(moments, count, seed, share):
    taken = made_up_steps(moments, count, seed)
    wanted = np.random.default_rng(seed + 1).random((moments, count)) <= share
    fragment = pack(taken, wanted, **ABOUT)
    for got, part in zip(fragment.transitions(), taken, strict=True):
        expected = [part[t, c] for c in range(count) for t in range(moments) if wanted[t, c]]
        np.testing.assert_array_equal(got, np.array(expected, part.dtype).reshape(got.shape))
    assert len(np.unique(fragment.states, axis=0)) == len(fragment.states)


def test_neighbours_share_the_state_between_them():
    taken = made_up_steps(50, 1, 0)._replace(
        terminated=np.zeros((50, 1), bool), truncated=np.zeros((50, 1), bool)
    )
    taken = taken._replace(
        next_observations=np.concatenate([taken.observations[1:], taken.observations[:1] + 9])
    )
    fragment = pack(taken, np.ones((50, 1), bool), **ABOUT)
    assert len(fragment.states) == 51
    parts = [part.nbytes for part in fragment if isinstance(part, np.ndarray)]
    assert fragment.nbytes == sum(parts)


def test_a_number_is_admitted_once_however_often_it_comes():
    ledger = Ledger(2)
    numbers: list[int] = []
    for _ in range(3):
        numbers.append(ledger.number(0, numbers))
    assert numbers == [0, 1, 2]
    assert ledger.number(1, []) == 0
    assert ledger.admit(0, 1)
    assert not ledger.admit(0, 1)
    assert not ledger.admit(0, 7)
    assert ledger.state_dict() == {"next": [3, 1], "open": [[0, 2], [0]]}
    again = Ledger(2)
    again.load_state_dict(ledger.state_dict())
    assert not again.admit(0, 1)
    assert again.admit(0, 2)
    # What never came is asked for again, before anything new.
    assert again.number(0, []) == 0
    assert again.number(0, [0]) == 3
    assert again.number(1, []) == 0


@pytest.fixture
def make_actor(tiny):
    """Give a function that makes an actor here, without Ray."""

    def make(**changes) -> Rollout:
        config = resolve(tiny(**changes)).config
        return Rollout(0, config, make_factory(config))

    return make


@pytest.fixture
def weights(make_actor):
    """Give weights of a policy for tiny runs."""
    actor = make_actor()
    actor._begin(0)
    return actor._agent.actor_parameters()


def test_an_actor_answers_with_its_steps(make_actor, weights):
    actor = make_actor(envs=3)
    fragments = [actor.collect(i, 31, 5, weights, random=True) for i in range(3)]
    for number, fragment in enumerate(fragments):
        assert (fragment.actor, fragment.sequence, fragment.version) == (0, number, 5)
        assert fragment.steps == 31 == len(fragment.rewards)
        rows = fragment.transitions()
        # The middle of a line: the reward is minus the squared distance of where a step led.
        reached = rows[3].astype(float)
        np.testing.assert_allclose(-(reached**2).sum(axis=1), fragment.rewards, rtol=1e-5)
    episodes = np.concatenate([fragment.episodes for fragment in fragments])
    ended = sum(int((f.terminated | f.truncated).sum()) for f in fragments)
    assert len(episodes) == ended > 0
    assert episodes[:, 1].max() <= 25


def test_new_weights_change_what_an_actor_does(make_actor, weights):
    still = [make_actor().collect(0, 20, 0, weights).actions for _ in range(2)]
    np.testing.assert_array_equal(*still)
    moved = make_actor().collect(0, 20, 1, weights + 1).actions
    assert not np.array_equal(still[0], moved)


def test_an_actor_that_was_started_again_begins_elsewhere(make_actor, weights):
    first = make_actor().collect(0, 5, 0, weights)
    second = make_actor().collect(7, 5, 0, weights)
    assert not np.array_equal(first.states, second.states)


def test_a_slow_environment_makes_short_fragments(make_actor, weights):
    fragment = make_actor(envs=2).collect(0, 1000, 0, weights, seconds=0.0)
    assert fragment.steps == 2 == len(fragment.rewards)


def test_an_actor_needs_no_jax(make_actor, weights):
    actor = make_actor(engine="jax")
    actor.collect(0, 5, 0, weights)
    assert actor._agent.settings.engine == "fused"


def test_weights_of_another_network_are_refused(make_actor, weights):
    with pytest.raises(ValueError, match="parameters has shape"):
        make_actor().collect(0, 5, 0, weights[:-1])
