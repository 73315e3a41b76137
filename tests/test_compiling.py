"""Compiled functions keep their type, and are kept by all sources that they are made from."""

from __future__ import annotations

from pathlib import Path

import frugalrl
from frugalrl.compiling import _sources_behind, compiled, compiled_with

PACKAGE = Path(frugalrl.__file__).parent


@compiled
def plain(x: int) -> int:
    return x + 1


@compiled_with(nogil=True)
def with_options(x: int) -> int:
    return plain(x) + 1


def test_with_and_without_options() -> None:
    assert with_options(1) == 3


def test_sources_are_followed_through_imports(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from frugalrl.replay.samplers import Uniform\n")
    behind = _sources_behind(tmp_path / "mine.py")
    assert {PACKAGE / "replay" / "samplers.py", PACKAGE / "compiling.py"} <= behind
    assert PACKAGE / "cli.py" not in behind


def test_an_imported_package_counts_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f():\n    import frugalrl\n")
    assert set(PACKAGE.rglob("*.py")) <= _sources_behind(tmp_path / "mine.py")
