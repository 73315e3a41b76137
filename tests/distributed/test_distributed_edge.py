"""The edge filter: a small picture of a filter that decides like the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_ray import InlineRay

from frugalrl import FrugalFilter, ReplayBuffer
from frugalrl.admission.protocol import STORE
from frugalrl.distributed.edge import MOST_REWARDS, EdgeFilter, take_snapshot, thin


def stream(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make states that crowd in some cells, and rewards of several levels."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(count, 3)).astype(np.float32)
    rewards = rng.choice([-2.0, 0.0, 3.0], size=count) + rng.normal(size=count) * 0.5
    return states, rewards


def fitted(count: int, **settings) -> FrugalFilter:
    """Make a filter that has decided about a stream, for a buffer that never fills."""
    made = FrugalFilter(**{"warmup_steps": 100, "bins": 4, **settings})
    states, rewards = stream(count, 0)
    done = used = 0
    while done < count:
        free = np.arange(used, used + count)
        codes = made.offer(states[done:], rewards[done:], free).codes
        used += int((codes == STORE).sum())
        done += len(codes)
    return made


def learner_stores(learned: FrugalFilter, states: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    free = np.arange(10**6, 10**6 + len(rewards))
    whole = FrugalFilter.from_state_dict(learned.state_dict())
    return whole.offer(states, rewards, free).codes == STORE


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 100))
def test_few_rewards_of_a_cell_stand_for_all(count, most, seed):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 5, count).astype(np.uint64)
    rewards = rng.normal(size=count)
    cells, counts, chosen = thin(keys, rewards, most)
    ends = np.cumsum(counts)
    for cell, end, size in zip(cells, ends, counts, strict=True):
        held = np.sort(rewards[keys == cell])
        few = chosen[end - size : end]
        assert size == len(few) == min(len(held), most)
        # Spread by rank: no stretch of the whole is missed, and none counts twice.
        ranks = np.searchsorted(held, few)
        assert (np.diff(ranks) <= -(-len(held) // most)).all()
    assert len(chosen) == counts.sum()


@pytest.mark.parametrize("on_equivalent", ["replace", "discard"])
def test_where_nothing_is_left_out_it_decides_like_the_learner(on_equivalent):
    learned = fitted(300, bins=40, on_equivalent=on_equivalent)
    assert learned.cell_counts().max() <= MOST_REWARDS
    edge = EdgeFilter(take_snapshot(learned, 1, refresh=0.0), seed=0)
    states, rewards = stream(200, 1)
    expected = learner_stores(learned, states, rewards)
    assert 0 < expected.sum() < 200
    # Rewards travel as float32, so one just at the limit may fall to the other side.
    assert (edge.wants(states, rewards) == expected).mean() > 0.99


def test_crowded_cells_are_guessed_well():
    learned = fitted(5_000, dimension_threshold=0.99, density_threshold=0.3)
    assert learned.cell_counts().max() > 10 * MOST_REWARDS
    snapshot = take_snapshot(learned, 1, refresh=0.0)
    assert snapshot.nbytes < 0.1 * sum(
        part.nbytes for part in learned.state_dict()["phi"].values() if hasattr(part, "nbytes")
    )
    states, rewards = stream(300, 2)
    expected = learner_stores(learned, states, rewards)
    guessed = EdgeFilter(snapshot, seed=0).wants(states, rewards)
    assert (guessed == expected).mean() > 0.9


def test_it_follows_what_it_has_sent():
    edge = EdgeFilter(take_snapshot(fitted(300, bins=40), 1, refresh=0.0), seed=0)
    state = np.full((1, 3), 50.0, np.float32)
    assert edge.wants(state, np.array([7.0])).tolist() == [True]
    assert edge.wants(state, np.array([7.0])).tolist() == [False]


def test_some_replacements_are_sent_to_keep_the_buffer_fresh():
    learned = fitted(5_000, bandwidth=10.0, half_width=8.0)
    states, rewards = stream(1_000, 3)
    sent = {}
    for refresh in (0.0, 0.25, 1.0):
        sent[refresh] = EdgeFilter(take_snapshot(learned, 1, refresh), 0).wants(states, rewards)
    assert sent[1.0].all()
    replaced = (~sent[0.0]).sum()
    assert replaced > 500
    extra = (sent[0.25] & ~sent[0.0]).sum()
    assert 0.2 * replaced < extra < 0.3 * replaced


def test_nonsense_is_left_to_the_learner():
    edge = EdgeFilter(take_snapshot(fitted(300), 1, refresh=0.0), seed=0)
    states, rewards = stream(4, 4)
    states[1, 0] = np.nan
    rewards[2] = np.inf
    assert edge.wants(states, rewards)[1:3].all()


def test_a_learner_sends_its_filter_and_decides_all_the_same(make_loop):
    settings = {"admission": "fac", "fac_warmup_steps": 200, "fac_bins": 4, "steps": 1200}
    settings |= {"fac_half_width": 2.0, "fac_bandwidth": 2.0}
    loops = {}
    for name, edge in (("without", False), ("with", True)):
        loop = loops[name] = make_loop(InlineRay(), edge_filter=edge, **settings)
        loop.advance(1200, lambda: False)
        stats = loop.buffer.stats
        assert loop.env_steps == 1200 == stats.offered + loop.measures.withheld
        assert loop.updates == 1140
        _rebuilt_equals(loop.buffer)
    assert loops["without"].measures.withheld == 0
    assert loops["with"].measures.withheld > 300
    assert loops["with"].measures.bytes_received < 0.8 * loops["without"].measures.bytes_received
    assert loops["with"].measures.snapshots >= 1


def _rebuilt_equals(buffer: ReplayBuffer) -> None:
    """Check that phi is about what is stored."""
    assert buffer.admission.stored == len(buffer)
