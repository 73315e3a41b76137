"""How a grid stands, on a terminal as a table that renews itself, elsewhere as plain lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from frugalrl.bench.grid import Job
from frugalrl.training.console import duration

_EVERY = 0.5
_TAIL = 4096


class View:
    """Shows how a grid stands: what is told, and below it, on a terminal, what is under way.

    Args:
        live: Rich's `Live`; None for logs and pipes.
    """

    def __init__(self, live: Any = None) -> None:
        self._live = live
        self._next = 0.0

    def update(self, jobs: Sequence[Job]) -> None:
        """Draw the table anew, a few times a second at most; a log has no present."""
        if self._live is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._live.update(_draw(jobs), refresh=True)

    def tell(self, line: str) -> None:
        """Show a line that stays."""
        if self._live is None:
            print(line, flush=True)
        else:
            from rich.text import Text

            self._live.console.print(Text(line))


@contextlib.contextmanager
def open_view(jobs: Sequence[Job]) -> Iterator[View]:
    """Give the view that fits where the output goes."""
    if not sys.stdout.isatty():
        print(f"{len(jobs)} runs, {_count(jobs, 'done')} done before", flush=True)
        yield View()
        return
    from rich.live import Live

    with Live(auto_refresh=False, transient=True) as live:
        yield View(live)


def _draw(jobs: Sequence[Job]) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(title=summary_line(jobs), title_justify="left", expand=True)
    for name in ("task", "method", "seed", "", "steps", "time left"):
        table.add_column(name, no_wrap=True)
    for job in jobs:
        if job.state == "running":
            steps, total = steps_done(job.metrics_file), job.run.steps
            elapsed = time.monotonic() - job.started
            table.add_row(
                Text(f"{job.run.env} {job.run.algo}"),
                Text(job.run.method),
                str(job.run.seed),
                ProgressBar(total=total, completed=steps, width=24),
                f"{steps:,} / {total:,}",
                duration(elapsed * (total - steps) / steps) if steps else "…",
            )
    return table


def _count(jobs: Sequence[Job], state: str) -> int:
    return sum(job.state == state for job in jobs)


def summary_line(jobs: Sequence[Job]) -> str:
    """Say how many runs are done, failed and left, and how long the rest will take."""
    text = f"{_count(jobs, 'done')} of {len(jobs)} runs done"
    if _count(jobs, "failed"):
        text += f", {_count(jobs, 'failed')} failed"
    left = time_left(jobs)
    return f"{text}, about {duration(left)} left" if left is not None else text


def time_left(jobs: Sequence[Job]) -> float | None:
    """Estimate the seconds left from the speed of what has run, None before anything has."""
    spent: dict[Any, float] = defaultdict(float)  # seconds, by task
    made: dict[Any, int] = defaultdict(int)  # steps
    missing: dict[Any, int] = defaultdict(int)
    for job in jobs:
        task, steps = job.run.task, 0
        if job.state == "done" and job.seconds > 0:
            spent[task] += job.seconds
            made[task] += job.run.steps
        elif job.state == "running":
            steps = steps_done(job.metrics_file)
            spent[task] += time.monotonic() - job.started
            made[task] += steps
        if job.state in ("waiting", "running"):
            missing[task] += job.run.steps - steps
    if not any(made.values()):
        return None
    pace = sum(spent.values()) / sum(made.values())
    left = sum(
        steps * (spent[task] / made[task] if made[task] else pace)
        for task, steps in missing.items()
    )
    return left / max(_count(jobs, "running"), 1)


def steps_done(path: Path) -> int:
    """Read the newest step from the end of a metrics file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return 0
    steps = (line.partition(",")[0] for line in reversed(lines))
    return next((int(step) for step in steps if step.isdigit()), 0)
