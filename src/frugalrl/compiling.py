"""How inner loops are compiled, and where compiled code is kept.

Numba compares a cached function with its own file only: after an upgrade a kept function may go on
calling an old one. So compiled code is kept in a directory named after a hash of all sources that
it can be made from. Who has to wait for the compiler is told so, once.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import platformdirs
from numba.core import event

from frugalrl import __version__

CACHE_VARIABLE = "FRUGALRL_CACHE_DIR"
"""Environment variable: where compiled code is kept, instead of in the user's cache directory."""
_FIRST_PROCESS = "FRUGALRL_FIRST_PROCESS"
_DAYS_KEPT = 14
SOURCES = ("*.py", "admission/**/*.py", "replay/**/*.py", "agents/**/*.py")
"""Where in this package compiled functions are, and all that they import."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
config: Any = numba.config

# Processes that this one starts inherit it, and leave the talking to this one.
os.environ.setdefault(_FIRST_PROCESS, str(os.getpid()))


def compiled_with(**options: Any) -> Callable[[_Function], _Function]:
    """Make a decorator that compiles on first use, with options of `numba.njit`, and keeps that."""

    def decorate(function: Any) -> Any:
        # What has no file cannot be found again.
        directory = _directory() if Path(function.__code__.co_filename).is_file() else None
        # Numba chooses a function's directory when it is decorated.
        users_choice, config.CACHE_DIR = config.CACHE_DIR, str(directory or "")
        try:
            is_kept = directory is not None
            return numba.njit(cache=is_kept, error_model="numpy", **options)(function)
        finally:
            config.CACHE_DIR = users_choice

    return decorate


compiled = compiled_with()
"""Compiles with Numba on first use and keeps the result on disk."""


@cache
def _directory() -> Path | None:
    """Choose the directory that compiled code is kept in; None where nothing can be written."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        root = Path(chosen).absolute()
    elif config.CACHE_DIR:
        root = Path(config.CACHE_DIR).absolute() / "frugalrl"
    else:
        root = platformdirs.user_cache_path("frugalrl", appauthor=False)
    try:
        return _make_directory(root)
    except OSError as error:
        _say(
            f"compiled code cannot be kept in {root} ({error.strerror or error}), so every run "
            f"compiles anew; set {CACHE_VARIABLE} to a directory that can be written"
        )
    try:
        # It lasts as long as this process, and serves those that this one starts.
        temporary = os.environ[CACHE_VARIABLE] = tempfile.mkdtemp(prefix="frugalrl-")
        atexit.register(_remove, temporary, os.getpid())
        return _make_directory(Path(temporary))
    except OSError:
        return None


def _make_directory(root: Path) -> Path:
    """Make the directory of these sources and versions, and remove others that are long unused."""
    if not root.is_absolute():
        raise OSError("there is no home directory")
    versions = __version__, numba.__version__, np.__version__, sys.version
    digest, package = hashlib.sha256(repr(versions).encode()), Path(__file__).parent
    for source in sorted(file for pattern in SOURCES for file in package.glob(pattern)):
        digest.update(source.name.encode() + source.read_bytes())
    directory = root / digest.hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    os.utime(directory)
    tempfile.TemporaryFile(dir=directory).close()
    for other in root.glob("[0-9a-f]" * 16):
        with suppress(OSError):  # another process was faster
            if time.time() - other.stat().st_mtime > _DAYS_KEPT * 86_400:
                shutil.rmtree(other, ignore_errors=True)
    return directory


def _remove(directory: str, owner: int) -> None:
    """Remove a directory, unless this is a fork of the process that owns it."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def _say(text: str) -> None:
    """Tell the user, unless a process that started this one sees to that."""
    if os.environ[_FIRST_PROCESS] == str(os.getpid()):
        print(f"frugalrl: {text}", file=sys.stderr)


@cache
def _tell_of_compiling() -> None:
    """Say, once, what takes so long."""
    _say("compiling, which takes up to a minute the first time")


def expect_compiling() -> None:
    """Say so before other processes compile on behalf of this one, if nothing is compiled yet."""
    directory = _directory()
    if directory is None or not any(directory.rglob("*.nbi")):
        _tell_of_compiling()


class Stopwatch:
    """Adds up the seconds between starts and stops; those inside others count once."""

    seconds = _begun = 0.0
    _depth = 0

    def __enter__(self) -> None:
        if not self._depth:
            self._begun = time.perf_counter()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._begun


COMPILATION = Stopwatch()
"""How long this process has waited for compilers, which is no time of training."""


class _Notice(event.Listener):  # type: ignore[misc]
    """Times compilation, and tells when the first function of this package has to be compiled."""

    def on_start(self, event: Any) -> None:
        """Look whose function it is that Numba has not found on disk."""
        COMPILATION.__enter__()
        if event.data["dispatcher"].py_func.__module__.startswith("frugalrl."):
            _tell_of_compiling()

    def on_end(self, event: Any) -> None:
        """Stop the time."""
        COMPILATION.__exit__()


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
