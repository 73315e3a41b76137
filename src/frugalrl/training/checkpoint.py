"""Checkpoints: atomic, checksummed, a few deep, and forgiving when the newest is damaged."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from frugalrl.state_io import StateFileError, load_state, save_state
from frugalrl.training.errors import StorageError, TrainingError

KIND = "training checkpoint"
VERSION = 2


class Found(NamedTuple):
    """A checkpoint that could be read."""

    path: Path
    state: dict[str, Any]
    warnings: list[str]
    """Newer checkpoints that could not be read, and why."""


class CheckpointStore:
    """The checkpoints of one run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: Mapping[str, Any], keep: int = 1) -> Path:
        """Write a checkpoint, then delete all but so many.

        Raises:
            StorageError: it could not be written; the older ones are untouched.
        """
        path = self.folder / f"step-{step:012d}.safetensors"
        with self.writing(f"the checkpoint of step {step}"):
            save_state(path, state, kind=KIND, version=VERSION)
        for old in self.paths()[keep:]:
            old.unlink(missing_ok=True)
        return path

    @contextlib.contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Tell of a file of the run that could not be written in words a user can act on.

        Raises:
            StorageError: in the place of an `OSError`.
        """
        try:
            yield
        except OSError as error:
            cause = "is the disk full"
            if error.errno == errno.ENOENT:
                cause = "was the run directory moved or deleted"
            elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                cause = "may this user write there"
            newest = next((path.name for path in self.paths()), "none")
            raise StorageError(
                f"{what} could not be written ({error}); {cause}? The newest checkpoint is "
                f"{newest}; put that right, then resume"
            ) from error

    def paths(self) -> list[Path]:
        """List the checkpoints, newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def newest(self, *, tidy: bool = False) -> Found | None:
        """Read the newest checkpoint that is whole; None if there never was one.

        Args:
            tidy: put damaged ones out of the way; only for who holds the directory's lock.

        Raises:
            TrainingError: there are checkpoints, but none can be read.
        """
        warnings: list[str] = []
        paths = self.paths()
        for path in paths:
            try:
                state = load_state(path, kind=KIND, version=VERSION)
            except StateFileError as error:
                warnings.append(str(error))
                continue
            for damaged in paths[: len(warnings)] if tidy else ():
                # Or it would pass for the newest again.
                damaged.rename(damaged.with_suffix(".damaged"))
            return Found(path, state, warnings)
        if warnings:
            raise TrainingError("no checkpoint can be read: " + "; ".join(warnings))
        return None

    def clear(self) -> None:
        """Delete all checkpoints, and their folder if nothing else is in it."""
        for path in self.paths():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def fingerprint(state: Mapping[str, Any]) -> str:
    """Digest a nested state: equal exactly when every bit of it is."""
    digest = hashlib.sha256()
    for path, value in _leaves(state, ""):
        if isinstance(value, np.ndarray):
            digest.update(json.dumps([path, value.dtype.str, value.shape]).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(json.dumps([path, value]).encode())
    return digest.hexdigest()


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}/{index}")
    elif isinstance(value, np.generic):
        yield path, value.item()
    else:
        yield path, value
