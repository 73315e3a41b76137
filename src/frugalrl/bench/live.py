"""How a grid stands, on a terminal as a table that renews itself, elsewhere as plain lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frugalrl.bench.grid import Job, View
from frugalrl.training.console import duration

_EVERY = 0.5
_TAIL = 4096


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self, total: int, already: int) -> None:
        print(f"{total} runs, {already} done before", flush=True)

    def update(self, jobs: Sequence[Job]) -> None:
        """Show nothing: a log has no present."""

    def tell(self, line: str) -> None:
        """Print the line."""
        print(line, flush=True)


class Table:
    """A table of the runs under way, above it everything that was told."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._next = 0.0
        self._begun = time.monotonic()

    def update(self, jobs: Sequence[Job]) -> None:
        """Draw the table anew, a few times a second at most."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        self._live.update(self._draw(jobs), refresh=True)

    def tell(self, line: str) -> None:
        """Print a line above the table."""
        from rich.text import Text

        self._live.console.print(Text(line))

    def _draw(self, jobs: Sequence[Job]) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=summary_line(jobs), title_justify="left", expand=True)
        for name in ("task", "method", "seed", "", "steps", "time left"):
            table.add_column(name, no_wrap=True)
        for job in jobs:
            if job.state != "running":
                continue
            steps, total = steps_done(job.metrics_file), job.run.steps
            elapsed = time.monotonic() - job.started
            left = elapsed * (total - steps) / steps if steps else None
            table.add_row(
                Text(f"{job.run.env} {job.run.algo}"),
                Text(job.run.method),
                str(job.run.seed),
                ProgressBar(total=total, completed=steps, width=24),
                f"{steps:,} / {total:,}",
                duration(left) if left is not None else "…",
            )
        return table


@contextlib.contextmanager
def open_view(jobs: Sequence[Job]) -> Iterator[View]:
    """Give the view that fits where the output goes."""
    already = sum(job.state == "done" for job in jobs)
    if not sys.stdout.isatty():
        yield Plain(len(jobs), already)
        return
    from rich.live import Live

    with Live(auto_refresh=False, transient=True) as live:
        yield Table(live)


def summary_line(jobs: Sequence[Job]) -> str:
    """Say how many runs are done, failed and left, and how long the rest will take."""
    counts = {state: sum(job.state == state for job in jobs) for state in ("done", "failed")}
    text = f"{counts['done']} of {len(jobs)} runs done"
    if counts["failed"]:
        text += f", {counts['failed']} failed"
    left = time_left(jobs)
    return f"{text}, about {duration(left)} left" if left is not None else text


def time_left(jobs: Sequence[Job]) -> float | None:
    """Estimate the seconds left from the speed of what has run, None before anything has."""
    now = time.monotonic()
    seconds: dict[Any, float] = {}
    steps: dict[Any, float] = {}
    for job in jobs:
        if job.state == "done" and job.seconds > 0:
            spent, made = job.seconds, float(job.run.steps)
        elif job.state == "running":
            spent, made = now - job.started, float(steps_done(job.metrics_file))
        else:
            continue
        for key in (job.run.task, None):
            seconds[key] = seconds.get(key, 0.0) + spent
            steps[key] = steps.get(key, 0.0) + made
    if not steps.get(None):
        return None
    total, running = 0.0, 0
    for job in jobs:
        if job.state not in ("waiting", "running"):
            continue
        key = job.run.task if steps.get(job.run.task) else None
        missing: float = job.run.steps
        if job.state == "running":
            running += 1
            missing -= steps_done(job.metrics_file)
        total += missing * seconds[key] / steps[key]
    return total / max(running, 1)


def steps_done(path: Path) -> int:
    """Read the newest step from the end of a metrics file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        first = line.partition(",")[0]
        if first.isdigit():
            return int(first)
    return 0
