"""Theorem measures on buffers small enough to count by hand."""

import math

import numpy as np
import pytest

from frugalrl.bench import contents


def test_classes_share_cell_and_reward_bin() -> None:
    # Bins of width 0.4: 0.0 and 0.39 together, 0.4 next, -0.01 below.
    classes = contents.equivalence_classes(
        [0, 0, 0, 0, 1, 1], [0.0, 0.39, 0.4, -0.01, 0.1, 0.2], beta=0.2
    )
    assert classes[0] == classes[1]
    assert classes[4] == classes[5]
    assert len(set(classes.tolist())) == 4


def test_classes_of_nothing() -> None:
    assert contents.equivalence_classes([], [], beta=0.2).size == 0


def test_one_repeated_element_meets_the_theorems_exactly() -> None:
    # m = 8 with one element four times: lambda = 3, classes 5.
    measures = contents.measure_buffer(np.array([0, 0, 0, 0, 1, 2, 3, 4]))
    assert (measures["size"], measures["classes"], measures["surplus"]) == (8, 5, 3)
    # H = -(1/2) log(1/2) - 4 (1/8) log(1/8) = 0.5 log 2 + 1.5 log 2 = 2 log 2.
    assert measures["entropy"] == pytest.approx(2 * math.log(2))
    assert measures["entropy_limit"] == pytest.approx(3 * math.log(2))
    # (3 + 1) log(3 + 1) / 8 = log 2: the theorem's gap is the measured one.
    assert measures["theorem_gap"] == pytest.approx(math.log(2))
    assert measures["gap"] == pytest.approx(math.log(2))


def test_several_repeated_elements_leave_the_theorems_formula() -> None:
    # Two elements twice each: gap = 2 * 2 log 2 / 4 = log 2, the formula says 3 log 3 / 4.
    measures = contents.measure_buffer(np.array([0, 0, 1, 1]))
    assert measures["gap"] == pytest.approx(math.log(2))
    assert measures["theorem_gap"] == pytest.approx(3 * math.log(3) / 4)


def test_a_buffer_without_equivalents_has_the_full_entropy() -> None:
    measures = contents.measure_buffer(np.arange(10))
    assert measures["surplus"] == 0
    assert measures["gap"] == pytest.approx(0.0, abs=1e-12)
    assert measures["theorem_gap"] == 0.0


def test_minibatches_of_one_class_repeat_everything() -> None:
    measures = contents.measure_minibatches(np.full(3, 7), 4, np.random.default_rng(0), batches=3)
    assert measures["zeta"] == 3.0
    assert measures["factor"] == 4.0  # (4 + 9 + 3) / 4
    single = contents.measure_minibatches(np.full(3, 7), 1, np.random.default_rng(0), batches=3)
    assert (single["zeta"], single["factor"]) == (0.0, 1.0)
    assert measures["pairs"] == 12.0
    assert measures["pair_factor"] == 4.0


def test_minibatch_pairs_match_their_expectation() -> None:
    # With replacement the expected number of ordered pairs is b (b - 1) sum of squared shares.
    classes = np.repeat(np.arange(4), [1, 2, 3, 4])
    expected = 8 * 7 * (1 + 4 + 9 + 16) / 100
    measures = contents.measure_minibatches(classes, 8, np.random.default_rng(1), batches=4_000)
    assert measures["pairs"] == pytest.approx(expected, rel=0.03)
