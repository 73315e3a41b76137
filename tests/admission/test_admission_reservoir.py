"""ReservoirFilter: as its slow twin, within the contract, through files, and in a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

import frugalrl
from frugalrl.admission.protocol import REPLACE, STORE
from reference.reservoir import SlowReservoir


@pytest.mark.pure_python
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    capacity=st.integers(1, 40),
    newest_share=st.sampled_from([0.0, 0.3, 0.75, 1.0]),
    run_length=st.integers(1, 9),
    batch=st.integers(1, 60),
)
def test_it_decides_as_its_slow_twin(
    seed: int, capacity: int, newest_share: float, run_length: int, batch: int
) -> None:
    arguments: dict[str, Any] = {"newest_share": newest_share, "run_length": run_length}
    fast = frugalrl.ReservoirFilter(**arguments, seed=seed)
    slow = SlowReservoir(**arguments, seed=seed)
    fast.begin(None)
    free, row = list(range(capacity)), 0
    rng = np.random.default_rng(seed)
    while row < 300:
        made = fast.offer(np.zeros((batch, 2)), np.zeros(batch), np.array(free, dtype=np.int64))
        for code, slot in zip(made.codes.tolist(), made.slots.tolist(), strict=True):
            assert ({STORE: "store", REPLACE: "replace"}[code], slot) == slow.take(free)
            free, row = free[1:], row + 1
        if rng.random() < 0.2 and not free:
            gone = int(rng.integers(capacity))
            fast.forget(gone)
            slow.forget(gone)
            fast.forget(gone)  # once more does nothing
            free = [gone]
        if rng.random() < 0.1:
            fast = frugalrl.ReservoirFilter.from_state_dict(fast.state_dict())


@pytest.mark.parametrize("arguments", [{}, {"run_length": 7, "newest_share": 0.2}])
def test_it_keeps_the_contract(arguments: dict[str, Any]) -> None:
    frugalrl.check_filter(lambda: frugalrl.ReservoirFilter(**arguments))


def test_one_part_is_the_newest_and_the_other_an_even_sample() -> None:
    steps, places = 20_000, 1_000
    ages = []
    for seed in range(20):
        f = frugalrl.ReservoirFilter(newest_share=0.5, seed=seed)
        f.begin(None)
        made = f.offer(np.zeros((steps, 1)), np.zeros(steps), np.arange(places))
        step_in = dict(zip(made.slots.tolist(), range(steps), strict=True))
        ages += [steps - 1 - step for step in step_in.values()]
        assert len(step_in) == places
    recent = np.array(ages) < places // 2
    assert 0.49 < recent.mean() < 0.53
    older = np.array(ages)[~recent]
    assert 0.47 < np.mean(older > steps / 2) < 0.54
    assert 0.08 < np.mean(older > 0.9 * steps) < 0.12


def test_a_buffer_of_given_size_shares_states_as_a_ring_does(tmp_path: Any) -> None:
    box = Box(-np.inf, np.inf, (11,), np.float32)
    observations = np.random.default_rng(1).normal(size=(4001, 11))
    buffers = [
        frugalrl.ReplayBuffer(
            500, observation_space=box, action_space=Box(-1, 1, (3,)), admission=f
        )
        for f in (None, frugalrl.ReservoirFilter())
    ]
    for buffer in buffers:
        buffer.extend(
            observations[:-1], np.zeros((4000, 3)), np.zeros(4000), observations[1:],
            np.zeros(4000, bool), np.zeros(4000, bool),
        )  # fmt: skip
    ring, sampled = buffers
    assert len(ring) == len(sampled) == 500
    assert sampled.nbytes - sampled.admission.nbytes < 1.15 * ring.nbytes
    assert sampled.admission.nbytes / 500 < 3
    sampled.save(tmp_path / "buffer.safetensors")
    loaded = frugalrl.ReplayBuffer.load(tmp_path / "buffer.safetensors")
    for buffer in (sampled, loaded):
        buffer.extend(
            observations[:200], np.zeros((200, 3)), np.zeros(200), observations[1:201],
            np.zeros(200, bool), np.zeros(200, bool),
        )  # fmt: skip
    np.testing.assert_array_equal(
        sampled.transitions().observations, loaded.transitions().observations
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"run_length": 0}, "run_length=0 is out of range; use an integer from 1"),
        ({"newest_share": 1.1}, "newest_share=1.1 is out of range; use a number from 0 to 1"),
        ({"seed": -1}, "seed=-1 is out of range; use an integer from 0"),
    ],
)
def test_it_names_bad_arguments(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        frugalrl.ReservoirFilter(**arguments)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("is_held", np.ones(100, bool)),
        ("ring", np.array([0, 0])),
        ("sample", np.array([10**6])),
        ("passed", -1),
        ("overwriting", [0, 2**62]),
        ("overwriting", [2**62, 0]),
    ],
)
def test_a_state_that_does_not_fit_is_refused(part: str, value: Any) -> None:
    f = frugalrl.ReservoirFilter()
    f.begin(None)
    f.offer(np.zeros((50, 3)), np.zeros(50), np.arange(20))
    state = f.state_dict()
    frugalrl.ReservoirFilter.from_state_dict(state)
    with pytest.raises(ValueError, match=r"ReservoirFilter|passed"):
        frugalrl.ReservoirFilter.from_state_dict({**state, part: value})


def test_a_state_whose_ring_is_too_short_is_refused() -> None:
    f = frugalrl.ReservoirFilter(run_length=5)
    f.begin(None)
    f.offer(np.zeros((50, 3)), np.zeros(50), np.arange(20))
    state = f.state_dict()
    runs = np.append(state["ring"], state["sample"])
    empty = {"ring": runs[:0], "sample": runs, "passed": 100}
    with pytest.raises(ValueError, match="ReservoirFilter"):
        frugalrl.ReservoirFilter.from_state_dict({**state, **empty})
