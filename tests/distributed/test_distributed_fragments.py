"""Fragments and the actor that makes them, all in this process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl.distributed import rollout
from frugalrl.distributed.rollout import Rollout, pack
from frugalrl.training.config import resolve
from frugalrl.training.runner import make_factory

ABOUT = {"actor": 0, "sequence": 0, "version": 0, "steps": 0, "seconds": 0.0}
ABOUT |= {"episodes": np.empty((0, 2)), "successes": np.empty(0)}


def made_up_transitions(count: int, seed: int, ends: float = 0.3) -> list[np.ndarray]:
    """Make transitions of an environment whose episodes end by chance."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(count + 1, 3)).astype(np.float32)
    final = states[1:].copy()
    terminated, truncated = rng.random((2, count)) < ends / 2
    ended = terminated | truncated
    final[ended] = rng.normal(size=(int(ended.sum()), 3))
    actions = rng.normal(size=(count, 2)).astype(np.float32)
    return [states[:-1], actions, rng.normal(size=count), final, terminated, truncated]


@given(st.integers(0, 60), st.integers(0, 1000), st.floats(0.0, 1.0))
def test_what_is_unpacked_is_what_was_packed(count, seed, share):
    wanted = np.random.default_rng(seed + 1).random(count) <= share
    taken = [part[wanted] for part in made_up_transitions(count, seed)]
    fragment = pack(taken, **ABOUT)
    for got, part in zip(fragment.transitions(), taken, strict=True):
        assert got.dtype == part.dtype
        np.testing.assert_array_equal(got, part)
    assert len(np.unique(fragment.states, axis=0)) == len(fragment.states)


def test_states_come_back_to_the_bit():
    states = np.array([[0.0, np.nan], [-0.0, np.nan], [np.inf, 1.0]], np.float32)
    others = made_up_transitions(3, 0)
    fragment = pack([states, *others[1:3], states[::-1], *others[4:]], **ABOUT)
    assert len(fragment.states) == 3
    assert fragment.transitions()[0].tobytes() == states.tobytes()
    assert fragment.transitions()[3].tobytes() == states[::-1].tobytes()


def test_neighbours_share_the_state_between_them():
    fragment = pack(made_up_transitions(50, 0, ends=0.0), **ABOUT)
    assert len(fragment.states) == 51
    parts = [part.nbytes for part in fragment if isinstance(part, np.ndarray)]
    assert fragment.nbytes == sum(parts)


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


def test_steps_of_an_environment_stand_one_after_the_other(make_actor, weights):
    fragment = make_actor(envs=3).collect(0, 31, 0, weights)
    # Of 11 moments the last has a step of one environment alone.
    first = 0
    for length in (11, 10, 10):
        begun = fragment.observations[first + 1 : first + length]
        reached = fragment.next_observations[first : first + length - 1]
        ended = (fragment.terminated | fragment.truncated)[first : first + length - 1]
        np.testing.assert_array_equal(begun[~ended], reached[~ended])
        first += length


def test_new_weights_change_what_an_actor_does(make_actor, weights):
    still = [make_actor().collect(0, 20, 0, weights).actions for _ in range(2)]
    np.testing.assert_array_equal(*still)
    moved = make_actor().collect(0, 20, 1, weights + 1).actions
    assert not np.array_equal(still[0], moved)


def test_an_actor_that_was_started_again_begins_elsewhere(make_actor, weights):
    first = make_actor().collect(0, 5, 0, weights)
    second = make_actor().collect(7, 5, 0, weights)
    assert not np.array_equal(first.states, second.states)


def test_a_slow_environment_makes_short_fragments(make_actor, weights, monkeypatch):
    monkeypatch.setattr(rollout, "_MOST_SECONDS", 0.0)
    fragment = make_actor(envs=2).collect(0, 1000, 0, weights)
    assert fragment.steps == 2 == len(fragment.rewards)


def test_an_actor_needs_no_jax(make_actor, weights):
    actor = make_actor(engine="jax")
    actor.collect(0, 5, 0, weights)
    assert actor._agent.settings.engine == "fused"


def test_weights_of_another_network_are_refused(make_actor, weights):
    with pytest.raises(ValueError, match="parameters has shape"):
        make_actor().collect(0, 5, 0, weights[:-1])
