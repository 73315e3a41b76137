"""The three kernels: how much of a stored reward's density lies near another reward.

A stored reward at distance d puts ``mass(d) = F((b - d) / h) - F((-b - d) / h)`` into the interval
of half width b around the other, F being the kernel's cumulative distribution and h its bandwidth.
For "epanechnikov" and "tophat" that is a polynomial between four breakpoints, so the sums of a
bucket's distances give its mass without a look at its members.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from frugalrl.checks import check_choice, is_positive, number_from
from frugalrl.compiling import compiled

KERNELS = ("epanechnikov", "tophat", "gaussian")
"""Names of the kernels; the position is the code that compiled functions know them by."""
_EPANECHNIKOV, _TOPHAT, _GAUSSIAN = range(3)
_FAR = (1.0, 1.0, 8.5)
"""Distance, in bandwidths, beyond which nothing that counts is left of each kernel."""
_LARGEST_THIRD_DERIVATIVE = 0.551
"""Of the Gaussian density, in absolute value."""

RULE = np.dtype([("kernel", "i8"), ("bandwidth", "f8"), ("half_width", "f8"), ("reach", "f8")])
"""How masses are counted; rewards further away than `reach` have none."""


def kernel_rule(
    kernel: str, bandwidth: float, half_width: float
) -> tuple[int, float, float, float]:
    """Give the values of a `RULE`."""
    code = KERNELS.index(kernel)
    return code, bandwidth, half_width, half_width + _FAR[code] * bandwidth


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
    check_choice("kernel", kernel, KERNELS)
    h = number_from("bandwidth", bandwidth, "a number above 0", is_positive)
    beta = number_from("half_width", half_width, "a number above 0", is_positive)
    held = np.asarray(rewards, dtype=np.float64)
    if held.ndim != 1:
        raise ValueError(f"rewards must be one-dimensional, got shape {held.shape}")
    if not (np.isfinite(held).all() and math.isfinite(reward)):
        raise ValueError("rewards and reward must be finite")
    if len(held) == 0:
        return 0.0
    rules = np.array([kernel_rule(kernel, h, beta)], dtype=RULE)
    return float(_total_mass(rules, held - reward)) / len(held)


@compiled
def _total_mass(rules: Any, distances: Any) -> Any:
    total = 0.0
    for distance in distances:
        total += mass(rules[0], distance)
    return total


@compiled
def mass(rule: Any, distance: Any) -> Any:
    """Mass of one stored reward at this distance."""
    upper = (rule["half_width"] - distance) / rule["bandwidth"]
    lower = (-rule["half_width"] - distance) / rule["bandwidth"]
    return _cumulative(rule["kernel"], upper) - _cumulative(rule["kernel"], lower)


@compiled
def _cumulative(kernel: Any, t: Any) -> Any:
    """F(t)."""
    if kernel == _GAUSSIAN:
        return 0.5 * math.erfc(-t * math.sqrt(0.5))
    t = min(max(t, -1.0), 1.0)
    if kernel == _TOPHAT:
        return 0.5 + 0.5 * t
    return 0.5 + t * (0.75 - 0.25 * t * t)


@compiled
def _derivatives(kernel: Any, t: Any) -> tuple[Any, Any, Any]:
    """F'(t), F''(t), F'''(t)."""
    if kernel == _GAUSSIAN:
        density = math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
        return density, -t * density, (t * t - 1.0) * density
    if abs(t) >= 1.0:
        return 0.0, 0.0, 0.0
    if kernel == _TOPHAT:
        return 0.5, 0.0, 0.0
    return 0.75 * (1.0 - t * t), -1.5 * t, -1.5


@compiled
def bucket_mass(rule: Any, bucket: Any, reward: Any) -> tuple[Any, Any]:
    """Mass of a bucket's rewards by their sums, and how far off that may be.

    The mass is expanded about the bucket's middle. Up to the third power that is exact (but for
    rounding) where the bucket lies between two breakpoints of a polynomial kernel; else the
    remainder is bounded by the largest slope, curvature or fourth derivative there can be.
    """
    kernel, h = rule["kernel"], rule["bandwidth"]
    width = (bucket["high"] - bucket["low"]) / h
    if width == np.inf:
        return 0.0, np.inf
    distance = 0.5 * (bucket["low"] + bucket["high"]) - reward
    upper = (rule["half_width"] - distance) / h
    lower = (-rule["half_width"] - distance) / h
    count, square = float(bucket["count"]), max(bucket["square"], 0.0)
    total = count * (_cumulative(kernel, upper) - _cumulative(kernel, lower))
    half = 0.5001 * width  # a little more than half, for rounding
    is_cut = abs(abs(upper) - 1.0) < half or abs(abs(lower) - 1.0) < half
    if is_cut and kernel == _TOPHAT:
        # No steeper than 1/2; Cauchy-Schwarz bounds the sum of distances by that of squares.
        return total, 0.5 * width * math.sqrt(count * square)
    first_up, second_up, third_up = _derivatives(kernel, upper)
    first_low, second_low, third_low = _derivatives(kernel, lower)
    total -= (first_up - first_low) * width * bucket["sum"]
    if is_cut and kernel == _EPANECHNIKOV:
        curvature = 1.5 * max(1.0, min(upper - lower, 2.0))
        return total, 0.5 * curvature * width * width * square
    total += (second_up - second_low) * width * width * square / 2.0
    total -= (third_up - third_low) * width * width * width * bucket["cube"] / 6.0
    if kernel == _GAUSSIAN:
        # A member's fourth power is at most a quarter of its square: it is within the bucket.
        return total, _LARGEST_THIRD_DERIVATIVE / 48.0 * width**4 * square
    return total, 0.0
