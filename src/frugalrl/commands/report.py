"""frugalrl report: write a results directory's report anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from frugalrl.commands.arguments import parse


@dataclass(frozen=True)
class Options:
    """Write the report of a results directory.

    It is report.html, tables.md, tables.tex, runs.csv, and figures/ as SVG and PDF. The directory
    may be unfinished: the report says what is missing. Files that no report wrote are never
    replaced or removed.
    """

    results: Path
    """Results directory of frugalrl bench or frugalrl compare."""
    out: Path | None = None
    """Where to write it; None: into the results directory."""
    open: bool = False
    """Open it in the browser."""


def main(arguments: list[str]) -> int:
    """Write the report."""
    options = parse(Options, arguments, "report")
    from frugalrl.bench.report.write import write_report
    from frugalrl.commands.grids import show_report

    show_report(write_report(options.results, options.out), open_report=options.open)
    return 0
