"""Arguments checked by name, the name that was most likely meant, and warnings."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Callable, Iterable
from numbers import Real


def integer_from(name: str, value: object, least: int) -> int:
    """Give a Python or NumPy integer of at least `least` as an int.

    Raises:
        TypeError: the value is no integer.
        ValueError: it is too small.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is no integer; use one from {least}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r} is no integer; use one from {least}") from None
    if number < least:
        raise ValueError(f"{name}={value!r} is out of range; use an integer from {least}")
    return number


def number_from(
    name: str,
    value: object,
    use: str = "a finite number",
    accepts: Callable[[float], bool] = math.isfinite,
) -> float:
    """Give a Python or NumPy number as a float; `use` says in words what is accepted.

    Raises:
        TypeError: the value is no number.
        ValueError: the number is not accepted.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is no number; use {use}")
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    if not accepts(number):
        raise ValueError(f"{name}={value!r} is out of range; use {use}")
    return number


def is_positive(number: float) -> bool:
    """Tell whether a number is finite and above 0."""
    return 0.0 < number < math.inf


def check_choice(
    name: str, value: object, choices: Iterable[str], error: type[Exception] = ValueError
) -> None:
    """Raise an error unless the value is one of the choices, naming the nearest of them."""
    known = list(choices)
    if value in known:
        return
    near = nearest(value, known)
    hint = f"; did you mean {near!r}?" if near else ""
    raise error(f"{name}={value!r} is unknown{hint} (known: {', '.join(known)})")


def nearest(value: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Give the known name that was most likely meant, in whatever case; None if none is alike."""
    # Only mistakes need it, so only they wait for the import.
    import difflib

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(value).lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def refuse_class(name: str, value: object) -> None:
    """Raise if a class was given where an object of it is wanted; it has all the methods too."""
    if isinstance(value, type):
        raise TypeError(f"{name}={value.__name__} is a class; use an object, {value.__name__}()")


def warn_caller(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line that calls this library."""
    library = __name__.partition(".")[0]
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == library:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
