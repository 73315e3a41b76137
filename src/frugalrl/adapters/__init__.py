"""Other people's trainers, each an optional extra that is imported when you ask for it.

`frugalrl.adapters.sb3`, `.torch` (CleanRL), `.torchrl`, `.tianshou` and `.skrl` are found by name.
For adapters of your own there are `AdmissionLedger`, which carries a filter's decisions out over a
storage that is not ours, and `FlatObservations`, which lays observations out as rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from frugalrl.adapters.ledger import AdmissionLedger
from frugalrl.adapters.observations import FlatObservations

__all__ = ["AdmissionLedger", "FlatObservations"]

_TRAINERS = ("sb3", "skrl", "tianshou", "torch", "torchrl")


def __getattr__(name: str) -> Any:
    """Import an adapter the first time it is used (PEP 562)."""
    if name in _TRAINERS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the adapters and the public names."""
    return sorted({*globals(), *_TRAINERS})
