"""One run: configuration, loop, evaluation, checkpoints, logging.

All but the errors are imported when first used, so that a configuration costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frugalrl.training.errors import (
    BrokenEnvironmentError,
    ConfigError,
    RunDirectoryError,
    StorageError,
    TrainingError,
    TrainingInterrupted,
)

if TYPE_CHECKING:
    from frugalrl.training.callbacks import Callback
    from frugalrl.training.config import TrainConfig
    from frugalrl.training.evaluation import evaluate, load_policy
    from frugalrl.training.runner import resume, train
    from frugalrl.training.session import TrainResult

_HOMES = {
    "Callback": "callbacks",
    "TrainConfig": "config",
    "TrainResult": "session",
    "evaluate": "evaluation",
    "load_policy": "evaluation",
    "resume": "runner",
    "train": "runner",
}

__all__ = ["BrokenEnvironmentError", "ConfigError", "RunDirectoryError", "StorageError"]
__all__ += ["TrainingError", "TrainingInterrupted"]
__all__ += ["Callback", "TrainConfig", "TrainResult", "evaluate", "load_policy", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name the first time it is used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
