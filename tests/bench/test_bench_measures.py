"""Measures on numbers worked out by hand."""

import math

import numpy as np
import pytest

from frugalrl.bench import measures


def test_convergence_point_is_where_the_band_is_entered_for_good() -> None:
    # r_max 100, band [90, 100]: in at 20, out at 30, in for good at 40.
    steps = [10, 20, 30, 40, 50]
    assert measures.convergence_point(steps, [10, 95, 80, 91, 100]) == 40.0


def test_convergence_point_of_a_run_that_ends_outside_its_band_is_none() -> None:
    assert measures.convergence_point([10, 20, 30], [10, 100, 50]) is None


def test_convergence_point_of_a_flat_run_is_its_first_evaluation() -> None:
    assert measures.convergence_point([5, 10], [3, 3]) == 5.0


def test_convergence_point_of_negative_rewards_shifts_by_the_worst() -> None:
    # Shifted by 1000: 0, 700, 860, 850, 880; r_max 880, band from 792: entered at step 3.
    rewards = [-1000, -300, -140, -150, -120]
    assert measures.convergence_point([1, 2, 3, 4, 5], rewards) == 3.0


def test_convergence_point_with_window_uses_the_trailing_mean() -> None:
    # Means of two: 0, 50, 95, 95, 97.5; r_max 97.5, band from 87.75: entered at the third.
    rewards = [0, 100, 90, 100, 95]
    assert measures.convergence_point([1, 2, 3, 4, 5], rewards, window=2) == 3.0
    # Without it: band from 90, entered at the second.
    assert measures.convergence_point([1, 2, 3, 4, 5], rewards) == 2.0


@pytest.mark.parametrize("rewards", [[], [1.0, math.nan]])
def test_convergence_point_without_usable_rewards_is_none(rewards: list[float]) -> None:
    assert measures.convergence_point(range(len(rewards)), rewards) is None


def test_convergence_point_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="2 steps for 3 rewards"):
        measures.convergence_point([1, 2], [1, 2, 3])


def test_trailing_mean_by_hand() -> None:
    np.testing.assert_allclose(measures.trailing_mean([1, 2, 3, 10], 3), [1, 1.5, 2, 5])
    with pytest.raises(ValueError, match="window"):
        measures.trailing_mean([1], 0)
    with pytest.raises(ValueError, match="one-dimensional"):
        measures.trailing_mean([[1]], 1)


def test_gain_cut_and_change_by_hand() -> None:
    assert measures.convergence_gain(200, 150) == 25.0
    assert measures.convergence_gain(100, 130) == -30.0
    assert measures.buffer_cut(20_000, 11_412) == pytest.approx(42.94)
    assert measures.reward_change(-100, -90) == 10.0
    assert measures.reward_change(50, 40) == -20.0
    assert math.isnan(measures.reward_change(0, 5))


def test_translation_of_the_papers_own_example() -> None:
    baseline, fac = measures.translate_rewards(-143.97, -144.66)
    assert baseline == pytest.approx(144.66)
    assert fac == pytest.approx(143.97)
    assert measures.translate_rewards(3.0, 4.0) == (3.0, 4.0)
    assert measures.translate_rewards(-5.0, 10.0) == (10.0, 25.0)


def test_sample_efficiency_by_hand() -> None:
    # 12 reward in 30 against 10 in 100: 0.4 over 0.1.
    assert measures.sample_efficiency(10, 100, 12, 30) == pytest.approx(4.0)
    # -1 and -3 are shifted by 4 to 3 and 1: (1/10) over (3/10).
    assert measures.sample_efficiency(-1, 10, -3, 10) == pytest.approx(1 / 3)
    assert math.isnan(measures.sample_efficiency(0, 10, 5, 10))
    assert math.isnan(measures.sample_efficiency(1, 10, 5, 0))


def test_control_cost_is_the_sum_of_squared_norms() -> None:
    assert measures.control_cost([[1, 2], [3, 0]]) == 14.0
    assert measures.control_cost([]) == 0.0


def test_area_under_curve_by_hand() -> None:
    # Trapezia 5 over [0, 1] and 2 * 15 over [1, 3], over a length of 3.
    assert measures.area_under_curve([0, 1, 3], [0, 10, 20]) == pytest.approx(35 / 3)
    assert measures.area_under_curve([4], [7]) == 7.0
    with pytest.raises(ValueError, match="one reward a step"):
        measures.area_under_curve([], [])


def test_mean_curve_interpolates_onto_the_common_range() -> None:
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 20.0]))
    second = (np.array([5.0, 15.0]), np.array([1.0, 3.0]))
    steps, values = measures.mean_curve([first, second, (np.empty(0), np.empty(0))])
    np.testing.assert_allclose(steps, [5, 10, 15])
    np.testing.assert_allclose(values, [[5, 10, 15], [1, 2, 3]])
    assert measures.mean_curve([])[0].size == 0
