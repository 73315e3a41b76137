"""The reward density estimate: known answers, quadrature, and the edges."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import frugalrl
from frugalrl.admission.density_kernels import KERNELS
from reference.admission import density

REWARDS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


def test_known_answer() -> None:
    assert frugalrl.reward_density([1.5], 1.5) == pytest.approx(23 / 27, abs=1e-15)
    assert frugalrl.reward_density([], 1.5) == 0.0
    assert frugalrl.reward_density([1.0], 1.5001) == pytest.approx(0.0, abs=1e-12)
    assert frugalrl.reward_density([0.0], 0.0, kernel="tophat") == pytest.approx(2 / 3)


@given(REWARDS, st.floats(-1e3, 1e3), st.sampled_from(KERNELS))
def test_agrees_with_the_slow_twin(rewards: list[float], reward: float, kernel: str) -> None:
    fast = frugalrl.reward_density(rewards, reward, kernel=kernel)
    assert fast == pytest.approx(density(rewards, reward, kernel, 0.3, 0.2), abs=1e-12)
    assert 0.0 <= fast <= 1.0 + 1e-12


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("bandwidth", "half_width"), [(0.3, 0.2), (0.1, 0.4), (0.5, 0.5)])
def test_agrees_with_quadrature(kernel: str, bandwidth: float, half_width: float) -> None:
    shapes = {
        "epanechnikov": lambda u: 0.75 * (1 - u * u) * (abs(u) <= 1),
        "tophat": lambda u: 0.5 * (abs(u) <= 1),
        "gaussian": lambda u: np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi),
    }
    held = [0.0, 0.13, 0.6, -0.4]

    def rho(y: float) -> float:
        return float(sum(shapes[kernel]((y - r) / bandwidth) for r in held)) / (
            len(held) * bandwidth
        )

    breaks = sorted({r + s * bandwidth for r in held for s in (-1, 1)})
    inside = [b for b in breaks if 0.1 - half_width < b < 0.1 + half_width]
    expected = quad(rho, 0.1 - half_width, 0.1 + half_width, points=inside or None)[0]
    got = frugalrl.reward_density(held, 0.1, kernel, bandwidth, half_width)
    assert got == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"kernel": "gausian"}, "did you mean 'gaussian'"),
        ({"bandwidth": 0.0}, "bandwidth=0.0"),
        ({"half_width": float("nan")}, "half_width=nan"),
        ({"rewards": [[1.0]]}, "shape (1, 1)"),
        ({"reward": float("inf")}, "finite"),
    ],
)
def test_bad_input_is_named(arguments: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        frugalrl.reward_density(**{"rewards": [0.0], "reward": 0.0, **arguments})
