"""One run, one directory: its files and checkpoints, and the lock that keeps others out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from frugalrl.files import (
    LOCK,
    DirectoryInUseError,
    DirectoryLock,
    delete_leftovers,
    is_leftover,
    read_json,
    write_json,
)
from frugalrl.state_io import StateFileError, load_state, save_state
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import RunDirectoryError, StorageError, TrainingError

CONFIG_VERSION = 1
KIND = "training checkpoint"
VERSION = 2
StateMethod = Literal["fields", "replay", "fresh"]
"""How an environment's state is kept; see `env_state`."""


class Checkpoint(NamedTuple):
    """A checkpoint that could be read."""

    path: Path
    state: dict[str, Any]
    warnings: list[str]
    """Newer checkpoints that could not be read, and why."""


class CheckpointStore:
    """The checkpoints of one run: atomic, checksummed, and forgiving when the newest is damaged."""

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
        """Tell of a file of the run that could not be written in words a user can act on."""
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

    def newest(self, *, tidy: bool = False) -> Checkpoint | None:
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
            return Checkpoint(path, state, warnings)
        if warnings:
            raise TrainingError("no checkpoint can be read: " + "; ".join(warnings))
        return None

    def clear(self) -> None:
        """Delete all checkpoints, and their folder if nothing else is in it."""
        for path in self.paths():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class RunDirectory(contextlib.AbstractContextManager["RunDirectory"]):
    """Names of a run's files, and the right to write them.

    Raises:
        RunDirectoryError: the path is no name of a directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.csv"
        self.evaluations = self.path / "evaluations.csv"
        self.final = self.path / "final.json"
        self.policy = self.path / "policy.safetensors"
        self.buffer = self.path / "buffer.safetensors"
        self.state = self.path / "state.safetensors"
        self.tensorboard = self.path / "tensorboard"
        self.log = self.path / "run.log"
        self.checkpoints = CheckpointStore(self.path / "checkpoints")
        self._lock = DirectoryLock(self.path)
        name = str(self.path)
        if "\0" in name or name.encode(errors="ignore").decode() != name:
            raise RunDirectoryError(f"the directory {name!r} has no name in UTF-8; rename it")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, and can say how."""
        return read_json(self.final) is not None

    def check_unused(self) -> None:
        """Refuse a directory that holds something, or in which nothing can be written."""
        out = f"out={str(self.path)!r}"
        with _explained(f"{out} cannot be used"):
            if self.config.is_file():
                how = f"(resume it with: frugalrl train --resume {self.path})"
                what = "finished run" if self.finished else f"run that was not finished {how}"
                raise RunDirectoryError(f"{out} holds a {what}; choose another")
            if self.path.exists() and not self.path.is_dir():
                raise RunDirectoryError(f"{out} is a file; choose a directory")
            if self.path.is_dir() and not all(map(self._is_nothing, self.path.iterdir())):
                raise RunDirectoryError(f"{out} is not empty; choose another")
            parent = next(path for path in (self.path, *self.path.parents) if path.exists())
            if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
                raise RunDirectoryError(
                    f"{out} cannot be created: {parent} is not a writable directory"
                )

    def _is_nothing(self, path: Path) -> bool:
        """Whether a file is only what a run leaves that was killed before its configuration."""
        if path == self.checkpoints.folder and path.is_dir() and not path.is_symlink():
            return all(map(is_leftover, path.iterdir()))
        return is_leftover(path)

    def check_is_run(self) -> None:
        """Refuse a directory without a run."""
        with _explained(f"{str(self.path)!r} cannot be read"):
            if not self.path.is_dir():
                raise RunDirectoryError(f"{str(self.path)!r} is no directory: there is no run")
            if not self.config.is_file():
                raise RunDirectoryError(
                    f"{str(self.path)!r} holds no run: its config.json is missing"
                )

    def create(self, config: TrainConfig, extra: dict[str, Any]) -> None:
        """Create the directory, lock it and write the configuration."""
        try:
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            self.acquire()
            content = {"version": CONFIG_VERSION, "config": config.to_dict(), **extra, **_made_by()}
            write_json(self.config, content)
        except OSError as error:
            # A directory in which nothing could be written is taken away: it can be tried again.
            self.release()
            with contextlib.suppress(OSError):
                (self.path / LOCK).unlink(missing_ok=True)
                self.checkpoints.folder.rmdir()
                self.path.rmdir()
            raise RunDirectoryError(
                f"out={str(self.path)!r} cannot be created: {error.strerror}"
            ) from error

    def read_config(self) -> tuple[TrainConfig, dict[str, Any]]:
        """Read the configuration, and everything else in its file.

        Raises:
            RunDirectoryError: there is no run, or the file is damaged or from another version.
        """
        self.check_is_run()
        try:
            content = json.loads(self.config.read_text(encoding="utf-8"))
            if (version := content["version"]) != CONFIG_VERSION:
                raise ValueError(f"it has version {version}, this release reads {CONFIG_VERSION}")
            if (method := content["environment_state"]) not in get_args(StateMethod):
                raise ValueError(f"environment_state={method!r} is unknown")
            return TrainConfig.from_dict(content["config"]), content
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{self.config} cannot be read: {error}") from error

    def acquire(self) -> None:
        """Lock the directory for this process; the system unlocks it when the process ends.

        Raises:
            RunDirectoryError: another process holds it.
        """
        with _explained(f"{str(self.path)!r} cannot be written"):
            try:
                self._lock.acquire()
            except DirectoryInUseError as error:
                raise RunDirectoryError(str(error)) from error
        delete_leftovers(self.path)
        delete_leftovers(self.checkpoints.folder)

    def release(self) -> None:
        """Give the lock up."""
        self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.release()


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Say what an error of the system means for a run."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"{what}: {error.strerror or error}") from error


def _made_by() -> dict[str, Any]:
    """Say what made a run: command, versions, machine."""
    versions = {"python": platform.python_version()}
    for package in ("frugalrl", "gymnasium", "jax", "mujoco", "numpy", "numba", "optax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": versions,
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
    }
