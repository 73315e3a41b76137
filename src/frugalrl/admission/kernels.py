"""The three kernels and the reward density estimate, in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from frugalrl.checks import check_choice, is_positive, number_from

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

KERNELS = ("epanechnikov", "tophat", "gaussian")
"""Names of the kernels; the position is the code that compiled functions know them by."""


def reward_density(
    rewards: ArrayLike,
    reward: float,
    kernel: str = "epanechnikov",
    bandwidth: float = 0.3,
    half_width: float = 0.2,
) -> float:
    """Give the exact reward density estimate (RDE) of a reward among the rewards of its cell.

    The kernel density of the rewards integrated over `[reward - half_width, reward + half_width]`:
    `(1/n) * sum_i [F((reward + half_width - r_i) / bandwidth) - F((reward - half_width - r_i) /
    bandwidth)]` with F the kernel's cumulative distribution. No quadrature.

    Args:
        rewards: (n,) the rewards held; none gives 0.
        reward: the reward whose density is wanted.
        kernel: "epanechnikov", "tophat" or "gaussian".
        bandwidth: width of the kernel (h), above 0.
        half_width: half the width of the interval (beta), above 0.

    Returns:
        The share of the cell's reward mass that lies near `reward`, 0 to 1.
    """
    check_kernel_settings(kernel, bandwidth, half_width)
    held = np.asarray(rewards, dtype=np.float64)
    if held.ndim != 1:
        raise ValueError(f"rewards must be one-dimensional, got shape {held.shape}")
    if not (np.isfinite(held).all() and math.isfinite(reward)):
        raise ValueError("rewards and reward must be finite")
    if len(held) == 0:
        return 0.0
    # The distance first: added to a large reward, the half width would be lost to rounding.
    distance = held - reward
    upper = _cumulative((half_width - distance) / bandwidth, kernel)
    lower = _cumulative((-half_width - distance) / bandwidth, kernel)
    return float(np.sum(upper - lower)) / len(held)


def _cumulative(t: NDArray[np.float64], kernel: str) -> NDArray[np.float64]:
    """F(t), the kernel's cumulative distribution at unit bandwidth."""
    if kernel == "gaussian":
        from scipy.special import ndtr

        cumulative: NDArray[np.float64] = ndtr(t)
        return cumulative
    t = np.clip(t, -1.0, 1.0)
    if kernel == "tophat":
        return 0.5 + 0.5 * t
    return 0.5 + t * (0.75 - 0.25 * t * t)


def check_kernel_settings(kernel: str, bandwidth: float, half_width: float) -> None:
    """Raise an error that names the argument, the value and what would work."""
    check_choice("kernel", kernel, KERNELS)
    number_from("bandwidth", bandwidth, "a number above 0", is_positive)
    number_from("half_width", half_width, "a number above 0", is_positive)
