"""Statistics against hand-worked numbers, SciPy, and rliable where it is right."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from frugalrl.bench import statistics

finite = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def iqm(*scores: float) -> float:
    return float(statistics.pooled_iqm(np.array(scores, dtype=np.float64)))


def test_iqm_by_hand() -> None:
    # Eight values: two cut at each end, mean of 3, 4, 5, 6.
    assert iqm(8, 1, 2, 3, 4, 5, 6, 70) == 4.5
    # Five: one at each end. Three: none.
    assert iqm(-99, 1, 2, 3, 99) == 2.0
    assert iqm(1, 2, 6) == 3.0


@given(arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=finite))
def test_iqm_is_rliables(scores: np.ndarray) -> None:
    from rliable import metrics as reference

    assert statistics.pooled_iqm(*scores.T) == pytest.approx(reference.aggregate_iqm(scores))
    assert statistics.pooled_mean(*scores.T) == pytest.approx(reference.aggregate_mean(scores))


@given(
    st.integers(1, 4).flatmap(
        lambda tasks: st.tuples(
            arrays(np.float64, st.tuples(st.integers(1, 6), st.just(tasks)), elements=finite),
            arrays(np.float64, st.tuples(st.integers(1, 6), st.just(tasks)), elements=finite),
        )
    )
)
def test_probability_of_improvement_is_rliables(pair: tuple[np.ndarray, np.ndarray]) -> None:
    from rliable import metrics as reference

    x, y = pair
    ours = statistics.improvement(*x.T, *y.T)
    assert ours == pytest.approx(reference.probability_of_improvement(x, y))


def test_probability_of_improvement_by_hand() -> None:
    # Pairs of (1, 3) against (2, 3): lose, lose, win, tie: 1.5 of 4.
    assert statistics.improvement(np.array([1.0, 3.0]), np.array([2.0, 3.0])) == 0.375
    with pytest.raises(ValueError, match="zip"):
        statistics.estimate_improvement([[1]], [[1], [2]], generator())


def test_profile_is_rliables_and_by_hand() -> None:
    from rliable import library

    scores = np.array([[0.1, 0.9], [0.5, 0.5]])
    taus = np.array([0.0, 0.3, 0.5, 0.95])
    ours, _ = statistics.estimate_profile(list(scores.T), taus, generator())
    np.testing.assert_allclose(ours, [1.0, 0.75, 0.25, 0.0])
    np.testing.assert_allclose(ours, library.score_distributions(scores, taus))


def test_interval_agrees_with_rliables_bootstrap() -> None:
    from rliable import library, metrics

    scores = np.random.default_rng(3).normal(size=(10, 4))
    _, reference = library.get_interval_estimates(
        {"x": scores}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=4_000
    )
    ours = statistics.stratified_bootstrap(
        list(scores.T), statistics.pooled_iqm, generator(), replications=4_000
    )
    width = float(reference["x"][1, 0] - reference["x"][0, 0])
    assert ours.interval == pytest.approx(reference["x"][:, 0], abs=0.08 * width)


def test_the_same_generator_gives_the_same_interval() -> None:
    scores = [[1.0, 2.0, 5.0, 9.0]]
    first = statistics.stratified_bootstrap(scores, statistics.pooled_mean, generator())
    again = statistics.stratified_bootstrap(scores, statistics.pooled_mean, generator())
    assert first == again
    assert first.interval is not None
    assert first.interval[0] < first.value < first.interval[1]


def test_the_bootstrap_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - its being untouched is the point
    statistics.estimate_mean([1.0, 2.0, 3.0], generator())
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_mean_interval_of_three_seeds_by_hand() -> None:
    # 27 equally likely resamples of 0, 0, 1; means 0, 1/3, 2/3, 1 with 8, 12, 6, 1 of 27: the
    # 2.5 % point is 0 and the 97.5 % point is 1, because P(mean = 1) = 3.7 % > 2.5 %.
    estimate = statistics.estimate_mean([0.0, 0.0, 1.0], generator())
    assert estimate.interval == (0.0, 1.0)


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_have_no_interval(seeds: int) -> None:
    scores = list(range(seeds))
    for estimate in (
        statistics.estimate_mean(scores, generator()),
        statistics.stratified_bootstrap([scores], statistics.pooled_iqm, generator()),
        statistics.estimate_improvement([scores], [[1, 2, 3]], generator()),
    ):
        assert estimate.interval is None
        assert not estimate.excludes(1e9)
    assert statistics.estimate_profile([scores], [0.0], generator())[1] is None


def test_improvement_interval_lies_within_zero_and_one() -> None:
    estimate = statistics.estimate_improvement([[1, 2, 3, 4]], [[0, 2, 3, 5]], generator())
    assert estimate.interval is not None
    low, high = estimate.interval
    assert 0.0 <= low <= estimate.value <= high <= 1.0


def test_profile_interval_holds_the_profile() -> None:
    profile, band = statistics.estimate_profile(
        [[0.1, 0.5, 0.9], [0.2, 0.4, 0.6]], [0.0, 0.45], generator()
    )
    assert band is not None
    assert np.all(band[0] <= profile)
    assert np.all(profile <= band[1])


def test_equal_seeds_are_compared_in_pairs() -> None:
    # Seeds differ a lot, the method adds exactly one to each: paired, the difference is certain.
    baseline = {0: 0.0, 1: 100.0, 2: 200.0}
    better = {seed: score + 1.0 for seed, score in baseline.items()}
    comparison = statistics.compare_means(better, baseline, generator())
    assert comparison is not None
    assert comparison.difference.value == 1.0
    assert comparison.difference.interval == (1.0, 1.0)
    assert comparison.difference.excludes(0.0)


def test_unequal_seeds_are_compared_unpaired() -> None:
    baseline = {0: 0.0, 1: 100.0, 2: 200.0}
    comparison = statistics.compare_means({0: 1.0, 1: 101.0, 5: 201.0}, baseline, generator())
    assert comparison is not None
    assert comparison.difference.value == 1.0
    assert not comparison.difference.excludes(0.0)
    few = statistics.compare_means({0: 1.0}, baseline, generator())
    assert few is not None
    assert few.difference.interval is None
    assert few.welch_p is None
    assert statistics.compare_means({}, baseline, generator()) is None


def test_welch_is_scipys_and_by_hand() -> None:
    x, y = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    # t = -2 / sqrt(1/3 + 4/3) = -1.549, df = (5/3)^2 / (1/18 + 16/18) = 2.941.
    t, df = -2 / np.sqrt(5 / 3), (5 / 3) ** 2 / (17 / 18)
    assert statistics.welch_p_value(x, y) == pytest.approx(2 * scipy.stats.t.cdf(t, df))
    assert statistics.welch_p_value([1.0, 1.0], [2.0, 2.0]) is None


def test_a_difference_is_clear_where_interval_and_test_agree() -> None:
    baseline = {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}

    def clear(scores: dict[int, float], others: dict[int, float]) -> bool:
        found = statistics.compare_means(scores, others, generator())
        return found is not None and found.clear

    assert clear({seed: value + 50 for seed, value in baseline.items()}, baseline)
    # Paired, the difference of 0.1 is certain; between seeds that differ by 1 it is nothing.
    near = {seed: value + 0.1 for seed, value in baseline.items()}
    assert not clear(near, baseline)
    assert not clear({0: 9.0}, {0: 1.0})
