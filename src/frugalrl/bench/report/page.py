"""The report as one HTML file that needs no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import Any

from frugalrl.bench.aggregate import BASELINE, FRUGAL, Summary, task_name
from frugalrl.bench.report import verdict
from frugalrl.bench.report.figure import Figure
from frugalrl.bench.report.table import Table, to_html
from frugalrl.bench.results import Result
from frugalrl.bench.runs import RUN_DIRECTORY, command
from frugalrl.files import read_json

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


def render_page(summary: Summary, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    """Write the whole report."""
    bodies = {key: _results(key, tables, figures) for key in _SECTIONS}
    bodies |= {"problems": _problems(summary), "run": _what_was_run(summary)}
    shown = {key: body for key, body in bodies.items() if body}
    links = "".join(f'<a href="#{key}">{_SECTIONS[key]}</a>' for key in shown)
    sections = "".join(
        f'<section id="{key}"><h2>{_SECTIONS[key]}</h2>{body}</section>\n'
        for key, body in shown.items()
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in verdict.warnings(summary))
    return Template(_asset("page.html")).substitute(
        title=escape(report_title(summary)),
        subtitle=escape(_subtitle(summary)),
        style=_asset("style.css"),
        script=_asset("script.js"),
        links=links,
        verdict=escape(verdict.verdict(summary)),
        warnings=f'<ul class="warnings">{notes}</ul>' if notes else "",
        sections=sections,
        figures=_json({figure.id: figure.to_plotly() for figure in figures}),
        plotly=_packed_plotly() if figures else "",
    )


def report_title(summary: Summary) -> str:
    """Name the report after what was compared."""
    tasks = summary.results.tasks
    if len(tasks) == 1:
        return f"{tasks[0][0]} with {tasks[0][1].upper()}: {len(summary.results.methods)} methods"
    if not tasks:
        return f"{summary.results.grid.get('suite', '')}: no results"
    return f"Suite {summary.results.grid.get('suite', '')}: {len(tasks)} tasks"


def _subtitle(summary: Summary) -> str:
    results = summary.results
    seeds = sorted({len(entry.seeds) for entry in summary.methods.values()})
    shown = "no" if not seeds else "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    unit = "seed" if seeds == [1] else "seeds"
    total = len(results.runs) + len(results.problems)
    made = results.grid.get("made", "")
    return f"{len(results.runs)} of {total} runs, {shown} {unit} per method. {made}"


def _results(key: str, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    written = "".join(_table(table) for table in tables if table.section == key)
    drawn = "".join(_figure(figure) for figure in figures if figure.group == key)
    return written + (f'<div class="figures">{drawn}</div>' if drawn else "")


def _table(table: Table) -> str:
    body = f'<p class="caption">{escape(table.caption)}</p>{to_html(table)}'
    if table.folded:
        return _folded(f"{table.title} ({len(table.rows)})", body)
    return f"<h3>{escape(table.title)}</h3>{body}\n"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>\n"


def _figure(figure: Figure) -> str:
    return (
        f'<figure id="{escape(figure.id)}"><h4>{escape(figure.title)}</h4>'
        f'<div class="plot" id="plot-{escape(figure.id)}"></div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
    )


def _problems(summary: Summary) -> str:
    parts = []
    for problem in summary.results.problems:
        name = f"{problem.run.name}: {problem.state}"
        detail = f"<pre>{escape(problem.detail)}</pre>"
        parts.append(_folded(name, detail) if problem.detail else f"<p>{escape(name)}</p>")
    return "".join(parts)


def _what_was_run(summary: Summary) -> str:
    grid = summary.results.grid
    runs = summary.results.runs
    facts: dict[str, str] = {"Command": str(grid.get("command", ""))}
    for key, label in (("commit", "Commit"), ("machine", "Machine")):
        found = dict.fromkeys(str(result.done.get(key)) for result in runs if result.done.get(key))
        facts[label] = ", ".join(found) or str(grid.get(key, "unknown"))
    versions: dict[str, str] = {}
    for result in runs:
        versions |= result.done.get("versions") or {}
    facts["Versions"] = ", ".join(f"{name} {number}" for name, number in versions.items())
    facts |= _hyper_parameters(summary)
    facts["Methods"] = "; ".join(
        f"{method.label}: {method.about}"
        for method in map(summary.results.method, summary.results.methods)
    )
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text
    )
    commands = "\n".join(
        command(result.run, result.done.get("derived", {}), f"runs/{index}")
        for index, result in enumerate(runs)
    )
    body = f"<dl>{listed}</dl>"
    if runs:
        title = f"The command of every run ({len(runs)})"
        body += _folded(title, f"<pre>{escape(commands)}</pre>")
    return body


_SHOWN = (
    *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma"),
    *("train_freq", "gradient_steps", "net_arch", "ent_coef", "use_sde", "log_std_init"),
    *("action_noise", "action_noise_std", "policy_delay"),
)
_OF_SAC = ("ent_coef", "use_sde", "log_std_init")


def _hyper_parameters(summary: Summary) -> dict[str, str]:
    """List the settings of each task's baseline, or of whatever ran, and those of the filter."""
    shown = {}
    runs = summary.results.runs
    for task in summary.results.tasks:
        names = [name for name in _SHOWN if task[1] == "sac" or name not in _OF_SAC]
        results = [result for result in runs if result.run.task == task]
        config = _config(min(results, key=lambda result: result.run.method != BASELINE))
        text = _listed({name: config.get(name) for name in names})
        if text:
            shown[f"Settings, {task_name(task)}"] = f"{config.get('steps'):,} steps, {text}"
    for name in FRUGAL:
        found = next((result for result in runs if result.run.method == name), None)
        if found is not None:
            config = _config(found)
            own = {key[4:]: value for key, value in config.items() if key.startswith("fac_")}
            shown[f"Filter, {summary.results.method(name).label}"] = _listed(own)
    return shown


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)


def _config(result: Result) -> dict[str, Any]:
    content = read_json(result.directory / RUN_DIRECTORY / "config.json") or {}
    found = content.get("config")
    return found if isinstance(found, dict) else {}


def _json(value: object) -> str:
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    source = resources.files("frugalrl.bench.report").joinpath(f"assets/{name}")
    return source.read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    from plotly.offline import get_plotlyjs

    # mtime=0: the same report twice is the same file.
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
