"""Write a report: one HTML page that needs no network, and what goes with it."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from frugalrl.bench.aggregate import BASELINE, FRUGAL, Summary, summarize, task_name
from frugalrl.bench.errors import BenchError, writing
from frugalrl.bench.report.figure import FORMATS, Figure, render
from frugalrl.bench.report.figures import all_figures
from frugalrl.bench.report.table import Table, markdown_text, to_html, to_latex, to_markdown
from frugalrl.bench.report.tables import all_tables
from frugalrl.bench.report.verdict import verdict, warnings
from frugalrl.bench.results import Result, read_results
from frugalrl.bench.runs import RUN_DIRECTORY, RUNS, command
from frugalrl.files import read_json, replacing, write_json
from frugalrl.training.config import concerns

PAGE = "report.html"
MANIFEST = "report.json"
_TEXTS = ("tables.md", "tables.tex", "runs.csv")
_FILES = re.compile(r"report\.html|tables\.(md|tex)|runs\.csv|figures/[a-z0-9_-]+\.(svg|pdf)")
_RUN_COLUMNS = (
    *("env", "algo", "method", "seed", "steps", "reward", "control_cost", "paper_reward"),
    *("paper_control_cost", "random_reward", "size", "offered", "stored", "replaced", "dropped"),
    *("evicted", "buffer_bytes", "train_seconds", "wall_seconds", "peak_memory_bytes"),
    *("convergence_point", "commit"),
)
_SECTIONS = {
    "rewards": "Rewards",
    "budget": "At equal size",
    "learning": "Learning",
    "paper": "The paper's tables",
    "buffer": "The buffer",
    "theorems": "The theorems",
    "parameters": "Kernels and parameters",
    "resources": "Memory and time",
    "problems": "Runs without a result",
    "run": "What was run",
}
_SETTINGS = (
    *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma"),
    *("train_freq", "gradient_steps", "net_arch", "ent_coef", "use_sde", "log_std_init"),
    *("action_noise", "action_noise_std", "policy_delay"),
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


def files_of_report(target: Path, names: Sequence[str] = (PAGE, *_TEXTS)) -> set[str]:
    """List the files that an earlier report has left in a directory.

    Raises:
        BenchError: One of these names is there already and no report wrote it.
    """
    listed = (read_json(target / MANIFEST) or {}).get("files", [])
    before = {str(name) for name in listed} if isinstance(listed, list) else set()
    strange = [name for name in names if name not in before and (target / name).exists()]
    if strange:
        raise BenchError(
            f"{target / strange[0]} is in the way: no report wrote it ({MANIFEST} does not list "
            "it). Move it away, or choose another --out"
        )
    return before


def _claim(target: Path, names: Sequence[str]) -> None:
    """Write down which files are this report's, and remove those that only an earlier one had.

    Raises:
        BenchError: One of them is there already and no report wrote it. Nothing has been touched.
    """
    before = files_of_report(target, names)
    for name in before - set(names):
        # The list is a file like any other: it may name nothing but files of a report.
        if _FILES.fullmatch(name):
            (target / name).unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / MANIFEST, {"about": "files of frugalrl report", "files": list(names)})


def _contents(summary: Summary, figures: Sequence[Figure]) -> Iterator[tuple[str, bytes]]:
    """Make every file of a report, one after the other: the page last."""
    for figure in figures:
        for suffix, content in render(figure).items():
            yield f"figures/{figure.id}.{suffix}", content
    tables = all_tables(summary)
    title, words = markdown_text(_title(summary)), markdown_text(verdict(summary))
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
    yield PAGE, _page(summary, tables, figures).encode()


def _page(summary: Summary, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    bodies = {key: _section(key, tables, figures) for key in _SECTIONS}
    for problem in summary.results.problems:
        name, detail = f"{problem.run.name}: {problem.state}", escape(problem.detail)
        written = _folded(name, f"<pre>{detail}</pre>") if detail else f"<p>{escape(name)}</p>"
        bodies["problems"] += written
    bodies["run"] = _what_was_run(summary)
    shown = {key: body for key, body in bodies.items() if body}
    sections = "".join(
        f'<section id="{key}"><h2>{_SECTIONS[key]}</h2>{body}</section>\n'
        for key, body in shown.items()
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in warnings(summary))
    drawings = {figure.id: figure.to_plotly() for figure in figures}
    packed = json.dumps(drawings, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":  # which could end the script element
        packed = packed.replace(sign, f"\\u{ord(sign):04x}")
    return Template(_asset("page.html")).substitute(
        title=escape(_title(summary)),
        subtitle=escape(_subtitle(summary)),
        style=_asset("style.css"),
        script=_asset("script.js"),
        links="".join(f'<a href="#{key}">{_SECTIONS[key]}</a>' for key in shown),
        verdict=escape(verdict(summary)),
        warnings=f'<ul class="warnings">{notes}</ul>' if notes else "",
        sections=sections,
        figures=packed,
        plotly=_packed_plotly(),
    )


def _title(summary: Summary) -> str:
    """Name the report after what was compared."""
    tasks, suite = summary.results.tasks, summary.results.grid.get("suite", "")
    if len(tasks) == 1:
        return f"{tasks[0][0]} with {tasks[0][1].upper()}: {len(summary.results.methods)} methods"
    return f"Suite {suite}: {len(tasks)} tasks" if tasks else f"{suite}: no results"


def _subtitle(summary: Summary) -> str:
    results, counts = summary.results, summary.seed_counts
    shown = "–".join(map(str, sorted(set(counts)))) if any(counts) else "no"
    unit = "seed" if counts == (1, 1) else "seeds"
    total = len(results.runs) + len(results.problems)
    made = results.grid.get("made", "")
    return f"{len(results.runs)} of {total} runs, {shown} {unit} per method. {made}"


def _section(key: str, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    """Write a section's tables and leave places for its figures."""
    written = ""
    for table in (table for table in tables if table.section == key):
        body = f'<p class="caption">{escape(table.caption)}</p>{to_html(table)}'
        head = f"<h3>{escape(table.title)}</h3>"
        folded = f"{table.title} ({len(table.rows)})"
        written += _folded(folded, body) if table.folded else f"{head}{body}\n"
    drawn = "".join(
        f'<figure id="{escape(figure.id)}"><h4>{escape(figure.title)}</h4>'
        f'<div class="plot" id="plot-{escape(figure.id)}"></div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
        for figure in figures
        if figure.group == key
    )
    return written + (f'<div class="figures">{drawn}</div>' if drawn else "")


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>\n"


def _what_was_run(summary: Summary) -> str:
    grid, runs = summary.results.grid, summary.results.runs
    facts = {"Command": str(grid.get("command", ""))}
    for key in ("commit", "machine"):
        found = dict.fromkeys(str(result.done.get(key)) for result in runs if result.done.get(key))
        facts[key.title()] = ", ".join(found) or str(grid.get(key, "unknown"))
    versions: dict[str, str] = {}
    for result in runs:
        versions |= result.done.get("versions") or {}
    facts["Versions"] = _listed(versions)
    facts |= _hyper_parameters(summary)
    methods = map(summary.results.method, summary.results.methods)
    facts["Methods"] = "; ".join(f"{method.label}: {method.about}" for method in methods)
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text
    )
    commands = "\n".join(
        command(result.run, result.done.get("derived", {}), f"runs/{index}")
        for index, result in enumerate(runs)
    )
    title = f"The command of every run ({len(runs)})"
    return f"<dl>{listed}</dl>" + (_folded(title, f"<pre>{escape(commands)}</pre>") if runs else "")


def _hyper_parameters(summary: Summary) -> dict[str, str]:
    """List the settings of each task's baseline, or of whatever ran, and those of the filter."""
    shown = {}
    runs = summary.results.runs
    for task in summary.results.tasks:
        results = [result for result in runs if result.run.task == task]
        config = _config(min(results, key=lambda result: result.run.method != BASELINE))
        has_noise = config.get("action_noise") != "none"
        names = [it for it in _SETTINGS if has_noise or not it.startswith("action_noise")]
        text = _listed({name: config.get(name) for name in names if concerns(task[1], name)})
        if text:
            shown[f"Settings, {task_name(task)}"] = f"{config.get('steps'):,} steps, {text}"
    for name in FRUGAL:
        found = next((result for result in runs if result.run.method == name), None)
        if found is not None:
            own = {k[4:]: value for k, value in _config(found).items() if k.startswith("fac_")}
            shown[f"Filter, {summary.results.method(name).label}"] = _listed(own)
    return shown


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)


def _config(result: Result) -> dict[str, Any]:
    content = read_json(result.directory / RUN_DIRECTORY / "config.json") or {}
    found = content.get("config")
    return found if isinstance(found, dict) else {}


def _asset(name: str) -> str:
    source = resources.files("frugalrl.bench.report").joinpath(f"assets/{name}")
    return source.read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    from plotly.offline import get_plotlyjs

    # mtime=0: the same report twice is the same file.
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
