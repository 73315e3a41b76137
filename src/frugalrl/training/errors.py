"""What can go wrong with a run, in words a user can act on."""

from __future__ import annotations

import signal
from pathlib import Path


class ConfigError(ValueError):
    """A setting that cannot work; the message names it, its value and what would work."""


class RunDirectoryError(ConfigError):
    """A run directory that cannot be used: taken, locked, missing or not writable."""


class TrainingError(RuntimeError):
    """A run that had to stop; what was saved before stays valid."""


class BrokenEnvironmentError(TrainingError):
    """An environment that crashed, hung or sent too many non-finite values."""


class StorageError(TrainingError):
    """A file that could not be written, most often because the disk is full."""


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived (`signum`), and the run was saved.

    It can be resumed from `directory`, which is None when it had none.
    """

    def __init__(self, signum: int, directory: Path | None) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.directory = directory

    @property
    def exit_code(self) -> int:
        """The shell's convention: 128 plus the signal's number."""
        return 128 + self.signum
