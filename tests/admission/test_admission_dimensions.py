"""Important dimensions: the paper's counts on the real environments, and the edges."""

from __future__ import annotations

import importlib
import re

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frugalrl
from reference.admission import important_by_scipy

COUNTS = {
    "Pendulum-v1": 1,
    "MountainCarContinuous-v0": 1,
    "LunarLanderContinuous-v3": 2,
    "Swimmer-v5": 4,
    "ReacherBulletEnv-v0": 5,
    "Hopper-v5": 4,
    "Walker2d-v5": 5,
    "Ant-v4": 8,
    "Humanoid-v4": 16,
}


def random_observations(env_id: str, steps: int = 10_000, seed: int = 0) -> np.ndarray:
    """Observations of seeded random steps."""
    if "Bullet" in env_id:
        importlib.import_module("pybullet_envs_gymnasium")
    env = gym.make(env_id)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    seen = []
    for _ in range(steps):
        seen.append(np.asarray(observation, dtype=np.float64))
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    return np.array(seen)


@pytest.mark.parametrize(("env_id", "count"), COUNTS.items())
def test_counts_are_those_of_the_paper(env_id: str, count: int) -> None:
    found = frugalrl.important_dimensions(random_observations(env_id))
    assert len(found) == count
    if env_id == "Hopper-v5":
        assert found.tolist() == [7, 10, 9, 0]


def test_pivot_order_and_threshold() -> None:
    # Orthogonal columns of lengths 10, 6, 4: pivots are just these lengths.
    matrix = np.zeros((8, 3))
    matrix[0, 1], matrix[1, 2], matrix[2, 0] = 10.0, 6.0, 4.0
    assert frugalrl.important_dimensions(matrix).tolist() == [1, 2]
    assert frugalrl.important_dimensions(matrix, threshold=0.4).tolist() == [1, 2, 0]
    assert frugalrl.important_dimensions(matrix, threshold=1.0).tolist() == [1]


def test_floor_keeps_a_share_of_many_dimensions() -> None:
    matrix = np.zeros((100, 50))
    matrix[0, 7] = 1000.0
    matrix[1:50, :] += np.eye(50)[:49]
    assert len(frugalrl.important_dimensions(matrix, min_fraction=0.04)) == 2
    assert len(frugalrl.important_dimensions(matrix, min_fraction=0.1)) == 5


@pytest.mark.parametrize("value", [0.0, 3.0, 1e30, -1e30, 1e300])
def test_constant_observations_give_the_fewest_dimensions(value: float) -> None:
    found = frugalrl.important_dimensions(np.full((10, 4), value))
    assert len(found) == 1


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 40), st.integers(0, 60)),
    threshold=st.floats(0.001, 1.0),
    min_fraction=st.floats(0.0, 1.0),
)
def test_they_are_those_of_scipys_pivoted_qr(
    seed: int, shape: tuple[int, int], threshold: float, min_fraction: float
) -> None:
    generator = np.random.Generator(np.random.PCG64(seed))
    dimensions, more_rows = shape
    # Columns that depend on one another, of lengths that differ by orders of magnitude.
    mixed = generator.normal(size=(dimensions, dimensions)) * (generator.random() < 0.5)
    matrix = generator.normal(size=(dimensions + more_rows, dimensions)) @ (
        np.eye(dimensions) + mixed
    )
    matrix = (matrix + generator.normal()) * np.exp(2.0 * generator.normal(size=dimensions))
    found = frugalrl.important_dimensions(matrix, threshold, min_fraction)
    assert found.tolist() == important_by_scipy(matrix, threshold, min_fraction)


def test_of_equal_columns_the_first_is_important() -> None:
    column = np.random.Generator(np.random.PCG64(0)).normal(size=(100, 1))
    assert frugalrl.important_dimensions(np.tile(column, 7)).tolist() == [0]
    assert frugalrl.important_dimensions(np.tile(column, 7) * [1, 2, 1, 2, 1, 2, 2]).tolist() == [1]


def test_all_zero_gives_the_first_dimensions() -> None:
    found = frugalrl.important_dimensions(np.zeros((10, 4)), min_fraction=0.5)
    assert found.tolist() == [0, 1]


def test_scale_of_the_whole_changes_nothing() -> None:
    matrix = np.random.Generator(np.random.PCG64(0)).normal(size=(50, 6)) * np.arange(1, 7)
    expected = frugalrl.important_dimensions(matrix).tolist()
    assert frugalrl.important_dimensions(matrix * 1e30).tolist() == expected
    assert frugalrl.important_dimensions(matrix.astype(np.float32)).tolist() == expected


@pytest.mark.parametrize(
    ("matrix", "arguments", "complaint"),
    [
        (np.ones((3, 5)), {}, "3 rows for 5 dimensions"),
        (np.ones(5), {}, "shape (5,)"),
        (np.ones((5, 0)), {}, "shape (5, 0)"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), {}, "NaN or infinity"),
        (np.ones((5, 2)), {"threshold": 0.0}, "threshold=0.0"),
        (np.ones((5, 2)), {"min_fraction": 1.5}, "min_fraction=1.5"),
    ],
)
def test_bad_input_is_named(matrix: np.ndarray, arguments: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        frugalrl.important_dimensions(matrix, **arguments)
