"""DiverseFilter: as its slow twin, within the contract, through files, and in a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

import frugalrl
from frugalrl.admission.protocol import REPLACE, STORE
from reference.diverse import SlowDiverse


def stream(seed: int, rows: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """A walk whose steps grow, so that the first range is left."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rows, dimensions)) * np.linspace(0.1, 2.0, rows)[:, None]
    observations = np.cumsum(steps, axis=0) * 0.5 ** np.arange(dimensions)
    return observations, np.round(observations[:, 0] / 3) + rng.integers(0, 2, rows)


@pytest.mark.pure_python
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1000),
    capacity=st.integers(6, 40),
    run_length=st.integers(1, 9),
    tries=st.integers(1, 5),
    newest_share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    longest_stay=st.sampled_from([0.5, 1.5, 3.0, 1e9]),
    first_steps=st.integers(5, 50),
    batch=st.integers(1, 60),
)
def test_it_decides_as_its_slow_twin(
    seed: int,
    capacity: int,
    run_length: int,
    tries: int,
    newest_share: float,
    longest_stay: float,
    first_steps: int,
    batch: int,
) -> None:
    observations, rewards = stream(seed, 160, 3)
    arguments: dict[str, Any] = {"run_length": run_length, "tries": tries, "seed": seed}
    arguments |= {"newest_share": newest_share, "longest_stay": longest_stay}
    arguments["first_steps"] = first_steps
    fast, slow = frugalrl.DiverseFilter(**arguments), SlowDiverse(**arguments)
    fast.begin(None)
    free, row = list(range(capacity)), 0
    rng = np.random.default_rng(seed)
    while row < len(rewards):
        rows = slice(row, row + batch)
        made = fast.offer(observations[rows], rewards[rows], np.array(free, dtype=np.int64))
        for code, slot in zip(made.codes.tolist(), made.slots.tolist(), strict=True):
            expected = slow.take(observations[row], rewards[row], free)
            assert ({STORE: "store", REPLACE: "replace"}[code], slot) == expected
            free, row = free[1:], row + 1
        if rng.random() < 0.1 and not free:
            gone = int(rng.integers(capacity))
            fast.forget(gone)
            slow.forget(gone)
            fast.forget(gone)  # once more does nothing
            free = [gone]


@pytest.mark.parametrize("arguments", [{}, {"first_steps": 50, "run_length": 7, "tries": 3}])
def test_it_keeps_the_contract(arguments: dict[str, Any]) -> None:
    frugalrl.check_filter(lambda: frugalrl.DiverseFilter(**arguments))


@pytest.mark.parametrize(("newest_share", "least"), [(0.0, 150), (0.5, 100), (1.0, 20)])
def test_rare_transitions_outlive_common_ones(newest_share: float, least: int) -> None:
    rng = np.random.default_rng(0)
    f = frugalrl.DiverseFilter(
        run_length=5, first_steps=100, newest_share=newest_share, longest_stay=99
    )
    f.begin(None)
    where: dict[int, bool] = {}
    for step in range(5000):
        # One run of five in ten visits states far from where all the others are.
        is_rare = step // 5 % 10 == 0
        observation = rng.normal(size=(1, 2)) * (10.0 if is_rare else 0.1)
        free = np.arange(step, min(step + 1, 300)) if step < 300 else np.empty(0, dtype=np.int64)
        made = f.offer(observation, np.zeros(1), free)
        where[int(made.slots[0])] = is_rare
    assert len(where) == 300
    assert sum(where.values()) > least  # of 30 in a ring


def test_a_buffer_of_given_size_shares_states_as_a_ring_does(tmp_path: Any) -> None:
    box = Box(-np.inf, np.inf, (11,), np.float32)
    observations, rewards = stream(1, 4001, 11)
    buffers = [
        frugalrl.ReplayBuffer(
            500, observation_space=box, action_space=Box(-1, 1, (3,)), admission=f
        )
        for f in (None, frugalrl.DiverseFilter())
    ]
    for buffer in buffers:
        buffer.extend(
            observations[:-1], np.zeros((4000, 3)), rewards[:-1], observations[1:],
            np.zeros(4000, bool), np.zeros(4000, bool),
        )  # fmt: skip
    ring, diverse = buffers
    assert len(ring) == len(diverse) == 500
    own = diverse.nbytes - diverse.admission.nbytes
    assert own < 1.1 * ring.nbytes
    assert diverse.admission.nbytes / 500 < 12
    diverse.save(tmp_path / "buffer.safetensors")
    loaded = frugalrl.ReplayBuffer.load(tmp_path / "buffer.safetensors")
    for buffer in (diverse, loaded):
        buffer.extend(
            observations[:200], np.zeros((200, 3)), rewards[:200], observations[1:201],
            np.zeros(200, bool), np.zeros(200, bool),
        )  # fmt: skip
    np.testing.assert_array_equal(
        diverse.transitions().observations, loaded.transitions().observations
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"run_length": 0}, "run_length=0 is out of range; use an integer from 1"),
        ({"tries": 1.5}, "tries=1.5 is no integer; use one from 1"),
        ({"newest_share": 1.1}, "newest_share=1.1 is out of range; use a number from 0 to 1"),
        ({"longest_stay": 0}, "longest_stay=0 is out of range; use a number above 0"),
        ({"seed": -1}, "seed=-1 is out of range; use an integer from 0"),
    ],
)
def test_it_names_bad_arguments(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        frugalrl.DiverseFilter(**arguments)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("numbers", np.zeros((4, 2), np.int8)),
        ("slots", np.array([10**9] * 20)),
        ("places", 3),
        ("divisor", 0),
        ("written", np.zeros(3, np.int64)),
        ("rows", np.full((20, 4), np.nan)),
    ],
)
def test_a_state_that_does_not_fit_is_refused(part: str, value: Any) -> None:
    f = frugalrl.DiverseFilter()
    f.begin(None)
    observations, rewards = stream(0, 20, 3)
    f.offer(observations, rewards, np.arange(20))
    state = f.state_dict()
    frugalrl.DiverseFilter.from_state_dict(state)
    with pytest.raises(ValueError, match="DiverseFilter"):
        frugalrl.DiverseFilter.from_state_dict({**state, part: value})
