"""Cells: same cell, same key; the range of each dimension; values far outside."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl import FrugalFilter
from frugalrl.admission.partition import cell_keys, known_bounds, make_partition
from reference.admission import cell_of

pytestmark = pytest.mark.pure_python


def unbounded(dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    return known_bounds(None, dimensions)


@pytest.mark.parametrize("outside", ["clip", "extend"])
@pytest.mark.parametrize("bins", [[7, 7, 7, 7], [3, 1, 11, 40]])
def test_keys_agree_with_bins_counted_one_by_one(outside: str, bins: list[int]) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    warmup = generator.normal(size=(40, 4))
    important = np.array([2, 0])
    partition = make_partition(important, warmup, unbounded(4), np.array(bins), outside)
    states = generator.normal(size=(60, 4)) * 3
    low = np.floor(warmup[:, important].min(axis=0))
    high = np.ceil(warmup[:, important].max(axis=0))
    used = [bins[dimension] for dimension in important]
    cells = [cell_of(s, important, low, high, used, outside) for s in states.tolist()]
    keys = cell_keys(partition, states).tolist()
    assert len(set(cells)) == len(set(keys)) == len(set(zip(cells, keys, strict=True)))
    assert len(set(cells)) > 10


def test_space_gives_the_range_where_it_is_known() -> None:
    largest = np.finfo(np.float32).max
    space = spaces.Box(
        np.array([-1.0, -np.inf, -largest], np.float32), np.array([1.0, np.inf, largest])
    )
    low, high = known_bounds(space, 3)
    assert low.tolist() == [-1.0, -np.inf, -np.inf]
    warmup = np.array([[0.0, 0.2, 5.5], [0.5, 3.7, 5.5]])
    partition = make_partition(np.arange(3), warmup, (low, high), np.full(3, 10), "clip")
    assert partition["low"].tolist() == [-1.0, 0.0, 5.0]
    assert (partition["low"] + 10 * partition["width"]).tolist() == pytest.approx([1.0, 4.0, 6.0])


@pytest.mark.parametrize("value", [0.0, 3.0, -1e30, 1e30])
def test_a_range_of_no_width_gets_one(value: float) -> None:
    warmup = np.full((5, 1), value)
    partition = make_partition(np.array([0]), warmup, unbounded(1), np.array([50]), "clip")
    assert partition["width"][0] > 0
    assert np.isfinite(partition["width"][0])
    if abs(value) < 1e3:
        assert partition["width"][0] == pytest.approx(1 / 50)


@pytest.mark.parametrize("outside", ["clip", "extend"])
def test_values_far_outside_have_a_cell(outside: str) -> None:
    f = FrugalFilter(warmup_steps=2, outside=outside, bounds=([0.0], [1.0]), bins=4)
    f.admit([[0.1], [0.9]], [0.0, 0.0])
    ids = f.cell_ids([[0.99], [1.01], [5.0], [1e30], [-1e30], [0.01]])
    assert len(set(ids.tolist())) == (2 if outside == "clip" else 6)


def test_bins_of_each_dimension() -> None:
    f = FrugalFilter(
        warmup_steps=3,
        bins=[2, 9, 5],
        dimension_threshold=0.01,
        bounds=([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
    )
    f.admit([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], [0.0, 0.0, 0.0])
    assert f.important_dimensions_.tolist() == [2, 0]
    low, high = f.bounds_
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    along_first = f.cell_ids([[x, 0.0, 0.5] for x in np.linspace(0, 1, 100)])
    along_last = f.cell_ids([[0.5, 0.0, x] for x in np.linspace(0, 1, 100)])
    along_unimportant = f.cell_ids([[0.5, x, 0.5] for x in np.linspace(0, 1, 100)])
    assert [len(set(ids)) for ids in (along_first, along_last, along_unimportant)] == [2, 5, 1]
    copied = FrugalFilter.from_state_dict(f.state_dict())
    assert copied.settings.bins == (2, 9, 5)
    assert copied.cell_ids([[0.7, 0.0, 0.7]]) == f.cell_ids([[0.7, 0.0, 0.7]])


@pytest.mark.parametrize(
    ("bins", "complaint"),
    [
        ([], "is empty"),
        ([5, 0], r"bins\[1\]=0"),
        ([5, 2.5], r"bins\[1\]=2.5"),
        ("50", "bins='50'"),
        ([[5]], r"bins\[0\]="),
    ],
)
def test_bins_that_cannot_work(bins: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        FrugalFilter(bins=bins)


def test_bins_must_fit_the_observation() -> None:
    f = FrugalFilter(warmup_steps=9, bins=[50, 20])
    for _ in range(2):
        with pytest.raises(ValueError, match="bins has 2 numbers, but the observation has 3"):
            f.begin(spaces.Box(-1, 1, (3,)))
    f.begin(spaces.Box(-1, 1, (2,)))
