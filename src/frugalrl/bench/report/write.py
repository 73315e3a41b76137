"""Write a report and what goes with it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from frugalrl.bench.aggregate import Summary, summarize
from frugalrl.bench.errors import BenchError, writing
from frugalrl.bench.report.figure import FORMATS, Figure, render
from frugalrl.bench.report.figures import all_figures
from frugalrl.bench.report.page import render_page, report_title
from frugalrl.bench.report.table import markdown_text, to_latex, to_markdown
from frugalrl.bench.report.tables import all_tables
from frugalrl.bench.report.verdict import verdict, warnings
from frugalrl.bench.results import read_results
from frugalrl.bench.runs import RUNS
from frugalrl.files import read_json, replacing, write_json

PAGE = "report.html"
MANIFEST = "report.json"
_TEXTS = ("tables.md", "tables.tex", "runs.csv")
_OWN = re.compile(r"report\.html|tables\.(md|tex)|runs\.csv|figures/[a-z0-9-]+\.(svg|pdf)")
_RUN_COLUMNS = (
    *("env", "algo", "method", "seed", "steps", "reward", "control_cost", "paper_reward"),
    *("paper_control_cost", "random_reward", "size", "offered", "stored", "replaced", "dropped"),
    *("evicted", "buffer_bytes", "train_seconds", "wall_seconds", "peak_memory_bytes"),
    *("convergence_point", "commit"),
)


def write_report(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write a results directory's report and what goes with it.

    Beside `report.html` go `tables.md`, `tables.tex`, `runs.csv` (a row per run), `figures/*.svg`
    and `figures/*.pdf`. `report.json` lists them: the next report replaces or removes those files
    and no others.

    Args:
        directory: Where a grid was run, to its end or not.
        out: Where the report goes; the results directory itself if left out.

    Returns:
        Path of the HTML file.

    Raises:
        BenchError: There are no results, only a report whose runs are gone, or a file in the way
            that no report wrote.
        StorageError: A file cannot be written.
    """
    target = Path(out) if out is not None else Path(directory)
    summary = summarize(read_results(directory))
    if (target / PAGE).is_file() and not (Path(directory) / RUNS).is_dir():
        raise BenchError(
            f"{directory} holds a report but not the runs it was made from: nothing to write anew"
        )
    figures = all_figures(summary)
    with writing(target):
        drawings = [f"figures/{figure.id}.{suffix}" for figure in figures for suffix in FORMATS]
        _claim(target, [PAGE, *_TEXTS, *drawings])
        for name, content in _contents(summary, figures):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_bytes(content)
    return target / PAGE


def _claim(target: Path, names: Sequence[str]) -> None:
    """Write down which files are this report's, and remove those that only an earlier one had.

    Raises:
        BenchError: One of them is there already and no report wrote it. Nothing has been touched.
    """
    listed = (read_json(target / MANIFEST) or {}).get("files", [])
    before = {str(name) for name in listed} if isinstance(listed, list) else set()
    strange = [name for name in names if name not in before and (target / name).exists()]
    if strange:
        raise BenchError(
            f"{target / strange[0]} is in the way: no report wrote it ({MANIFEST} does not list "
            "it). Move it away, or choose another --out"
        )
    for name in before - set(names):
        # The list is a file like any other: it may name nothing but files of a report.
        if _OWN.fullmatch(name):
            (target / name).unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / MANIFEST, {"about": "files of frugalrl report", "files": list(names)})


def _contents(summary: Summary, figures: Sequence[Figure]) -> Iterator[tuple[str, bytes]]:
    """Make every file of a report, one after the other: the page last."""
    for figure in figures:
        for suffix, content in render(figure).items():
            yield f"figures/{figure.id}.{suffix}", content
    tables = all_tables(summary)
    title, words = markdown_text(report_title(summary)), markdown_text(verdict(summary))
    notes = "".join(f"- {markdown_text(note)}\n" for note in warnings(summary))
    text = f"# {title}\n\n{words}\n\n{notes}\n" + "\n".join(map(to_markdown, tables))
    yield "tables.md", text.encode()
    latex = "% Needs the booktabs package.\n" + "\n".join(map(to_latex, tables))
    yield "tables.tex", latex.encode()
    # The numbers that everything else is computed from.
    file = io.StringIO()
    rows = csv.DictWriter(file, _RUN_COLUMNS, extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    for result in summary.results.runs:
        point = {"convergence_point": result.convergence}
        rows.writerow({**result.done, **vars(result.run), **point})
    yield "runs.csv", file.getvalue().encode()
    yield PAGE, render_page(summary, tables, figures).encode()
