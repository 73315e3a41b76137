"""frugalrl inspect: show what a run's buffer holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from frugalrl.commands.arguments import parse


@dataclass(frozen=True)
class Options:
    """Show what a run's buffer holds.

    Its cells, rewards per cell, acceptance over time, bytes, and its entropy against that of a
    buffer without equivalents. For a run without the frugal filter the cells are those the filter
    would have made of the oldest transitions.
    """

    run: Path
    """Run directory, finished or not."""
    json: bool = False
    """As JSON."""


def main(arguments: list[str]) -> int:
    """Print what was found."""
    options = parse(Options, arguments, "inspect")
    from frugalrl.bench.inspection import inspect_run, inspection_lines

    found = inspect_run(options.run)
    print(json.dumps(found, indent=2) if options.json else "\n".join(inspection_lines(found)))
    return 0
