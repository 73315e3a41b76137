"""The settings of `FrugalFilter`, checked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from frugalrl.admission.kernels import KERNELS, check_choice, check_kernel_settings, check_positive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class FrugalSettings:
    """All arguments of `FrugalFilter`, in the paper's symbols where it has them."""

    warmup_steps: int
    dimension_threshold: float
    min_dimension_fraction: float
    bins: int
    kernel: str
    bandwidth: float
    half_width: float
    density_threshold: float
    decay: float
    bounds: Literal["auto"] | tuple[tuple[float, ...], tuple[float, ...]]
    outside: str
    on_equivalent: str
    warmup: str
    reward_scale: float | Literal["auto"]

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        for name in ("warmup_steps", "bins"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} is out of range; use a whole number above 0")
        if not 0.0 < self.dimension_threshold <= 1.0:
            raise ValueError(
                f"dimension_threshold={self.dimension_threshold!r} is out of range; "
                "use 0 < dimension_threshold <= 1"
            )
        if not 0.0 <= self.min_dimension_fraction <= 1.0:
            raise ValueError(
                f"min_dimension_fraction={self.min_dimension_fraction!r} is out of range; "
                "use 0 to 1"
            )
        check_kernel_settings(self.kernel, self.bandwidth, self.half_width)
        if not (math.isfinite(self.density_threshold) and self.density_threshold >= 0.0):
            raise ValueError(
                f"density_threshold={self.density_threshold!r} is out of range; "
                "use 0 (only empty cells admit) or more"
            )
        if not self.decay > 0.0:
            raise ValueError(
                f"decay={self.decay!r} is out of range; use a number above 0 (infinity: no decay)"
            )
        check_choice("outside", self.outside, ("clip", "extend"))
        check_choice("on_equivalent", self.on_equivalent, ("replace", "discard"))
        check_choice("warmup", self.warmup, ("keep", "filter"))
        if self.reward_scale != "auto":
            if isinstance(self.reward_scale, str):
                check_choice("reward_scale", self.reward_scale, ("auto",))
            check_positive("reward_scale", self.reward_scale)

    @property
    def kernel_code(self) -> int:
        """The number by which compiled functions know the kernel."""
        return KERNELS.index(self.kernel)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FrugalSettings:
        """From JSON values."""
        bounds = values["bounds"]
        if bounds != "auto":
            bounds = (tuple(bounds[0]), tuple(bounds[1]))
        return cls(**{**values, "bounds": bounds})


def checked_bounds(bounds: object) -> Literal["auto"] | tuple[tuple[float, ...], tuple[float, ...]]:
    """Turn "auto" or (low, high) into plain numbers, refusing what makes no range."""
    if isinstance(bounds, str):
        if bounds != "auto":
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
