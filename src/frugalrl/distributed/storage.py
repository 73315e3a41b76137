"""Where nodes meet: a directory on any file system that fsspec knows, and copies of it here."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from frugalrl.distributed import INSTALL
from frugalrl.files import is_leftover, replacing
from frugalrl.training.errors import ConfigError

_CLAIM = "owner"
# What says or means that a run came to its end, in the order in which it is written.
_AT_THE_END = ("run/policy.safetensors", "run/buffer.safetensors", "run/final.json", "done.json")


class SharedDirectory:
    """A directory that every node can read and write.

    A file that is put is written beside its name and then moved there, so nobody takes a part of
    it for the whole.

    Args:
        url: what fsspec understands (s3://bucket/path, gs://..., file:///..., memory://...) or a
            path.

    Raises:
        ConfigError: fsspec does not know the protocol, lacks the package for it, or cannot connect.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        try:
            import fsspec
            from fsspec.implementations.local import LocalFileSystem
        except ImportError as error:
            raise ConfigError(
                f"this needs fsspec, which is not installed ({error}): {INSTALL}"
            ) from None
        self.url = os.fspath(url)
        try:
            self._files, root = fsspec.core.url_to_fs(self.url)
        except Exception as error:
            # Every file system has errors of its own.
            raise ConfigError(
                f"storage={self.url!r} cannot be used: {error}; a path works, or a URL of fsspec "
                "such as s3://bucket/results (pip install s3fs)"
            ) from None
        self._root = str(root).rstrip("/")
        # Other processes have other working directories.
        is_local = isinstance(self._files, LocalFileSystem)
        self.url = self._root if is_local else self.url.removesuffix("/")

    def at(self, path: str | os.PathLike[str]) -> SharedDirectory:
        """Give a directory below this one."""
        return SharedDirectory(f"{self.url}/{Path(path).as_posix()}")

    def check_writable(self) -> None:
        """Write a file, read it back and delete it.

        Raises:
            ConfigError: that does not work; the message says why.
        """
        name = f".probe-{secrets.token_hex(4)}"
        try:
            self.write(name, b"probe")
            found = self.read(name)
            self.delete(name)
        except Exception as error:
            # Every file system has errors of its own.
            raise ConfigError(
                f"storage={self.url!r} cannot be written: {type(error).__name__}: {error}"
            ) from error
        if found != b"probe":
            raise ConfigError(f"storage={self.url!r} does not give back what was written")

    def names(self, *, leftovers: bool = False) -> dict[str, int]:
        """Give the size of every file below by its relative name, of unfinished ones on request."""
        self._files.invalidate_cache()
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        return {
            str(path)[len(self._root) :].lstrip("/"): int(about["size"] or 0)
            for path, about in found.items()
            if leftovers or not is_leftover(Path(path))
        }

    def put(self, source: Path, name: str) -> None:
        """Copy a file there."""
        folder, _, last = self._path(name).rpartition("/")
        temporary = f"{folder}/.{last}.{secrets.token_hex(4)}.tmp"
        self._make_folder(name)
        with source.open("rb") as reader, self._files.open(temporary, "wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            # Only files of this machine have a number, and can be lost by a power cut.
            with contextlib.suppress(AttributeError, OSError, NotImplementedError):
                os.fsync(writer.fileno())
        self._files.mv(temporary, self._path(name))

    def get(self, name: str, target: Path) -> None:
        """Copy a file here."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            self._files.get_file(self._path(name), str(temporary))

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, whose parts mean nothing to anyone."""
        self._make_folder(name)
        self._files.pipe_file(self._path(name), content)

    def read(self, name: str) -> bytes | None:
        """Read a small file; None where there is none."""
        self._files.invalidate_cache()
        try:
            content: bytes = self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def fetch(self, folder: Path, *, checkpoints: bool = False, only_new: bool = False) -> None:
        """Copy files into a folder here: checkpoints too, or only what has another size here."""
        for name, size in self.names().items():
            path = folder / name
            is_known = only_new and path.is_file() and path.stat().st_size == size
            is_left_out = path.name == _CLAIM or (_is_checkpoint(name) and not checkpoints)
            if not is_known and not is_left_out:
                # One that was deleted meanwhile was not to be kept.
                with contextlib.suppress(FileNotFoundError):
                    self.get(name, path)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_folder(self, name: str) -> None:
        self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)


class ClaimLostError(RuntimeError):
    """Another process works on the same run; this one has to leave it alone."""


class RunCopy:
    """One run of a grid: the directory it works in here, and the same directory in storage.

    At every moment the storage holds a state from which the run can go on: rows of metrics before
    the checkpoint that counts on them, and what says that the run is over after all else. Whoever
    fetches a run last owns it: a process that was given up for dead no longer writes there.
    """

    def __init__(self, storage: SharedDirectory, folder: Path) -> None:
        self.storage = storage
        self.folder = folder
        self._pushed: dict[str, tuple[int, int]] = {}
        self._claim = secrets.token_hex(8).encode()

    def fetch(self) -> list[str]:
        """Claim the run and copy it here, wherever it stopped; gives the names of its files."""
        self.storage.write(_CLAIM, self._claim)
        self.storage.fetch(self.folder, checkpoints=True)
        self._pushed = {name: _stamp(self.folder / name) for name in self._names()}
        return list(self._pushed)

    def put_all(self) -> None:
        """Copy everything there, from a run that nobody works on."""
        for name in self._names():
            self._put(name)

    @property
    def has_new_checkpoint(self) -> bool:
        """Whether a checkpoint was written that storage does not have."""
        return any(_is_checkpoint(name) and name not in self._pushed for name in self._names())

    def push(self, *, ended: bool = False) -> None:
        """Copy there what has changed, so that another node can go on from the last checkpoint.

        Of a run that has ended everything is copied, and what is not here is deleted there.

        Raises:
            ClaimLostError: another process has fetched the run since.
        """
        if self.storage.read(_CLAIM) != self._claim:
            raise ClaimLostError(f"another process works on {self.storage.url}")
        here = self._names()
        for name in here:
            if ended or name not in _AT_THE_END:
                self._put(name)
        if ended:
            there = {*self.storage.names(leftovers=True)}
        else:
            there = {*filter(_is_checkpoint, self._pushed)}
        # The claim last: while anything is left to do, this can be tried again.
        for name in sorted(there.difference(here), key=lambda name: name == _CLAIM):
            self.storage.delete(name)
            self._pushed.pop(name, None)

    def _put(self, name: str) -> None:
        try:
            # Before copying: what is written meanwhile is a reason to copy it again.
            stamp = _stamp(self.folder / name)
            if self._pushed.get(name) != stamp:
                self.storage.put(self.folder / name, name)
                self._pushed[name] = stamp
        except FileNotFoundError:
            # A checkpoint may have been deleted since it was seen, in favour of newer ones.
            if (self.folder / name).exists():
                raise

    def _names(self) -> list[str]:
        """List what belongs into storage, in the order in which it has to come there.

        Locks, temporary files and checkpoints that cannot be read do not.
        """
        files = [path for path in self.folder.rglob("[!.]*") if path.is_file()]
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return sorted((name for name in names if not name.endswith(".damaged")), key=_place)


def _is_checkpoint(name: str) -> bool:
    """Whether a run needs a file only until its end."""
    return "/checkpoints/" in name


def _place(name: str) -> tuple[int, str]:
    """Give a file's place: rows before checkpoints, oldest first, and the end after all else."""
    if name in _AT_THE_END:
        return 2 + _AT_THE_END.index(name), name
    return int(_is_checkpoint(name)), name


def _stamp(path: Path) -> tuple[int, int]:
    """Give what changes when a file does."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns
