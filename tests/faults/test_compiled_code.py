"""Compiled code follows its sources, and does not need a place to be kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import frugalrl

CALLEE = "from frugalrl.compiling import compiled\n@compiled\ndef f(x):\n    return x + {}\n"
CALLER = """
from frugalrl.compiling import compiled_with
from frugalrl.callee import f

@compiled_with(nogil=True)
def g(x):
    return 10 * f(x)
"""
RUN = "from frugalrl.caller import g; print(g(1), sum(g.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Copy the package's root, with one compiled function that calls another."""
    package = tmp_path / "source" / "frugalrl"
    package.mkdir(parents=True)
    for name in ("__init__.py", "compiling.py"):
        shutil.copy(Path(frugalrl.__file__).parent / name, package)
    (package / "callee.py").write_text(CALLEE.format(1))
    (package / "caller.py").write_text(CALLER)
    return package


def run(package: Path, code: str = RUN, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code that finds the package in this place, and the user's directories beside it."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FRUGALRL_", "NUMBA_", "COV"))
    }
    home = package.parent.parent / "home"
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={
            **inherited,
            "PYTHONPATH": str(package.parent),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_changed_callee_is_followed(package: Path) -> None:
    assert run(package).stdout == "20 0\n"
    assert run(package).stdout == "20 1\n"  # kept, and loaded
    (package / "callee.py").write_text(CALLEE.format(2))
    assert run(package).stdout == "30 0\n"


def test_only_the_first_compilation_is_told_of(package: Path) -> None:
    assert run(package).stderr.count("compiling") == 1
    assert run(package).stderr == ""


def test_processes_started_by_the_first_are_silent(package: Path) -> None:
    first = run(
        package,
        "import subprocess, sys, frugalrl.compiling\n"
        f"subprocess.run([sys.executable, '-c', {RUN!r}], check=True)",
    )
    assert first.stdout == "20 0\n"
    assert first.stderr == ""


def test_who_lets_others_compile_says_so_first(package: Path) -> None:
    ask = "import frugalrl.compiling as c; c.expect_compiling(); c.expect_compiling()"
    assert run(package, ask).stderr.count("compiling") == 1
    run(package)
    assert run(package, ask).stderr == ""


def test_numbas_own_setting_is_respected(package: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    run(package, NUMBA_CACHE_DIR=str(chosen))
    assert list(chosen.rglob("*.nbi"))
    assert not (tmp_path / "home").exists()


def test_code_unused_for_long_is_removed(package: Path, tmp_path: Path) -> None:
    run(package)
    root = tmp_path / "home" / "cache" / "frugalrl"
    kept = set(root.iterdir())
    for name in ("0123456789abcdef", "fedcba9876543210", "0123456789abcdef-mine"):
        (root / name).mkdir()
        os.utime(root / name, (0, 0))
    os.utime(root / "fedcba9876543210")
    run(package)
    left = {path.name for path in set(root.iterdir()) - kept}
    assert left == {"fedcba9876543210", "0123456789abcdef-mine"}


def test_no_place_to_keep_it(package: Path, tmp_path: Path) -> None:
    """Nothing can be written but the temporary directory, which is left as it was found."""
    nowhere, temporary = "/dev/null/nowhere", tmp_path / "temporary"
    temporary.mkdir()
    before = set(package.rglob("*"))
    done = run(
        package, HOME=nowhere, XDG_CACHE_HOME=nowhere, TMPDIR=str(temporary), LOCALAPPDATA=nowhere
    )
    assert done.stdout == "20 0\n"
    assert done.stderr.count("cannot be kept in /dev/null/nowhere") == 1
    assert "FRUGALRL_CACHE_DIR" in done.stderr
    assert list(temporary.iterdir()) == []
    assert set(package.rglob("*")) == before


def test_no_temporary_place_either(package: Path) -> None:
    code = (
        "import tempfile\n"
        "def refuse(*args, **kwargs): raise OSError(28, 'No space left on device')\n"
        f"tempfile.mkdtemp = tempfile.TemporaryFile = refuse\n{RUN}"
    )
    done = run(package, code)
    assert done.stdout == "20 0\n"
    assert done.stderr.count("No space left on device") == 1
