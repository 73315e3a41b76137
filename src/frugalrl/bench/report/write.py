"""Write a report and what goes with it."""

from __future__ import annotations

import csv
from pathlib import Path

from frugalrl.bench import metrics
from frugalrl.bench.aggregate import SMOOTHING, summarize
from frugalrl.bench.errors import BenchError
from frugalrl.bench.report.figures import all_figures
from frugalrl.bench.report.page import render_page, report_title
from frugalrl.bench.report.svg import to_svg
from frugalrl.bench.report.table import markdown_text, to_latex, to_markdown
from frugalrl.bench.report.tables import all_tables
from frugalrl.bench.report.verdict import verdict, warnings
from frugalrl.bench.results import Run, read_results

_MEASURES = (
    "reward",
    "control_cost",
    "random_reward",
    "size",
    "offered",
    "stored",
    "replaced",
    "dropped",
    "evicted",
    "buffer_bytes",
    "train_seconds",
    "wall_seconds",
    "peak_memory_bytes",
)


def write_report(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write a results directory's report and what goes with it.

    Beside `report.html` go `tables.md`, `tables.tex`, `runs.csv` (a row a run) and `figures/*.svg`.

    Args:
        directory: Where a grid was run, to its end or not.
        out: Where the report goes; the results directory itself if left out.

    Returns:
        Path of the HTML file.

    Raises:
        BenchError: There are no results, or only a report whose runs are gone.
    """
    target = Path(out) if out is not None else Path(directory)
    summary = summarize(read_results(directory))
    page = target / "report.html"
    if page.is_file() and not (Path(directory) / "cells").is_dir():
        raise BenchError(
            f"{directory} holds a report but not the runs it was made from: nothing to write anew"
        )
    tables, figures = all_tables(summary), all_figures(summary)
    drawings = target / "figures"
    drawings.mkdir(parents=True, exist_ok=True)
    for old in drawings.glob("*.svg"):
        old.unlink()
    for figure in figures:
        (drawings / f"{figure.id}.svg").write_text(to_svg(figure), encoding="utf-8")
    notes = "".join(f"- {markdown_text(note)}\n" for note in warnings(summary))
    title, words = markdown_text(report_title(summary)), markdown_text(verdict(summary))
    head = f"# {title}\n\n{words}\n\n{notes}\n"
    markdown = head + "\n".join(to_markdown(table) for table in tables)
    (target / "tables.md").write_text(markdown, encoding="utf-8")
    latex = "% Needs the booktabs package.\n" + "\n".join(to_latex(table) for table in tables)
    (target / "tables.tex").write_text(latex, encoding="utf-8")
    _write_runs(target / "runs.csv", summary.results.runs)
    page.write_text(render_page(summary, tables, figures), encoding="utf-8")
    return page


def _write_runs(path: Path, runs: tuple[Run, ...]) -> None:
    """Write the numbers that everything else is computed from."""
    names = ("env", "algo", "method", "seed", "steps", *_MEASURES, "convergence_point", "commit")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(names)
        for run in runs:
            cell, point = run.cell, metrics.convergence_point(*run.curve, window=SMOOTHING)
            measured = [run.done.get(name) for name in _MEASURES]
            head = [cell.env, cell.algo, cell.method, cell.seed, cell.steps]
            table.writerow([*head, *measured, point, run.done.get("commit")])
