"""Files that are whole or not there, and directories that one process writes at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

LOCK = ".lock"
_MARKER = ".lock-holder"  # on file systems without locks, the file that stands for one
_NO_LOCKS = frozenset((errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL))
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp$")
_LONGEST = 60  # characters of a file's name that its temporary name repeats


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new empty file beside a path; what is in it at the end takes the path's place.

    It is synced first, so a crash leaves the old file or the new one, whole. A symbolic link is
    replaced, never followed.

    Raises:
        OSError: the file cannot be written; the old one is untouched.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode
        yield temporary
        # Some writers make private files; this one gets the mode any new file would have.
        os.chmod(temporary, mode)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        # The error that is on its way matters more than a leftover on a disk that is gone.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    # The rename itself has to survive a power cut; not every system lets a folder be opened.
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file: a reader sees the old one or the new one, never a part."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write a JSON object: a reader sees the old file or the new one, never a part."""
    write_text_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read a JSON object; None where the file is missing or damaged."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def appending(path: str | os.PathLike[str]) -> TextIO:
    """Open a text file to write at its end; what a symbolic link points to is left alone."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

    return open(path, "a", encoding="utf-8", newline="", opener=opener)


def is_leftover(path: Path) -> bool:
    """Tell whether a file is only a trace of a process: a lock, or what it never finished."""
    return path.name in (LOCK, _MARKER) or _TEMPORARY.fullmatch(path.name) is not None


def delete_leftovers(folder: str | os.PathLike[str]) -> None:
    """Delete what processes that were killed while writing have left.

    Only for whoever holds the folder's lock: a temporary file of a living process looks the same.
    """
    for path in Path(folder).glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


class DirectoryInUseError(OSError):
    """Another process writes into a directory; the message says which, and what can be done."""


class DirectoryLock:
    """The right to write into a directory, for one process at a time.

    The system gives it up when the process ends, however it ends. On file systems without such
    locks (some NFS) a file with host and process stands for it: after a crash of that process it
    is removed by the next start on the same host; from another host a user has to do it.

    Args:
        directory: what to lock; it must exist.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._held: Any = None

    def acquire(self, wait: float = 0.0) -> None:
        """Take the lock.

        Args:
            wait: seconds to wait for whoever holds it.

        Raises:
            DirectoryInUseError: another process holds it.
            OSError: the lock cannot be written.
        """
        from filelock import FileLock, SoftFileLock, Timeout

        # Not by thread: a lock is given up by whichever thread closes the run. The library's own
        # way out lets a second process delete the file that stands for the first one's lock.
        lock: Any = FileLock(self.directory / LOCK, thread_local=False, fallback_to_soft=False)
        advice = ""
        try:
            try:
                lock.acquire(timeout=wait, poll_interval=0.2)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                lock = SoftFileLock(self.directory / _MARKER, thread_local=False)
                advice = "; this file system has no locks: if it no longer runs, delete "
                advice += lock.lock_file
                lock.acquire(timeout=wait, poll_interval=0.2)
        except Timeout:
            raise DirectoryInUseError(
                f"{str(self.directory)!r} is in use by {_holder(Path(lock.lock_file))}; "
                f"wait for it, or stop it{advice}"
            ) from None
        self._held = lock
        if isinstance(lock, FileLock):  # the other kind writes its holder by itself
            with contextlib.suppress(OSError):  # Windows lets nobody write a locked file
                Path(lock.lock_file).write_text(f"{os.getpid()}\n{platform.node()}\n", "utf-8")

    def release(self) -> None:
        """Give the lock up; nothing happens where it is not held."""
        if self._held is not None:
            self._held.release()
            self._held = None


def _holder(path: Path) -> str:
    """Say who holds a lock, from what is written in its file."""
    try:
        process, host = path.read_text(encoding="utf-8").split("\n")[:2]
    except (OSError, ValueError):
        return "another process"
    return f"process {process} on {host}"
