"""What `frugalrl compare`, `bench` and `demo` have in common: plan, run, report."""

from __future__ import annotations

import shlex
import textwrap
import time
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from frugalrl.bench import origin
from frugalrl.bench.aggregate import BASELINE, Summary, summarize, task_name
from frugalrl.bench.calibrate import estimate_line
from frugalrl.bench.errors import BenchError, writing
from frugalrl.bench.grid import Start, open_grid, open_view, run_jobs, start_process
from frugalrl.bench.report.table import digits_for, show, show_interval
from frugalrl.bench.report.verdict import verdict
from frugalrl.bench.report.write import files_of_report, write_report
from frugalrl.bench.results import read_results
from frugalrl.bench.runs import checked_runs, describe_runs
from frugalrl.bench.suites import Suite, with_required_methods, with_settings
from frugalrl.commands.arguments import GridOptions
from frugalrl.compiling import expect_compiling


def run_grid(
    options: GridOptions,
    suite: Suite,
    out: Path,
    words: Sequence[str],
    *,
    scale: float = 1.0,
    closing: Callable[[Summary], list[str]] | None = None,
) -> int:
    """Run a suite and write its report; a dry run only lists the runs and estimates their time.

    The words are what the user typed; `closing` makes the lines printed at the end, if not a table
    and the verdict.

    Returns:
        An exit code: 0, 1 if a run failed, 128 plus the signal's number if one stopped it.
    """
    backend = _backend(options, out)
    suite, notes = with_required_methods(with_settings(suite, options.set))
    for note in notes:
        print(f"note: {note}")
    runs = checked_runs(suite, scale)
    if options.jobs < 1:
        raise BenchError(f"jobs={options.jobs} must be at least 1")
    if options.dry_run:
        print("\n".join(describe_runs(runs)), flush=True)
        print(estimate_line(runs, options.jobs))
        return 0
    files_of_report(out)  # rather than after hours that something is in the way of the report
    command = shlex.join(["frugalrl", *words])
    about = {"suite": suite.name, "command": command, "made": time.strftime("%Y-%m-%d")}
    about |= {"commit": origin.commit(), "machine": origin.machine()}
    if options.backend == "local":
        expect_compiling()
    # Ray has a queue of its own.
    most = options.jobs if options.backend == "local" else len(runs)
    with (
        writing(out),
        backend as start,
        open_grid(out, runs, about) as jobs,
        open_view(jobs) as tell,
    ):
        stopped = run_jobs(jobs, start, tell, most)
    states = [job.state for job in jobs]
    if stopped is not None:
        print(
            f"stopped: {states.count('done')} of {len(states)} runs done, those under way were "
            f"saved. The same command goes on: {command}"
        )
        return 128 + stopped
    page = write_report(out)
    print("\n".join(["", *(closing or summary_lines)(summarize(read_results(out))), ""]))
    show_report(page, open_report=options.open)
    lost = states.count("failed") + states.count("blocked")
    if lost:
        print(f"{lost} of {len(states)} runs have no result; the same command tries them again")
    return 1 if lost else 0


def _backend(options: GridOptions, out: Path) -> AbstractContextManager[Start]:
    """Give, as a context, what starts runs."""
    cluster: dict[str, Any] = {k: getattr(options, k) for k in ("address", "storage", "gpus")}
    if options.backend == "ray":
        from frugalrl.distributed.grid import ray_tasks

        return ray_tasks(out, keep_buffers=options.keep_buffers, **cluster)
    for name, value in cluster.items():
        if value:
            raise BenchError(
                f"--{name} {value} has no effect on this machine's own processes; add --backend ray"
            )
    return nullcontext(lambda job: start_process(job.directory, keep_buffer=options.keep_buffers))


def summary_lines(summary: Summary, *, words: bool = True) -> list[str]:
    """Put the results into a table for a terminal, and below it, in words, what they say."""
    against = "baseline" if summary.reference == BASELINE else "FAC"
    tasks = len(summary.results.tasks) > 1
    heads = ("seeds", "reward", f"vs {against}", "second half", "transitions", "buffer", "training")
    rows = [["", *heads]]
    for (task, name), entry in summary.by_method.items():
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
