"""Does a grid's runs, some at a time, each in its own process, and picks up where it was left.

How it stands is shown on a terminal as a table that renews itself, elsewhere as plain lines.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from frugalrl.bench.errors import BenchError
from frugalrl.bench.results import GRID_FILE, read_columns, read_done
from frugalrl.bench.runs import (
    ERROR_FILE,
    RUN_DIRECTORY,
    RUN_FILE,
    Run,
    describe_change,
    listed_runs,
)
from frugalrl.files import DirectoryLock, read_json, write_json
from frugalrl.training.console import duration
from frugalrl.training.process import InterruptGuard

OUTPUT_FILE = "output.log"
WORKER = (sys.executable, "-m", "frugalrl.bench.worker")
_POLL = 0.2  # seconds
_MOST_SIZES = 500
# What keeps a run to one thread, whatever it imports.
SINGLE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}


class Process(Protocol):
    """A run under way, here or elsewhere."""

    def poll(self) -> int | None:
        """Give the exit code, None while the run goes on."""

    def terminate(self) -> None:
        """Ask the run to save and stop."""


@dataclass
class Job:
    """A run and how it stands."""

    run: Run
    directory: Path
    state: str = "waiting"
    """`waiting`, `running`, `done`, `failed` or `blocked` (the run that it needs failed)."""
    source: Job | None = None
    """The job of the run that a control takes its number from: same task, same seed."""
    process: Process | None = None
    """Counts the runs at a time."""
    started: float = 0.0
    seconds: float = 0.0
    told_to_stop: bool = False

    @property
    def metrics_file(self) -> Path:
        """Where the run writes how far it is."""
        return self.directory / RUN_DIRECTORY / "metrics.csv"

    def progress(self) -> tuple[int, float]:
        """Give the steps made so far, and the seconds that they took."""
        if self.state == "running":
            return steps_done(self.metrics_file), time.monotonic() - self.started
        return (self.run.steps, self.seconds) if self.state == "done" else (0, 0.0)

    def is_left(self, *, stopped: bool) -> bool:
        """Whether the run goes on, or would if the grid were not stopped."""
        return self.state == "running" or (self.state == "waiting" and not stopped)

    @property
    def is_ready(self) -> bool:
        """Whether the run can be started."""
        matched = self.source is not None and self.source.state == "done"
        return self.state == "waiting" and (self.run.needs is None or matched)

    @property
    def is_blocked(self) -> bool:
        """Whether the run can never be started, because the one that it needs has no result."""
        lost = self.source is None or self.source.state in ("failed", "blocked")
        return self.state == "waiting" and self.run.needs is not None and lost

    def read_state(self) -> None:
        """See whether the run is done; refuse one that was begun with other settings."""
        values = read_json(self.directory / RUN_FILE)
        stored = Run.from_json(values) if values is not None else self.run
        if stored.fingerprint != self.run.fingerprint:
            raise BenchError(
                f"{self.directory} was made with other settings: "
                f"{describe_change(stored, self.run)}. Choose another --out, or ask for the same "
                "settings to go on"
            )
        done = read_done(self.directory, self.run)
        if done is not None:
            self.state = "done"
            self.seconds = float(done.get("wall_seconds") or 0.0)

    def begin(self, start: Start) -> str:
        """Start the run, or go on with it; gives a line that says so."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / ERROR_FILE).unlink(missing_ok=True)
        about = {"fingerprint": self.run.fingerprint, "derived": self._derived()}
        write_json(self.directory / RUN_FILE, {**self.run.to_json(), **about})
        how = "resumed" if (self.directory / RUN_DIRECTORY).is_dir() else "started"
        self.process = start(self)
        # In this order: who draws the table may look at any moment.
        self.started, self.state = time.monotonic(), "running"
        return f"{how}  {self.run.name}"

    def _derived(self) -> dict[str, Any]:
        """Take from another run what a control needs."""
        if self.run.needs is None or self.source is None:
            return {}
        if self.run.needs == "size":
            done = read_done(self.source.directory, self.source.run)
            assert done is not None
            return {"buffer_size": done["size"]}
        table = read_columns(self.source.metrics_file)
        rows = np.stack([table["env_steps"], table["buffer_size"]], axis=1).astype(int)
        # A few hundred sizes say as much as thousands, and are written into every control's file.
        chosen = np.unique(np.linspace(0, len(rows) - 1, _MOST_SIZES).round().astype(int))
        return {"sizes": rows[chosen].tolist()}

    def end(self, code: int, *, stopped: bool) -> str:
        """See how the process has ended; gives a line that says so, empty if it was stopped."""
        self.process = None
        self.seconds = time.monotonic() - self.started
        done = read_done(self.directory, self.run)
        if code == 0 and done is not None:
            self.state = "done"
            reward = done.get("reward")
            told = f"{reward:,.2f}" if isinstance(reward, (int, float)) else "not measured"
            return f"done     {self.run.name}: reward {told} in {self.seconds:,.0f} s"
        if stopped:
            self.state = "waiting"
            return ""
        self.state = "failed"
        return f"FAILED   {self.run.name}\n{_failure(self.directory, code)}"

    def stop(self) -> None:
        """Ask the run to save and stop, once: a second signal would end it at once."""
        if self.process is not None and not self.told_to_stop:
            self.told_to_stop = True
            self.process.terminate()


Start = Callable[[Job], Process]
"""Starts the run that a job's directory describes."""
Tell = Callable[[str], None]
"""Shows a line that stays."""


def start_process(
    directory: Path, *, keep_buffer: bool = False, gpu: bool = False
) -> subprocess.Popen[bytes]:
    """Start the process that brings the run of a directory to its end, with one thread.

    Args:
        directory: Of the run; what the process says goes into a file there.
        keep_buffer: Keep the run's final buffer, which can be large.
        gpu: Let JAX choose its device instead of the CPU.
    """
    environment = {**os.environ, **SINGLE_THREAD}
    if gpu:
        del environment["JAX_PLATFORMS"]
    words = [str(directory), str(int(keep_buffer)), str(os.getpid())]
    with (directory / OUTPUT_FILE).open("ab") as log:
        return subprocess.Popen(
            [*WORKER, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            # Its own group: Ctrl-C reaches the grid alone, which passes it on once.
            start_new_session=True,
        )


@contextlib.contextmanager
def open_grid(root: Path, runs: Sequence[Run], about: Mapping[str, Any]) -> Iterator[list[Job]]:
    """Keep others out of a results directory, new or of the same grid; gives its runs' jobs.

    Raises:
        BenchError: The directory holds something else, runs with other settings, or a grid
            that is still running.
    """
    where = f"out={str(root)!r}"
    if root.is_file():
        raise BenchError(f"{where} is a file; choose a directory")
    # A grid killed at its very beginning may have left hidden files.
    if any(root.glob("[!.]*")) and read_json(root / GRID_FILE) is None:
        raise BenchError(f"{where} is not empty and holds no grid of runs; choose another")
    lock = DirectoryLock(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise BenchError(f"{where} cannot be filled: {error.strerror or error}") from None
    try:
        jobs = [Job(run, run.directory(root)) for run in runs]
        named = {(*job.run.task, job.run.seed, job.run.method): job for job in jobs}
        for job in jobs:
            job.source = named.get((*job.run.task, job.run.seed, job.run.source))
            job.read_state()
        old = listed_runs(read_json(root / GRID_FILE) or {})
        listed = {run.path: run.to_json() for run in (*old, *runs)}
        write_json(root / GRID_FILE, {**about, "runs": list(listed.values())})
        yield jobs
    finally:
        lock.release()


def run_jobs(jobs: Sequence[Job], start: Start, tell: Tell, most: int = 1) -> int | None:
    """Do all jobs that are not done, so many at a time at most.

    Returns:
        None, or the number of the signal that stopped the grid; what ran was saved.
    """
    # A second signal ends this process at once, and with it those that it has started.
    with InterruptGuard() as guard:
        try:
            while any(job.is_left(stopped=guard.triggered) for job in jobs):
                for job in jobs:
                    code = None if job.process is None else job.process.poll()
                    if code is not None and (line := job.end(code, stopped=guard.triggered)):
                        tell(line)
                running = sum(job.process is not None for job in jobs)
                for job in jobs:
                    if guard.triggered:
                        job.stop()
                    elif running < most and job.is_ready:
                        tell(job.begin(start))
                        running += 1
                    elif job.is_blocked:
                        job.state = "blocked"
                        tell(f"blocked  {job.run.name}: its {job.run.source} run has no result")
                time.sleep(_POLL)
        finally:
            # No process is left behind when something unforeseen ends the grid.
            for job in jobs:
                job.stop()
    return guard.signum


def _failure(directory: Path, code: int) -> str:
    """Give what a run said of its failure, or write down what can be known of it."""
    error = directory / ERROR_FILE
    told = _text_of(error)
    if not told:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        words = _text_of(directory / OUTPUT_FILE)[-4000:] or "none; is the disk full?"
        told = f"The process ended with {how}. Its last words:\n{words}"
        with contextlib.suppress(OSError):
            error.write_text(told, encoding="utf-8")
    return told


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextlib.contextmanager
def open_view(jobs: Sequence[Job]) -> Iterator[Tell]:
    """Show on a terminal, below what is told, which runs are under way; a log has no present."""
    if not sys.stdout.isatty():
        done = sum(job.state == "done" for job in jobs)
        print(f"{len(jobs)} runs, {done} done before", flush=True)
        yield partial(print, flush=True)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(get_renderable=lambda: _draw(jobs), refresh_per_second=2, transient=True) as live:
        yield lambda line: live.console.print(Text(line))


def _draw(jobs: Sequence[Job]) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(title=summary_line(jobs), title_justify="left", expand=True)
    for name in ("task", "method", "seed", "", "steps", "time left"):
        table.add_column(name, no_wrap=True)
    for job in jobs:
        if job.state == "running":
            (steps, elapsed), total = job.progress(), job.run.steps
            table.add_row(
                Text(f"{job.run.env} {job.run.algo}"),
                Text(job.run.method),
                str(job.run.seed),
                ProgressBar(total=total, completed=steps, width=24),
                f"{steps:,} / {total:,}",
                duration(elapsed * (total - steps) / steps) if steps else "…",
            )
    return table


def summary_line(jobs: Sequence[Job]) -> str:
    """Say how many runs are done, failed and left, and how long the rest will take."""
    states, left = Counter(job.state for job in jobs), time_left(jobs)
    text = f"{states['done']} of {len(jobs)} runs done"
    text += f", {states['failed']} failed" if states["failed"] else ""
    return f"{text}, about {duration(left)} left" if left is not None else text


def time_left(jobs: Sequence[Job]) -> float | None:
    """Estimate the seconds left from the speed of what has run, None before anything has."""
    spent: dict[Any, float] = defaultdict(float)  # seconds, by task
    made: dict[Any, int] = defaultdict(int)  # steps
    missing: dict[Any, int] = defaultdict(int)
    for job in jobs:
        task, (steps, seconds) = job.run.task, job.progress()
        if seconds > 0.0:
            spent[task] += seconds
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
    return left / max(sum(job.state == "running" for job in jobs), 1)


def steps_done(path: Path) -> int:
    """Read the newest step from the end of a metrics file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return 0
    steps = (line.partition(",")[0] for line in reversed(lines))
    return next((int(step) for step in steps if step.isdigit()), 0)
