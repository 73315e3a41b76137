"""Compiled functions keep their type, and are kept by sources that include all of them."""

from __future__ import annotations

from pathlib import Path

import frugalrl
from frugalrl.compiling import SOURCES, compiled, compiled_with

PACKAGE = Path(frugalrl.__file__).parent


@compiled
def plain(x: int) -> int:
    return x + 1


@compiled_with(nogil=True)
def with_options(x: int) -> int:
    return plain(x) + 1


def test_with_and_without_options() -> None:
    assert with_options(1) == 3


def test_all_that_is_compiled_is_among_the_sources() -> None:
    followed = {file for pattern in SOURCES for file in PACKAGE.glob(pattern)}
    for file in PACKAGE.rglob("*.py"):
        decorates = "@compiled" in file.read_text("utf-8")
        assert file in followed or not decorates, file
    assert PACKAGE / "agents" / "fused" / "sac.py" in followed
