"""Other people's trainers, each an optional extra; nothing is imported until you ask for it.

`frugalrl.adapters.sb3`, `.torch` (CleanRL), `.torchrl`, `.tianshou` and `.skrl` are found by name.
For adapters of your own there are `AdmissionLedger`, which carries a filter's decisions out over a
storage that is not ours, and `FlatObservations`, which lays observations out as rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frugalrl.adapters.ledger import AdmissionLedger
    from frugalrl.adapters.observations import FlatObservations

__all__ = ["AdmissionLedger", "FlatObservations"]

_HOMES = {"AdmissionLedger": "ledger", "FlatObservations": "observations"}
_TRAINERS = ("sb3", "skrl", "tianshou", "torch", "torchrl")


def __getattr__(name: str) -> Any:
    """Import an adapter, or what adapters are made with, the first time it is used (PEP 562)."""
    if name in _TRAINERS:
        return import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the adapters and the public names."""
    return sorted({*globals(), *__all__, *_TRAINERS})
