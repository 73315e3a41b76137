"""What a buffer holds, on buffers small enough to count by hand."""

import numpy as np

from frugalrl.replay import contents


def test_powers_of_two() -> None:
    assert contents.power_histogram(np.array([1, 1, 2, 3, 4, 7, 8])) == [2, 2, 2, 1]


def test_describe_counts_cells_and_equivalents() -> None:
    # One important dimension (the first), range [0, 1] cut into 2 cells by the given bounds.
    observations = np.array([[0.1, 0.0], [0.2, 0.0], [0.9, 0.0], [0.8, 0.0]])
    rewards = np.array([0.0, 0.1, 0.0, 1.0])
    bounds = ([0.0, 0.0], [1.0, 1.0])
    partition = contents.fit_partition(observations, rewards, None, bins=2, bounds=bounds)
    found = contents.describe_contents(
        observations, rewards, partition, 2, np.random.default_rng(0)
    )
    assert found["dimensions"] == [0]
    assert found["cells"] == 2
    assert found["rewards_a_cell"] == [0, 2]
    assert found["most_rewards_a_cell"] == 2
    # Rewards 0.0 and 0.1 share a bin of width 0.4; 0.0 and 1.0 do not.
    assert found["measures"]["surplus"] == 1
    assert found["observations"] == 2
