"""Questions to many numbers at once, against the same questions to one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frugalrl.admission.compiled import compiled
from frugalrl.admission.lanes import LANES, count_below, first_near, index_of_least, least_distance


@compiled
def counted(numbers: Any, first: Any, among: Any, origin: Any, bound: Any) -> Any:
    return count_below(numbers, first, among, origin, bound)


@compiled
def least(numbers: Any, first: Any, start: Any, end: Any) -> Any:
    return index_of_least(numbers, first, start, end)


@compiled
def near(numbers: Any, first: Any, start: Any, end: Any, origin: Any, within: Any) -> Any:
    return first_near(numbers, first, start, end, origin, within)


@compiled
def nearest(numbers: Any, first: Any, start: Any, end: Any, origin: Any) -> Any:
    return least_distance(numbers, first, start, end, origin)


FEW = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, np.inf, np.nan])


@pytest.mark.pure_python
@given(
    st.lists(FEW, min_size=3 * LANES, max_size=3 * LANES),
    st.integers(0, 2),
    st.integers(0, LANES),
    st.sampled_from([-0.5, 0.0, 0.5]),
    st.sampled_from([-1.0, 0.0, 1.0, np.inf, np.nan]),
)
def test_as_many_are_below_as_one_by_one(
    values: list[float], row: int, among: int, origin: float, bound: float
) -> None:
    numbers = np.array(values).reshape(3, LANES)
    with np.errstate(invalid="ignore"):
        expected = sum(x - origin < bound for x in numbers[row, :among])
        assert counted(numbers, row * LANES, among, origin, bound) == expected


@pytest.mark.pure_python
@given(
    st.lists(st.integers(-3, 3), min_size=2 * LANES, max_size=2 * LANES),
    st.integers(0, 1),
    st.integers(0, LANES - 1),
    st.integers(1, LANES),
    st.sampled_from([0, 2**31 - 4, -(2**31) + 3]),
)
def test_the_least_is_found_among_those_asked_for(
    values: list[int], row: int, start: int, length: int, base: int
) -> None:
    numbers = (np.array(values) + base).astype(np.int32).reshape(2, LANES)
    end = min(LANES, start + length)
    asked = numbers[row, start:end].tolist()
    assert least(numbers, row * LANES, start, end) == start + asked.index(min(asked))


def test_the_largest_number_of_all_can_be_the_least() -> None:
    numbers = np.full(LANES, 2**31 - 1, dtype=np.int32)
    assert least(numbers, 0, 5, LANES) == 5


@pytest.mark.pure_python
@given(
    st.lists(st.integers(-9, 9).map(float), min_size=2 * LANES, max_size=2 * LANES),
    st.integers(0, 1),
    st.integers(0, LANES - 1),
    st.integers(0, LANES),
    st.sampled_from([-12.0, 0.0, 3.5]),
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
)
def test_the_nearest_and_the_first_near_one_are_found(
    values: list[float], row: int, start: int, length: int, origin: float, within: float
) -> None:
    numbers = np.array(values).reshape(2, LANES)
    end = min(LANES, start + length)
    distances = [abs(x - origin) for x in numbers[row, start:end]]
    assert nearest(numbers, row * LANES, start, end, origin) == min(distances, default=np.inf)
    expected = [start + i for i, distance in enumerate(distances) if distance <= within]
    found = near(numbers, row * LANES, start, end, origin, within)
    assert found == expected[0] if expected else found >= LANES
