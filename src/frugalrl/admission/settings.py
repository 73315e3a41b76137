"""The settings of `FrugalFilter`, checked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from frugalrl.admission.kernels import KERNELS, check_choice, check_kernel_settings, check_positive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_REAL_NUMBERS = {
    "dimension_threshold": "0 < dimension_threshold <= 1",
    "min_dimension_fraction": "0 to 1",
    "bandwidth": "a number above 0",
    "half_width": "a number above 0",
    "density_threshold": "0 (only empty cells admit) or more",
    "decay": "a number above 0 (infinity: no decay)",
}
"""The settings that are real numbers, and what would work."""


def whole_number(argument: str, value: object, least: int) -> int:
    """Give a Python or NumPy integer as an int, refusing all else and what is too small."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or cast("int", value) < least:
        raise ValueError(f"{argument}={value!r} is out of range; use a whole number from {least}")
    return int(cast("int", value))


def real_number(argument: str, value: object, use: str) -> float:
    """Give a Python or NumPy number as a float, refusing all else."""
    is_real = isinstance(value, int | float | np.integer | np.floating)
    if not is_real or isinstance(value, bool):
        raise ValueError(f"{argument}={value!r} is no number; use {use}")
    try:
        return float(cast("float", value))
    except OverflowError:
        raise ValueError(f"{argument}={value!r} is out of range; use {use}") from None


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
        """Refuse what cannot work, by name; numbers become plain ones, which JSON can hold."""
        for name in ("warmup_steps", "bins"):
            self._set(name, whole_number(name, getattr(self, name), 1))
        for name, use in _REAL_NUMBERS.items():
            self._set(name, real_number(name, getattr(self, name), use))
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
        if isinstance(self.reward_scale, str):
            check_choice("reward_scale", self.reward_scale, ("auto",))
        else:
            scale = real_number("reward_scale", self.reward_scale, 'a number above 0 or "auto"')
            check_positive("reward_scale", scale)
            self._set("reward_scale", scale)

    def _set(self, name: str, value: float) -> None:
        """Replace a setting while it is checked; afterwards all stay as they are."""
        object.__setattr__(self, name, value)

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
