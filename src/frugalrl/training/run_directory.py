"""One run, one directory: its files, and the lock that keeps a second process out."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from frugalrl.files import (
    LOCK,
    DirectoryInUseError,
    DirectoryLock,
    delete_leftovers,
    is_leftover,
    read_json,
    write_json,
)
from frugalrl.training.checkpoint import CheckpointStore
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import RunDirectoryError

CONFIG_VERSION = 1
Method = Literal["fields", "replay", "fresh"]
"""How an environment's state is kept; see `env_state`."""


class RunDirectory:
    """Names of a run's files, and the right to write them.

    Raises:
        RunDirectoryError: the path is no name of a directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = CheckpointStore(self.path / "checkpoints")
        self._lock = DirectoryLock(self.path)
        name = str(self.path)
        if "\0" in name or name.encode(errors="ignore").decode() != name:
            raise RunDirectoryError(f"the directory {name!r} has no name in UTF-8; rename it")

    config = property(lambda self: self.path / "config.json")
    metrics = property(lambda self: self.path / "metrics.csv")
    evaluations = property(lambda self: self.path / "evaluations.csv")
    final = property(lambda self: self.path / "final.json")
    policy = property(lambda self: self.path / "policy.safetensors")
    buffer = property(lambda self: self.path / "buffer.safetensors")
    state = property(lambda self: self.path / "state.safetensors")
    tensorboard = property(lambda self: self.path / "tensorboard")
    log = property(lambda self: self.path / "run.log")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, and can say how."""
        return read_json(self.final) is not None

    def check_unused(self) -> None:
        """Refuse a directory that holds something, or in which nothing can be written.

        Raises:
            RunDirectoryError: saying which, and what to do.
        """
        out = f"out={str(self.path)!r}"
        with _explained(f"{out} cannot be used"):
            if self.config.is_file():
                what = "a run that was not finished"
                how = f" (resume it with: frugalrl train --resume {self.path})"
                if self.finished:
                    what, how = "a finished run", ""
                raise RunDirectoryError(f"{out} holds {what}{how}; choose another")
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
        """Refuse a directory without a run.

        Raises:
            RunDirectoryError: saying what is missing.
        """
        with _explained(f"{str(self.path)!r} cannot be read"):
            if not self.path.is_dir():
                raise RunDirectoryError(f"{str(self.path)!r} is no directory: there is no run")
            if not self.config.is_file():
                raise RunDirectoryError(
                    f"{str(self.path)!r} holds no run: its config.json is missing"
                )

    def create(self, config: TrainConfig, extra: dict[str, Any]) -> None:
        """Create the directory and write the configuration.

        Raises:
            RunDirectoryError: when the directory cannot be written after all.
        """
        try:
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            self.acquire()
            content = {"version": CONFIG_VERSION, "config": config.to_dict(), **extra, **_origin()}
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
            RunDirectoryError: when the file is damaged or from another version.
        """
        try:
            content = json.loads(self.config.read_text(encoding="utf-8"))
            if content["version"] != CONFIG_VERSION:
                raise RunDirectoryError(
                    f"{self.config} has version {content['version']}; "
                    f"this release reads version {CONFIG_VERSION}"
                )
            if content["environment_state"] not in get_args(Method):
                raise ValueError(f"environment_state={content['environment_state']!r} is unknown")
            return TrainConfig.from_dict(content["config"]), content
        except RunDirectoryError:
            raise
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

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Say what an error of the system means for a run."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"{what}: {error.strerror or error}") from error


def _origin() -> dict[str, Any]:
    """Say what made a run: command, versions, machine."""
    from importlib import metadata

    versions = {}
    for package in ("frugalrl", "gymnasium", "jax", "mujoco", "numpy", "numba", "optax"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
    }
