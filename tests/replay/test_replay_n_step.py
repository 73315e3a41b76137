"""NStepReturns against the obvious, and its state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl.replay.n_step import NStepReturns
from reference.n_step import Step, n_step_transitions


def walk(steps, environments, seed):
    """Steps of environments that end, are cut off and now and then jump: [environment][step]."""
    generator = np.random.default_rng(seed)
    walks = [[] for _ in range(environments)]
    for walked in walks:
        state = 0.0
        for _ in range(steps):
            arrived = float(generator.integers(100))
            terminated, truncated, jumps = generator.random(3) < (0.15, 0.15, 0.1)
            reward, action = generator.random(2)
            walked.append(Step(state, action, reward, arrived, bool(terminated), bool(truncated)))
            state = arrived + 0.5 if terminated or truncated or jumps else arrived
    return walks


def add(made, walks, step):
    now = [walked[step] for walked in walks]
    return made.add(*(np.array(column) for column in zip(*now, strict=True)))


def rows(transitions):
    return list(zip(*(column.tolist() for column in transitions), strict=True))


@given(
    n=st.integers(1, 5),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    environments=st.integers(1, 4),
    steps=st.integers(1, 30),
    seed=st.integers(0, 100),
    copied=st.integers(0, 30),
)
def test_agrees_with_the_obvious(n, gamma, environments, steps, seed, copied):
    walks = walk(steps, environments, seed)
    made = NStepReturns(n, gamma, environments)
    emitted = []
    for step in range(steps):
        if step == copied:
            made = NStepReturns.from_state_dict(made.state_dict())
        emitted += rows(add(made, walks, step))
    expected = [row for walked in walks for row in n_step_transitions(walked, n, gamma)]
    np.testing.assert_allclose(sorted(emitted), sorted(expected), rtol=1e-6)
    assert made.held_back == environments * steps - len(emitted)


def test_one_environments_transitions_come_oldest_first():
    walks = walk(60, 1, seed=3)
    made = NStepReturns(3, 0.9, 1)
    emitted = [row for step in range(60) for row in rows(add(made, walks, step))]
    np.testing.assert_allclose(emitted, n_step_transitions(walks[0], 3, 0.9), rtol=1e-6)


@pytest.mark.parametrize("observed", [np.float32, np.float64])
def test_types_that_change_on_the_way_lose_nothing(observed):
    made, no = NStepReturns(2, 1.0, 1), np.zeros(1, bool)
    kept = []
    for step, action in enumerate([[[0]], [[0.75]], [[-0.5]]]):
        state = np.full((1, 2), step / 3)
        given = state.astype(np.float32 if step == 0 else observed)
        kept.append(made.add(given, np.array(action), np.ones(1), state + 1 / 3, no, no))
    assert [len(done.rewards) for done in kept] == [0, 1, 1]
    assert [done.actions.tolist() for done in kept[1:]] == [[[0.0]], [[0.75]]]
    assert [done.rewards.tolist() for done in kept[1:]] == [[2.0], [2.0]]


def test_one_step_is_the_step_itself():
    walks = walk(20, 3, seed=1)
    made = NStepReturns(1, 0.99, 3)
    for step in range(20):
        now = [walked[step] for walked in walks]
        np.testing.assert_allclose([row[:6] for row in rows(add(made, walks, step))], now)
    assert made.flush() is None


def test_flush_gives_shorter_transitions_once():
    made = NStepReturns(3, 0.5, 1)
    false = np.array([False])
    for state in (0.0, 1.0):
        made.add(*np.array([[state], [7.0], [1.0], [state + 1.0]]), false, false)
    assert made.held_back == 2
    assert rows(made.flush()) == [
        (0.0, 7.0, 1.5, 2.0, False, True, 0.25),
        (1.0, 7.0, 1.0, 2.0, False, True, 0.5),
    ]
    assert made.held_back == 0
    assert made.flush() is None


def test_what_is_given_does_not_change_later():
    walks = walk(10, 2, seed=2)
    made = NStepReturns(2, 0.9, 2)
    first = [add(made, walks, step) for step in range(5)]
    before = [rows(transitions) for transitions in first]
    for step in range(5, 10):
        add(made, walks, step)
    assert [rows(transitions) for transitions in first] == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 0.9, 1), "n=0"), ((2, 1.5, 1), "gamma=1.5"), ((2, 0.9, 0), "environments=0")],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        NStepReturns(*arguments)


def test_refuses_a_state_that_does_not_fit():
    made = NStepReturns(3, 0.9, 2)
    add(made, walk(1, 2, seed=0), 0)
    state = made.state_dict()
    assert made.nbytes > 0
    for name, value in (
        ("held", np.array([3, 0])),
        ("held", np.array([1])),
        ("arrived", np.zeros((2, 5))),
        ("returns", np.zeros((2, 2))),
    ):
        with pytest.raises(ValueError, match="not the state of n-step returns"):
            NStepReturns.from_state_dict({**state, name: value})
    del state["seen"]
    with pytest.raises(ValueError, match="not the state of n-step returns"):
        NStepReturns.from_state_dict(state)
