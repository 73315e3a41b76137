"""Who waits for the compiler is told so, once."""

from __future__ import annotations

import pytest
from numba import njit

from frugalrl.compiling import tell_of_compilation


def fresh(module: str) -> None:
    """Have a function of this module compiled."""

    def function(x: int) -> int:
        return x

    function.__module__ = module
    njit(function)(1)


def test_only_our_functions_are_told_of_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    fresh("frugalrl.something")  # the package's own listener may have been told already, or not
    capsys.readouterr()
    tell_of_compilation()
    fresh("somebody.else")
    assert capsys.readouterr().err == ""
    fresh("frugalrl.something")
    fresh("frugalrl.something")
    told = capsys.readouterr().err
    assert told.count("compiling") == 1
    assert told.startswith("frugalrl:")
