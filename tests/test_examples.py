"""The example that needs only the core."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_compare_filters(capsys):
    main = runpy.run_path(str(EXAMPLES / "compare_filters.py"))["main"]
    buffers = main("MountainCarContinuous-v0", 600)
    assert len(buffers["keep all"]) == 600
    assert 60 <= len(buffers["frugal, discard"]) < 200
    assert buffers["frugal, discard"].stats.replaced == 0
    assert buffers["frugal, replace"].stats.dropped == 0
    table = capsys.readouterr().out
    assert all(name in table for name in buffers)
