"""What `frugalrl compare` and `frugalrl bench` have in common: plan, run, report."""

from __future__ import annotations

import textwrap
import time
import webbrowser
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from frugalrl.bench import origin
from frugalrl.bench.aggregate import BASELINE, Summary, summarize, task_name
from frugalrl.bench.calibrate import estimate_line
from frugalrl.bench.errors import BenchError, writing
from frugalrl.bench.grid import Grid, Job, Process, Start, open_view, start_process
from frugalrl.bench.report.table import digits_for, show, show_interval
from frugalrl.bench.report.verdict import verdict
from frugalrl.bench.report.write import write_report
from frugalrl.bench.results import read_results
from frugalrl.bench.runs import checked_runs, describe_runs
from frugalrl.bench.suites import Suite, with_required_methods


def execute(
    suite: Suite,
    out: Path,
    *,
    scale: float = 1.0,
    jobs: int = 1,
    dry_run: bool = False,
    keep_buffers: bool = False,
    open_report: bool = False,
    command: str = "",
    backend: AbstractContextManager[Start] | None = None,
    closing: Callable[[Summary], list[str]] | None = None,
) -> int:
    """Run a suite and write its report; a dry run only lists the runs and estimates their time.

    As many run at a time as `jobs` says, or all at once where a `backend` gives, as a context, what
    starts them. `command` is what the user typed; `closing` makes the lines printed at the end, if
    not a table and the verdict.

    Returns:
        An exit code: 0, 1 if a run failed, 128 plus the signal's number if one stopped it.
    """
    suite, notes = with_required_methods(suite)
    for note in notes:
        print(f"note: {note}")
    runs = checked_runs(suite, scale)
    if jobs < 1:
        raise BenchError(f"jobs={jobs} must be at least 1")
    if dry_run:
        print("\n".join(describe_runs(runs)), flush=True)
        print(estimate_line(runs, jobs))
        return 0

    def start_here(job: Job) -> Process:
        return start_process(job.directory, job.place, keep_buffer=keep_buffers)

    about = {"suite": suite.name, "command": command, "made": time.strftime("%Y-%m-%d")}
    about |= {"commit": origin.commit(), "machine": origin.machine()}
    with writing(out), backend or nullcontext(start_here) as start:
        grid = Grid(out, runs, start, jobs=jobs if backend is None else len(runs))
        grid.prepare(about)
        with open_view(grid.jobs) as view:
            stopped = grid.run(view)
    states = [job.state for job in grid.jobs]
    if stopped is not None:
        print(
            f"stopped: {states.count('done')} of {len(states)} runs done, those under way were "
            f"saved. The same command goes on: {command}"
        )
        return 128 + stopped
    page = write_report(out)
    print("\n".join(["", *(closing or result_lines)(summarize(read_results(out))), ""]))
    show_report(page, open_report=open_report)
    lost = states.count("failed") + states.count("blocked")
    if lost:
        print(f"{lost} of {len(states)} runs have no result; the same command tries them again")
    return 1 if lost else 0


def result_lines(summary: Summary, *, words: bool = True) -> list[str]:
    """Put the results into a table for a terminal, and below it, in words, what they say."""
    against = "baseline" if summary.reference == BASELINE else "FAC"
    tasks = len(summary.results.tasks) > 1
    heads = ("seeds", "reward", f"vs {against}", "second half", "transitions", "buffer", "training")
    rows = [["", *heads]]
    for (task, name), entry in summary.methods.items():
        digits = digits_for(entry.reward.value)
        found = entry.against_reference
        row = [
            f"{task_name(task)}: {name}" if tasks else name,
            str(len(entry.seeds)),
            show_interval(entry.reward, digits),
            "" if found is None else show_interval(found.difference, digits, sign=True),
            show_interval(entry.late_reward, digits),
            show(entry.size, 0),
            f"{show(entry.bytes / 1e6)} MB",
            f"{show(entry.train_seconds, 0)} s",
        ]
        rows.append(row)
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, *texts in rows:
        numbers = (f"  {text:>{width}}" for text, width in zip(texts, widths, strict=True))
        lines.append(f"{name:<{first}}{''.join(numbers)}")
    return [*lines, "", *textwrap.wrap(verdict(summary), 100)] if words else lines


def show_report(page: Path, *, open_report: bool) -> None:
    """Say where a report is, and open it if asked."""
    print(f"report: {page}")
    if open_report:
        webbrowser.open(page.resolve().as_uri())
