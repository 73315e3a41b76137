"""Other people's trainers, each an optional extra; nothing is imported until you ask for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ADAPTERS = ("sb3", "tianshou", "torchrl")


def __getattr__(name: str) -> Any:
    """Import an adapter the first time it is used."""
    if name in _ADAPTERS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
