"""ReleasedFilter decides as the obvious reading of the released code's rule does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KernelDensity

import frugalrl
from frugalrl.admission.protocol import REPLACE, STORE
from frugalrl.admission.released import released_density
from reference.admission import SlowReleased, cell_of

CODES = {"store": STORE, "replace": REPLACE}


def test_density_is_scikit_learns_at_five_points() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    held = generator.normal(size=200)
    fitted = KernelDensity(kernel="epanechnikov", bandwidth=0.3).fit(held[:, None])
    for reward in generator.normal(size=20):
        points = np.linspace(reward - 0.2, reward + 0.2, 5)
        expected = float(np.exp(fitted.score_samples(points[:, None])).sum() * 0.1)
        assert released_density(held, 200, reward, 0.3, 0.2) == pytest.approx(expected)


def test_it_is_a_quarter_too_high_on_a_flat_density() -> None:
    held = np.linspace(-5, 5, 20_001)
    assert released_density(held, len(held), 0.0, 0.3, 0.2) == pytest.approx(0.04 * 1.25, rel=1e-3)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([0.05, 0.2, 0.6]))
def test_decides_as_its_slow_twin(seed: int, capacity: int, threshold: float) -> None:
    generator = np.random.Generator(np.random.PCG64(seed))
    observations = generator.normal(size=(120, 3)).round(1)
    rewards = generator.normal(size=120).round(1)
    warmup, important, bins = 30, [2, 0], 4
    f = frugalrl.ReleasedFilter(
        important, warmup_steps=warmup, bins=bins, density_threshold=threshold, decay=20.0
    )
    f.begin(None)
    slow = SlowReleased(0.2, 0.3, threshold, 20.0)
    # The ranges of dimensions 0 and 1 for the values of dimensions 2 and 0.
    low = np.floor(observations[:warmup, :2].min(axis=0)).tolist()
    high = np.ceil(observations[:warmup, :2].max(axis=0)).tolist()
    held: list[int] = []
    early: list[int] = []
    for row, (state, reward) in enumerate(zip(observations, rewards.tolist(), strict=True)):
        cell = cell_of(state.tolist(), important, low, high, [bins, bins], "clip")
        free = [slot for slot in range(capacity) if slot not in held][:1]
        made = f.offer(state[None], np.array([reward]), np.array(free, dtype=np.int64))
        code, slot = int(made.codes[0]), int(made.slots[0])
        if code == STORE and slot < 0:
            slot = held.pop(0)
            f.forget(slot)
            slow.evict(slot)
            f.place(state, reward, slot)
        if row < warmup:
            assert code == STORE
            slow.in_use.add(slot)
            early.append(slot)
            if row == warmup - 1:
                for past, at in enumerate(early):
                    where = cell_of(
                        observations[past].tolist(), important, low, high, [bins, bins], "clip"
                    )
                    slow.rewards.setdefault(where, []).append(float(rewards[past]))
                    slow.slot.setdefault(where, at)
        else:
            expected = slow.decide(cell, reward, slot)
            assert (code, slot) == (CODES[expected[0]], expected[1])
        held = [*(other for other in held if other != slot), slot]


def make() -> Any:
    return frugalrl.ReleasedFilter([2, 0], warmup_steps=60, bins=5)


def test_it_keeps_the_contract() -> None:
    frugalrl.check_filter(make)
    assert "ReleasedFilter([2, 0], warmup_steps=60, bins=5" in repr(make())
    assert make().nbytes == 0


def test_a_buffer_with_it_grows_by_few() -> None:
    space = spaces.Box(-10, 10, (3,))
    buffer = frugalrl.ReplayBuffer(
        500, observation_space=space, action_space=space, admission=make(), environments=5
    )
    generator = np.random.Generator(np.random.PCG64(1))
    for _ in range(60):
        states, flags = generator.normal(size=(5, 3)), np.zeros(5, bool)
        buffer.add(states, states, np.zeros(5), states, flags, flags)
    assert 60 <= len(buffer) < 120  # one more for each cell that the warm-up has not seen
    assert buffer.stats.replaced == 300 - len(buffer)
    copied = frugalrl.ReplayBuffer.from_state_dict(buffer.state_dict())
    assert copied.admission.name == "fac-released"
    assert copied.admission.nbytes == buffer.admission.nbytes > 0


def test_an_offer_made_again_gets_the_same_answer() -> None:
    class Repeated(frugalrl.ReleasedFilter):
        def offer(self, *offer: Any) -> Any:
            return [super(Repeated, self).offer(*offer) for _ in range(2)][-1]

    space = spaces.Box(-10, 10, (3,))
    f = Repeated([2, 0], warmup_steps=60, bins=5)
    buffer = frugalrl.ReplayBuffer(50, observation_space=space, action_space=space, admission=f)
    generator = np.random.Generator(np.random.PCG64(2))
    no = np.zeros(7, dtype=np.bool_)
    for _ in range(30):
        states, rewards = generator.normal(size=(7, 3)).round(1), generator.normal(size=7).round(1)
        buffer.extend(states, states, rewards, states, no, no)
    assert buffer.stats.replaced > 0
    assert set(buffer.slots().tolist()) == f._in_use


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"important_dimensions": []}, "important_dimensions is empty"),
        ({"important_dimensions": [0, -1]}, r"important_dimensions\[1\]=-1"),
        ({"important_dimensions": [1.5]}, r"important_dimensions\[0\]=1.5"),
        ({"bins": [3, 4]}, "bins="),
        ({"decay": 0.0}, "decay=0.0"),
        ({"bounds": "space"}, "bounds='space'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        frugalrl.ReleasedFilter(**{"important_dimensions": [0], **arguments})


@pytest.mark.parametrize("important", [[3], [0, 1, 2, 0]])
def test_dimensions_that_the_observation_does_not_have(important: list[int]) -> None:
    f = frugalrl.ReleasedFilter(important, warmup_steps=9)
    with pytest.raises(ValueError, match="does not fit an observation of 3 dimensions"):
        f.begin(spaces.Box(-1, 1, (3,)))
    with pytest.raises(ValueError, match="does not fit an observation of 3 dimensions"):
        f.offer(np.zeros((1, 3)), np.zeros(1), np.arange(1))
