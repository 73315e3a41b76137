"""One run: configuration, loop, evaluation, checkpoints, logging.

Everything is imported when first used, so that a configuration costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frugalrl.training.callbacks import Callback
    from frugalrl.training.config import TrainConfig
    from frugalrl.training.errors import (
        BrokenEnvironmentError,
        ConfigError,
        RunDirectoryError,
        StorageError,
        TrainingError,
        TrainingInterrupted,
    )
    from frugalrl.training.evaluation import evaluate, load_policy
    from frugalrl.training.runner import resume, train
    from frugalrl.training.session import TrainResult

_HOMES = {
    "Callback": "callbacks",
    "ConfigError": "errors",
    "BrokenEnvironmentError": "errors",
    "RunDirectoryError": "errors",
    "StorageError": "errors",
    "TrainConfig": "config",
    "TrainResult": "session",
    "TrainingError": "errors",
    "TrainingInterrupted": "errors",
    "evaluate": "evaluation",
    "load_policy": "evaluation",
    "resume": "runner",
    "train": "runner",
}

__all__ = [
    "BrokenEnvironmentError",
    "Callback",
    "ConfigError",
    "RunDirectoryError",
    "StorageError",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "TrainingInterrupted",
    "evaluate",
    "load_policy",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name the first time it is used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
