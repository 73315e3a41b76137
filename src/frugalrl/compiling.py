"""How inner loops are compiled, and where compiled code is kept.

Numba compares a cached function with its own file only: after an upgrade a kept function may go on
calling an old one. So the code of every module is kept in a directory named after a hash of all
sources it is made from. Who has to wait for the compiler is told so, once.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
import numpy as np
import platformdirs
from numba.core import event

from frugalrl import __version__

CACHE_VARIABLE = "FRUGALRL_CACHE_DIR"
"""Environment variable: where compiled code is kept, instead of in the user's cache directory."""
_FIRST_PROCESS = "FRUGALRL_FIRST_PROCESS"
_DAYS_KEPT = 14
_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^\s*(?:from|import) +frugalrl\b\.?([\w.]*)", re.MULTILINE)

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Processes that this one starts inherit it, and leave the talking to this one.
os.environ.setdefault(_FIRST_PROCESS, str(os.getpid()))


@overload
def compiled(function: _Function) -> _Function: ...
@overload
def compiled(**options: Any) -> Callable[[_Function], _Function]: ...
def compiled(function: Any = None, **options: Any) -> Any:
    """Compile with Numba on first use and keep the result on disk.

    Args:
        function: to be compiled; its type stays what it is.
        **options: for `numba.njit`, in ``@compiled(nogil=True)``.
    """
    if function is None:
        return lambda decorated: compiled(decorated, **options)
    directory = _directory_for(function.__code__.co_filename)
    # Numba chooses a function's directory when it is decorated.
    users_choice = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(directory or "")  # type: ignore[attr-defined]
    try:
        decorate = numba.njit(cache=directory is not None, error_model="numpy", **options)
        return decorate(function)
    finally:
        numba.config.CACHE_DIR = users_choice  # type: ignore[attr-defined]


@cache
def _directory_for(file: str) -> Path | None:
    """Where the compiled code of a module is kept; None where none can be."""
    root = _cache_root()
    if root is None or not Path(file).is_file():
        return None
    versions = __version__, numba.__version__, np.__version__, sys.version
    digest = hashlib.sha256(repr(versions).encode())
    for source in sorted(_sources_behind(Path(file))):
        digest.update(source.name.encode() + source.read_bytes())
    directory = root / digest.hexdigest()[:16]
    try:
        directory.mkdir(exist_ok=True)
        os.utime(directory)
    except OSError:
        return None
    return directory


def _sources_behind(file: Path) -> set[Path]:
    """Collect a module's file and those of this package that it imports, and they in turn."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting += _imported_by(source)
    return found


@cache
def _imported_by(file: Path) -> list[Path]:
    """List the files of this package that a file imports; of a package, all that it holds."""
    if file == Path(__file__):
        return []
    imported: list[Path] = []
    for name in _IMPORT.findall(file.read_text(encoding="utf-8")):
        module = _PACKAGE.joinpath(*name.split("."))
        single = module.with_suffix(".py")
        imported += [single] if name and single.is_file() else module.rglob("*.py")
    return imported


@cache
def _cache_root() -> Path | None:
    """Choose the directory for all compiled code, and remove from it what is long unused."""
    chosen = os.environ.get(CACHE_VARIABLE)
    root = Path(chosen) if chosen else _default_root()
    try:
        if not (chosen or root.is_absolute()):
            raise OSError("there is no home directory")
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        return _temporary_root(root, error)
    for unused in _long_unused(root):
        shutil.rmtree(unused, ignore_errors=True)
    return root


def _default_root() -> Path:
    given = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    if given:
        return Path(given).absolute() / "frugalrl"
    return platformdirs.user_cache_path("frugalrl", appauthor=False)


def _temporary_root(wanted: Path, error: OSError) -> Path | None:
    """Keep compiled code for as long as this process lives, and say so."""
    try:
        root: str | None = tempfile.mkdtemp(prefix="frugalrl-")
    except OSError:
        root = None
    _say(
        f"compiled code cannot be kept in {wanted} ({error.strerror or error}), so every run "
        f"compiles anew; set {CACHE_VARIABLE} to a directory that can be written"
    )
    if root is None:
        return None
    os.environ[CACHE_VARIABLE] = root  # for the processes that this one starts
    atexit.register(_remove, root, os.getpid())
    return Path(root)


def _remove(directory: str, owner: int) -> None:
    """Remove a directory, unless this is a fork of the process that owns it."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def _long_unused(root: Path) -> Iterator[Path]:
    """Find directories of compiled code that no process has opened for long."""
    for directory in root.iterdir():
        try:
            age = time.time() - directory.stat().st_mtime
        except OSError:
            continue  # another process was faster
        if re.fullmatch("[0-9a-f]{16}", directory.name) and age > _DAYS_KEPT * 86_400:
            yield directory


def _say(text: str) -> None:
    """Tell the user, unless a process that started this one sees to that."""
    if os.environ[_FIRST_PROCESS] == str(os.getpid()):
        print(f"frugalrl: {text}", file=sys.stderr)


class Stopwatch:
    """Adds up the seconds between starts and stops; those inside others count once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._begun = 0.0

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

    is_told = False

    def on_start(self, event: Any) -> None:
        """Look whose function it is that Numba has not found on disk."""
        COMPILATION.__enter__()
        module = event.data["dispatcher"].py_func.__module__
        if not self.is_told and module.startswith("frugalrl."):
            self.is_told = True
            _say("compiling, which takes up to a minute the first time")

    def on_end(self, event: Any) -> None:
        """Stop the time."""
        COMPILATION.__exit__()


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
