"""A results directory made up for the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from bench_made_up import make_results_in

from frugalrl.bench.report.figure import FORMATS


@pytest.fixture
def make_results(tmp_path: Path) -> Callable[..., Path]:
    """Write a results directory into the test's own directory; see `make_results_in`."""
    return partial(make_results_in, tmp_path)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figure files empty where a test is about something else: drawing is slow."""
    monkeypatch.setattr("frugalrl.bench.report.write.render", lambda _: dict.fromkeys(FORMATS, b""))
