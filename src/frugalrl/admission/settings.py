"""The settings of `FrugalFilter`, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from frugalrl.admission.kernels import KERNELS
from frugalrl.checks import check_choice, integer_from, is_positive, number_from

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "dimension_threshold": ("0 < dimension_threshold <= 1", lambda it: 0.0 < it <= 1.0),
    "min_dimension_fraction": ("0 to 1", lambda it: 0.0 <= it <= 1.0),
    "bandwidth": ("a number above 0", is_positive),
    "half_width": ("a number above 0", is_positive),
    "density_threshold": (
        "0 (only empty cells admit) or more",
        lambda it: 0.0 <= it < math.inf,
    ),
    "decay": ("a number above 0 (infinity: no decay)", lambda it: it > 0.0),
}
"""The settings that are real numbers, what would work in words, and a test of it."""


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
            self._set(name, integer_from(name, getattr(self, name), 1))
        for name, (use, accepts) in _NUMBERS.items():
            self._set(name, number_from(name, getattr(self, name), use, accepts))
        check_choice("kernel", self.kernel, KERNELS)
        check_choice("outside", self.outside, ("clip", "extend"))
        check_choice("on_equivalent", self.on_equivalent, ("replace", "discard"))
        check_choice("warmup", self.warmup, ("keep", "filter"))
        if isinstance(self.reward_scale, str):
            check_choice("reward_scale", self.reward_scale, ("auto",))
        else:
            use = 'a number above 0 or "auto"'
            self._set(
                "reward_scale", number_from("reward_scale", self.reward_scale, use, is_positive)
            )

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
