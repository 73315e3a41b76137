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
def test_keys_agree_with_bins_counted_one_by_one(outside: str) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    warmup = generator.normal(size=(40, 4))
    important = np.array([2, 0])
    partition = make_partition(important, warmup, *unbounded(4), 7, outside)
    states = generator.normal(size=(60, 4)) * 3
    low = np.floor(warmup[:, important].min(axis=0))
    high = np.ceil(warmup[:, important].max(axis=0))
    cells = [cell_of(s, important, low, high, 7, outside) for s in states.tolist()]
    keys = [tuple(key) for key in cell_keys(partition, states).tolist()]
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
    partition = make_partition(np.arange(3), warmup, low, high, 10, "clip")
    assert partition.low.tolist() == [-1.0, 0.0, 5.0]
    assert (partition.low + 10 * partition.width).tolist() == pytest.approx([1.0, 4.0, 6.0])


@pytest.mark.parametrize("value", [0.0, 3.0, -1e30, 1e30])
def test_a_range_of_no_width_gets_one(value: float) -> None:
    partition = make_partition(np.array([0]), np.full((5, 1), value), *unbounded(1), 50, "clip")
    assert partition.width[0] > 0
    assert np.isfinite(partition.width[0])
    if abs(value) < 1e3:
        assert partition.width[0] == pytest.approx(1 / 50)


@pytest.mark.parametrize("outside", ["clip", "extend"])
def test_values_far_outside_have_a_cell(outside: str) -> None:
    f = FrugalFilter(warmup_steps=2, outside=outside, bounds=([0.0], [1.0]), bins=4)
    f.admit([[0.1], [0.9]], [0.0, 0.0])
    ids = f.cell_ids([[0.99], [1.01], [5.0], [1e30], [-1e30], [0.01]])
    assert len(set(ids.tolist())) == (2 if outside == "clip" else 6)
