"""The report as one HTML file that needs no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
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
}


def render_page(summary: Summary, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    """Write the whole report."""
    title = report_title(summary)
    sections = [
        _section(key, heading, tables, figures)
        for key, heading in _SECTIONS.items()
        if any(t.section == key for t in tables) or any(f.group == key for f in figures)
    ]
    names = {key: _SECTIONS[key] for key in _SECTIONS if f'id="{key}"' in "".join(sections)}
    if summary.results.problems:
        sections.append(_problems(summary))
        names["problems"] = "Without result"
    sections.append(_what_was_run(summary))
    names["run"] = "What was run"
    links = "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name in names.items())
    specs = {figure.id: figure.to_plotly() for figure in figures}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{_asset("style.css")}</style>
</head>
<body>
<header><div><h1>{escape(title)}</h1><p class="sub">{escape(_subtitle(summary))}</p></div>
<button id="theme" type="button" aria-label="Switch between light and dark">Dark</button></header>
<nav><div>{links}</div></nav>
<main>
<p class="verdict">{escape(verdict.verdict(summary))}</p>
{_warnings(verdict.warnings(summary))}
{"".join(sections)}
</main>
<footer>Made by frugalrl. Every number here is recomputed from the runs' own files.</footer>
<script id="figures" type="application/json">{_json(specs)}</script>
<script id="plotly" type="text/plain">{_packed_plotly() if figures else ""}</script>
<script>
{_asset("script.js")}</script>
</body>
</html>
"""


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


def _section(key: str, heading: str, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    drawn = "".join(_figure(figure) for figure in figures if figure.group == key)
    block = f'<div class="figures">{drawn}</div>' if drawn else ""
    written = "".join(_table(table) for table in tables if table.section == key)
    return f'<section id="{key}"><h2>{escape(heading)}</h2>{written}{block}</section>\n'


def _table(table: Table) -> str:
    caption = f'<p class="caption">{escape(table.caption)}</p>'
    if table.folded:
        return (
            f"<details><summary>{escape(table.title)} ({len(table.rows)})</summary>"
            f"{caption}{to_html(table)}</details>\n"
        )
    return f"<h3>{escape(table.title)}</h3>{caption}{to_html(table)}\n"


def _figure(figure: Figure) -> str:
    return (
        f'<figure id="{escape(figure.id)}"><h4>{escape(figure.title)}</h4>'
        f'<div class="plot" id="plot-{escape(figure.id)}"></div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
    )


def _warnings(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _problems(summary: Summary) -> str:
    parts = []
    for problem in summary.results.problems:
        name = f"{escape(problem.run.name)}: {escape(problem.state)}"
        detail = f"<pre>{escape(problem.detail)}</pre>" if problem.detail else ""
        if detail:
            parts.append(f"<details><summary>{name}</summary>{detail}</details>")
        else:
            parts.append(f"<p>{name}</p>")
    return f'<section id="problems"><h2>Runs without a result</h2>{"".join(parts)}</section>'


def _what_was_run(summary: Summary) -> str:
    grid = summary.results.grid
    runs = summary.results.runs
    facts: dict[str, str] = {"Command": str(grid.get("command", ""))}
    for key, label in (("commit", "Commit"), ("machine", "Machine")):
        found = dict.fromkeys(str(result.done.get(key)) for result in runs if result.done.get(key))
        facts[label] = ", ".join(found) or str(grid.get(key, "unknown"))
    versions: dict[str, str] = {}
    for result in runs:
        stored = result.done.get("versions")
        if isinstance(stored, Mapping):
            versions |= {str(name): str(version) for name, version in stored.items()}
    facts["Versions"] = ", ".join(f"{name} {number}" for name, number in versions.items())
    facts |= _hyper_parameters(summary)
    methods = dict.fromkeys(summary.results.methods)
    facts["Methods"] = "; ".join(
        f"{method.label}: {method.about}" for method in map(summary.results.method, methods)
    )
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text
    )
    commands = "\n".join(
        command(result.run, result.done.get("derived", {}), f"runs/{index}")
        for index, result in enumerate(runs)
    )
    each = (
        f"<details><summary>The command of every run ({len(runs)})</summary>"
        f"<pre>{escape(commands)}</pre></details>"
        if runs
        else ""
    )
    return f'<section id="run"><h2>What was run</h2><dl>{listed}</dl>{each}</section>'


_SHOWN = (
    *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma"),
    *("train_freq", "gradient_steps", "net_arch", "ent_coef", "use_sde", "log_std_init"),
    *("action_noise", "action_noise_std", "policy_delay"),
)
_OF_SAC = ("ent_coef", "use_sde", "log_std_init")


def _hyper_parameters(summary: Summary) -> dict[str, str]:
    """List the settings of each task's baseline, or of whatever ran, and those of the filter."""
    shown = {}
    for task in summary.results.tasks:
        results = [result for result in summary.results.runs if result.run.task == task]
        results.sort(key=lambda result: result.run.method != BASELINE)
        config = _config(results[0])
        pairs = [(name, config.get(name)) for name in _SHOWN]
        if task[1] != "sac":
            pairs = [pair for pair in pairs if pair[0] not in _OF_SAC]
        text = ", ".join(f"{name} {value}" for name, value in pairs if value is not None)
        if text:
            shown[f"Settings, {task_name(task)}"] = f"{config.get('steps'):,} steps, {text}"
    for name in FRUGAL:
        found = [result for result in summary.results.runs if result.run.method == name]
        if found:
            config = _config(found[0])
            pairs = [(key[4:], value) for key, value in config.items() if key.startswith("fac_")]
            text = ", ".join(f"{key} {value}" for key, value in pairs if value is not None)
            shown[f"Filter, {summary.results.method(name).label}"] = text
    return shown


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
