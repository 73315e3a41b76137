"""The settings of `FrugalFilter`, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from frugalrl.admission.density_kernels import KERNELS
from frugalrl.admission.partition import known_bounds
from frugalrl.checks import check_choice, integer_from, is_positive, number_from

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import ArrayLike, NDArray

Bounds = tuple[tuple[float, ...], tuple[float, ...]]

_CHOICES = {
    "kernel": KERNELS,
    "outside": ("clip", "extend"),
    "on_equivalent": ("replace", "discard"),
    "warmup": ("keep", "filter", "observe"),
}
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "dimension_threshold": ("0 < dimension_threshold <= 1", lambda it: 0.0 < it <= 1.0),
    "min_dimension_fraction": ("0 to 1", lambda it: 0.0 <= it <= 1.0),
    "bandwidth": ("a number above 0", is_positive),
    "half_width": ("a number above 0", is_positive),
    "density_threshold": ("0 (only empty cells admit) or more", lambda it: 0.0 <= it < math.inf),
    "decay": ("a number above 0 (infinity: no decay)", lambda it: it > 0.0),
    "reward_scale": ('a number above 0 or "auto"', is_positive),
}
"""The settings that are real numbers, what would work in words, and a test of it."""


@dataclass(frozen=True, kw_only=True)
class FrugalSettings:
    """All arguments of `FrugalFilter`, in the paper's symbols where it has them."""

    warmup_steps: int
    dimension_threshold: float
    min_dimension_fraction: float
    bins: int | tuple[int, ...]
    kernel: str
    bandwidth: float
    half_width: float
    density_threshold: float
    decay: float
    bounds: Literal["auto"] | Bounds
    outside: str
    on_equivalent: str
    warmup: str
    reward_scale: float | Literal["auto"]

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name; numbers become plain ones, which JSON can hold."""
        checked: dict[str, Any] = {
            "warmup_steps": integer_from("warmup_steps", self.warmup_steps, 1),
            "bins": checked_bins(self.bins),
            "bounds": checked_bounds(self.bounds),
        }
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (use, accepts) in _NUMBERS.items():
            value = getattr(self, name)
            if name == "reward_scale" and isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                checked[name] = number_from(name, value, use, accepts)
        self.__dict__.update(checked)  # the one change; afterwards all stay as they are

    def bins_of(self, dimensions: int) -> NDArray[np.int64]:
        """Give the bins of each of so many dimensions."""
        return np.broadcast_to(np.asarray(self.bins, dtype=np.int64), dimensions)

    def bounds_before_warmup(
        self, dimensions: int, space: Box | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the bounds of each dimension, infinite where the warm-up is to tell.

        Args:
            dimensions: of an observation; 0 while that is not known.
            space: the observation space, if known.

        Raises:
            ValueError: the settings do not fit an observation of so many dimensions.
        """
        if not dimensions:
            return np.empty(0), np.empty(0)
        if self.warmup_steps < dimensions:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} is fewer than the observation's "
                f"{dimensions} dimensions; use at least {dimensions}"
            )
        if isinstance(self.bins, tuple) and len(self.bins) != dimensions:
            raise ValueError(
                f"bins has {len(self.bins)} numbers, but the observation has {dimensions} "
                "dimensions; use one number for all, or one for each"
            )
        if self.bounds == "auto":
            return known_bounds(space, dimensions)
        low, high = np.array(self.bounds[0]), np.array(self.bounds[1])
        if len(low) != dimensions:
            raise ValueError(
                f"bounds has {len(low)} dimensions, but the observation has {dimensions}"
            )
        return low, high

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def checked_bins(bins: object) -> int | tuple[int, ...]:
    """Turn a number of bins, or one for each dimension, into plain integers from 1 on."""
    if isinstance(bins, str) or not isinstance(bins, list | tuple | np.ndarray):
        return integer_from("bins", bins, 1)
    if len(bins) == 0:
        raise ValueError(f"bins={bins!r} is empty; use a number, or one for each dimension")
    return tuple(integer_from(f"bins[{i}]", number, 1) for i, number in enumerate(bins))


def checked_bounds(bounds: object) -> Literal["auto"] | Bounds:
    """Turn "auto" or (low, high) into plain numbers, refusing what makes no range."""
    if isinstance(bounds, str):
        check_choice("bounds", bounds, ("auto",))
        return "auto"
    try:
        low, high = cast("tuple[ArrayLike, ArrayLike]", bounds)
        lower, upper = _as_vector(low), _as_vector(high)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f'bounds={bounds!r} is neither "auto" nor a pair (low, high) of arrays'
        ) from error
    if lower.shape != upper.shape or not (lower <= upper).all():
        raise ValueError(
            f"bounds: low {lower.tolist()} and high {upper.tolist()} must have one shape, "
            "and low must nowhere exceed high"
        )
    return tuple(lower.tolist()), tuple(upper.tolist())


def _as_vector(values: ArrayLike) -> NDArray[np.float64]:
    vector = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(vector) == 0 or np.isnan(vector).any():
        raise ValueError("empty or NaN")
    return vector
