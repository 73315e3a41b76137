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


def test_the_mean_of_recent_episodes_by_hand() -> None:
    # Rows: two episodes of mean 1, none, three of mean 4, five of mean 10; a window of four.
    found = measures.recent_mean([2, 2, 5, 10], [1.0, math.nan, 4.0, 10.0], window=4)
    np.testing.assert_allclose(found, [1.0, 1.0, (1 + 3 * 4) / 4, 10.0])
    assert math.isnan(measures.recent_mean([0, 1], [math.nan, 3.0])[0])


def test_the_mean_of_recent_episodes_is_stable_baselines3s() -> None:
    from collections import deque

    rewards = np.random.default_rng(0).normal(size=350)
    latest: deque[float] = deque(maxlen=100)
    expected = []
    for reward in rewards:
        latest.append(reward)
        expected.append(np.mean(latest))
    found = measures.recent_mean(np.arange(1, 351), rewards)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("rewards", [[], [1.0, math.nan]])
def test_convergence_point_without_usable_rewards_is_none(rewards: list[float]) -> None:
    assert measures.convergence_point(range(len(rewards)), rewards) is None


def test_convergence_point_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="2 steps for 3 rewards"):
        measures.convergence_point([1, 2], [1, 2, 3])


def test_gain_cut_and_change_by_hand() -> None:
    assert measures.reduction(200, 150) == 25.0
    assert measures.reduction(100, 130) == -30.0
    assert measures.reduction(20_000, 11_412) == pytest.approx(42.94)
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


def test_mean_curve_interpolates_onto_the_common_range() -> None:
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 20.0]))
    second = (np.array([5.0, 15.0]), np.array([1.0, 3.0]))
    steps, values = measures.mean_curve([first, second, (np.empty(0), np.empty(0))])
    np.testing.assert_allclose(steps, [5, 10, 15])
    np.testing.assert_allclose(values, [[5, 10, 15], [1, 2, 3]])
    assert measures.mean_curve([])[0].size == 0
