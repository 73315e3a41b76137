"""How every adapter takes its filter: as an object, or as FrugalFilter's arguments."""

from __future__ import annotations

import inspect
from typing import Any

from frugalrl.admission.protocol import AdmissionFilter


def make_filter(admission: AdmissionFilter | None, arguments: dict[str, Any]) -> AdmissionFilter:
    """Return a filter of the caller's own.

    A filter given as an object is copied: trainers keep the arguments they were built with (to
    save them with a model, or to build a second buffer), and a used filter must not come back.

    Args:
        admission: a filter, or None for a FrugalFilter.
        arguments: FrugalFilter's keyword arguments, when `admission` is None.

    Raises:
        TypeError: both were given, an argument is unknown, or `admission` is no filter.
    """
    from frugalrl.admission.frugal import FrugalFilter

    if admission is None:
        known = inspect.signature(FrugalFilter).parameters
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            raise TypeError(
                f"unknown argument {unknown[0]!r}; use admission= or FrugalFilter's arguments: "
                f"{', '.join(known)}"
            )
        return FrugalFilter(**arguments)
    if arguments:
        raise TypeError(
            f"admission={admission!r} was given together with {', '.join(sorted(arguments))}, "
            "which are FrugalFilter's arguments; give one or the other"
        )
    if not isinstance(admission, AdmissionFilter):
        raise TypeError(
            f"admission={admission!r} is no AdmissionFilter: use frugalrl.FrugalFilter(...), "
            "AdmitAll(), RandomAdmit(...) or your own (frugalrl.check_filter tests it)"
        )
    return type(admission).from_state_dict(admission.state_dict())
