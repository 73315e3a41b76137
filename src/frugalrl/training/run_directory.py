"""One run, one directory: its files, and the lock that keeps a second process out."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import RunDirectoryError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

CONFIG_VERSION = 1


class RunDirectory:
    """Names of a run's files, and the right to write them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None

    config = property(lambda self: self.path / "config.json")
    metrics = property(lambda self: self.path / "metrics.csv")
    evaluations = property(lambda self: self.path / "evaluations.csv")
    final = property(lambda self: self.path / "final.json")
    policy = property(lambda self: self.path / "policy.safetensors")
    buffer = property(lambda self: self.path / "buffer.safetensors")
    checkpoints = property(lambda self: self.path / "checkpoints")
    tensorboard = property(lambda self: self.path / "tensorboard")
    log = property(lambda self: self.path / "run.log")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.final.is_file())

    def check_unused(self) -> None:
        """Refuse a directory that holds something, or in which nothing can be written.

        Raises:
            RunDirectoryError: saying which, and what to do.
        """
        if self.config.is_file():
            what = "a finished run" if self.finished else "a run that was not finished"
            how = "" if self.finished else f" (resume it with: frugalrl train --resume {self.path})"
            raise RunDirectoryError(f"out={str(self.path)!r} holds {what}{how}; choose another")
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"out={str(self.path)!r} is a file; choose a directory")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise RunDirectoryError(f"out={str(self.path)!r} is not empty; choose another")
        parent = self.path
        while not parent.exists():
            parent = parent.parent
        if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
            raise RunDirectoryError(
                f"out={str(self.path)!r} cannot be created: {parent} is not a writable directory"
            )

    def check_is_run(self) -> None:
        """Refuse a directory without a run.

        Raises:
            RunDirectoryError: saying what is missing.
        """
        if not self.path.is_dir():
            raise RunDirectoryError(f"{str(self.path)!r} is no directory: there is no run")
        if not self.config.is_file():
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
            (self.path / ".lock").unlink(missing_ok=True)
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
        file = (self.path / ".lock").open("a+", encoding="utf-8")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                file.close()
                raise RunDirectoryError(
                    f"{str(self.path)!r} is in use by {holder}; wait for it, or stop it"
                ) from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        self._lock = file

    def release(self) -> None:
        """Give the lock up."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON beside its place, then put it there: never half a file."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
