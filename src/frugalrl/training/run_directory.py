"""One run, one directory: its files, and the lock that keeps a second process out."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from pathlib import Path
from types import TracebackType
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
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import RunDirectoryError

CONFIG_VERSION = 1
Method = Literal["fields", "replay", "fresh"]
"""How an environment's state is kept; see `env_state`."""


class RunDirectory:
    """Names of a run's files, and the right to write them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = DirectoryLock(self.path)

    config = property(lambda self: self.path / "config.json")
    metrics = property(lambda self: self.path / "metrics.csv")
    evaluations = property(lambda self: self.path / "evaluations.csv")
    final = property(lambda self: self.path / "final.json")
    policy = property(lambda self: self.path / "policy.safetensors")
    buffer = property(lambda self: self.path / "buffer.safetensors")
    state = property(lambda self: self.path / "state.safetensors")
    checkpoints = property(lambda self: self.path / "checkpoints")
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
        self._check_name()
        try:
            self._check_unused()
        except OSError as error:
            raise RunDirectoryError(
                f"out={str(self.path)!r} cannot be used: {error.strerror}"
            ) from error

    def _check_name(self) -> None:
        try:
            if b"\0" not in str(self.path).encode():
                return
        except UnicodeEncodeError:
            pass
        raise RunDirectoryError(f"the directory {str(self.path)!r} has no name in UTF-8; rename it")

    def _check_unused(self) -> None:
        if self.config.is_file():
            what = "a finished run" if self.finished else "a run that was not finished"
            how = "" if self.finished else f" (resume it with: frugalrl train --resume {self.path})"
            raise RunDirectoryError(f"out={str(self.path)!r} holds {what}{how}; choose another")
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"out={str(self.path)!r} is a file; choose a directory")
        if self.path.is_dir() and not all(map(self._is_nothing, self.path.iterdir())):
            raise RunDirectoryError(f"out={str(self.path)!r} is not empty; choose another")
        parent = self.path
        while not parent.exists():
            parent = parent.parent
        if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
            raise RunDirectoryError(
                f"out={str(self.path)!r} cannot be created: {parent} is not a writable directory"
            )

    def _is_nothing(self, path: Path) -> bool:
        """Whether a file is only what a run leaves that was killed before its configuration."""
        if path == self.checkpoints and path.is_dir() and not path.is_symlink():
            return all(map(is_leftover, path.iterdir()))
        return is_leftover(path)

    def check_is_run(self) -> None:
        """Refuse a directory without a run.

        Raises:
            RunDirectoryError: saying what is missing.
        """
        self._check_name()
        try:
            is_directory, is_run = self.path.is_dir(), self.config.is_file()
        except OSError as error:
            raise RunDirectoryError(
                f"{str(self.path)!r} cannot be read: {error.strerror}"
            ) from error
        if not is_directory:
            raise RunDirectoryError(f"{str(self.path)!r} is no directory: there is no run")
        if not is_run:
            raise RunDirectoryError(f"{str(self.path)!r} holds no run: its config.json is missing")

    def create(self, config: TrainConfig, extra: dict[str, Any]) -> None:
        """Create the directory and write the configuration.

        Raises:
            RunDirectoryError: when the directory cannot be written after all.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self.acquire()
            content = {"version": CONFIG_VERSION, "config": config.to_dict(), **extra, **_origin()}
            write_json(self.config, content)
        except OSError as error:
            self._remove_empty()
            raise RunDirectoryError(
                f"out={str(self.path)!r} cannot be created: {error.strerror}"
            ) from error

    def _remove_empty(self) -> None:
        """Take away a directory in which nothing could be written: it can be tried again."""
        self.release()
        with contextlib.suppress(OSError):
            (self.path / LOCK).unlink(missing_ok=True)
            self.checkpoints.rmdir()
            self.path.rmdir()

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
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, RunDirectoryError):
                raise
            raise RunDirectoryError(f"{self.config} cannot be read: {error}") from error

    def acquire(self) -> None:
        """Lock the directory for this process; the system unlocks it when the process ends.

        Raises:
            RunDirectoryError: another process holds it.
        """
        try:
            self._lock.acquire()
        except DirectoryInUseError as error:
            raise RunDirectoryError(str(error)) from error
        except OSError as error:
            raise RunDirectoryError(
                f"{str(self.path)!r} cannot be written: {error.strerror or error}"
            ) from error
        delete_leftovers(self.path)
        delete_leftovers(self.checkpoints)

    def release(self) -> None:
        """Give the lock up."""
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


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
