"""Does a grid's runs, some at a time, each in its own process, and picks up where it was left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
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
    read_run_file,
)
from frugalrl.files import DirectoryLock, read_json, write_json

OUTPUT_FILE = "output.log"
WORKER = (sys.executable, "-m", "frugalrl.bench.worker")
_POLL = 0.2
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


@dataclass
class Job:
    """A run and how it stands."""

    run: Run
    directory: Path
    state: str = "waiting"
    """`waiting`, `running`, `done`, `failed` or `blocked` (the run that it needs failed)."""
    detail: str = ""
    process: Process | None = None
    core: int = -1
    started: float = 0.0
    seconds: float = 0.0
    derived: dict[str, Any] = field(default_factory=dict)
    told_to_stop: bool = False

    @property
    def metrics_file(self) -> Path:
        """Where the run writes how far it is."""
        return self.directory / RUN_DIRECTORY / "metrics.csv"


class View(Protocol):
    """Shows how a grid stands."""

    def update(self, jobs: Sequence[Job]) -> None:
        """Show the present state."""

    def tell(self, line: str) -> None:
        """Show a line that stays."""


class Process(Protocol):
    """A run under way, here or elsewhere."""

    def poll(self) -> int | None:
        """Give the exit code, None while the run goes on."""

    def wait(self) -> int:
        """Wait for the exit code."""

    def terminate(self) -> None:
        """Ask the run to save and stop."""

    def kill(self) -> None:
        """End the run at once."""


class Backend(Protocol):
    """Starts runs. A context: what it needs is there between its beginning and its end."""

    def __enter__(self) -> Any:
        """Get ready, before the results directory is looked at."""

    def __exit__(self, *_: object) -> None:
        """Let go of everything."""

    def start(self, run: Run, directory: Path, core: int) -> Process:
        """Start the run that a directory describes; `core` counts those at a time from 0."""


class LocalProcesses:
    """Starts runs as processes of this machine.

    Args:
        keep_buffers: Keep each run's final buffer, which can be large.
        worker: Command that brings one run to its end.
    """

    def __init__(
        self,
        *,
        keep_buffers: bool = False,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self._keep_buffers = keep_buffers
        self._worker = list(worker)

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to let go of: the grid has waited for its processes."""

    def start(self, run: Run, directory: Path, core: int) -> subprocess.Popen[bytes]:
        """Start a run on one core, with one thread."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        pinned = cores[core % len(cores)] if cores else -1
        return start_process(self._worker, directory, pinned, keep_buffer=self._keep_buffers)


def start_process(
    worker: Sequence[str], directory: Path, core: int, *, keep_buffer: bool, gpu: bool = False
) -> subprocess.Popen[bytes]:
    """Start the process that brings a run to its end, with one thread.

    Args:
        worker: Command.
        directory: Of the run; what the process says goes into a file there.
        core: Where it has to stay; negative: anywhere.
        keep_buffer: Keep the run's final buffer.
        gpu: Let JAX choose its device instead of the CPU.
    """
    environment = {**os.environ, **SINGLE_THREAD}
    if gpu:
        del environment["JAX_PLATFORMS"]
    words = [str(directory), str(core), str(int(keep_buffer)), str(os.getpid())]
    with (directory / OUTPUT_FILE).open("ab") as log:
        return subprocess.Popen(
            [*worker, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            # Its own group: Ctrl-C reaches the grid alone, which passes it on once.
            start_new_session=True,
        )


class Grid:
    """A results directory and the jobs that fill it.

    Args:
        root: The results directory, new or of the same grid.
        runs: What to run.
        jobs: Runs at a time.
        backend: What starts them; None: processes of this machine.
    """

    def __init__(
        self,
        root: str | Path,
        runs: Sequence[Run],
        *,
        jobs: int = 1,
        backend: Backend | None = None,
    ) -> None:
        if jobs < 1:
            raise BenchError(f"jobs={jobs} must be at least 1")
        self.root = Path(root)
        self.jobs = [Job(run, run.directory(self.root)) for run in runs]
        self._limit = jobs
        self._backend = LocalProcesses() if backend is None else backend
        self._lock = DirectoryLock(self.root)
        self._stop: int | None = None

    def prepare(self, about: Mapping[str, Any]) -> None:
        """Check that the directory fits, write down what will be run, and see what is done.

        Raises:
            BenchError: The directory holds something else, runs with other settings, or a grid
                that is still running.
        """
        self._check_directory(read_json(self.root / GRID_FILE))
        self._acquire()
        try:
            self._prepare(about)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others use the directory."""
        self._lock.release()

    def _prepare(self, about: Mapping[str, Any]) -> None:
        old = read_json(self.root / GRID_FILE)
        for job in self.jobs:
            values = read_run_file(job.directory)
            stored = Run.from_json(values) if values is not None else job.run
            if stored.fingerprint != job.run.fingerprint:
                raise BenchError(
                    f"{self.root} was made with other settings: {job.run.name}: "
                    f"{describe_change(stored, job.run)}. Choose another --out, or "
                    "ask for the same settings to go on"
                )
            done = read_done(job.directory, job.run)
            if done is not None:
                job.state = "done"
                job.seconds = float(done.get("wall_seconds") or 0.0)
        runs = {str(job.run.path): job.run.to_json() for job in self.jobs}
        merged = {str(run.path): run.to_json() for run in listed_runs(old or {})} | runs
        write_json(self.root / GRID_FILE, {**about, "runs": list(merged.values())})

    def run(self, view: View) -> int | None:
        """Run everything that is missing; `prepare` comes first.

        Returns:
            None, or the number of the signal that stopped the grid; what ran was saved.
        """
        with contextlib.closing(self), self._signals():
            free = list(range(self._limit))
            while any(job.state in ("waiting", "running") for job in self.jobs):
                if self._stop is None:
                    self._start_ready(free, view)
                for job in self.jobs:
                    if job.process is not None and job.process.poll() is not None:
                        free.append(job.core)
                        self._finish(job, view)
                running = [job for job in self.jobs if job.process is not None]
                if self._stop is not None:
                    # Also those that were just being started when the signal came.
                    self._tell_to_stop(running)
                    if not running:
                        break
                elif not running and not any(self._ready(job) for job in self.jobs):
                    self._block_the_rest(view)
                view.update(self.jobs)
                time.sleep(_POLL)
            view.update(self.jobs)
        return self._stop

    def _check_directory(self, old: Mapping[str, Any] | None) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise BenchError(f"out={str(self.root)!r} is a file; choose a directory")
        if old is None and self.root.is_dir() and any(_visible(self.root)):
            raise BenchError(
                f"out={str(self.root)!r} is not empty and holds no grid of runs; choose another"
            )
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(
                f"out={str(self.root)!r} cannot be created: {error.strerror}"
            ) from None

    def _source(self, run: Run) -> Job | None:
        """Find the run that a control takes its number from: same task, same seed."""
        wanted = (run.task, run.seed, run.source)
        jobs = (job for job in self.jobs if (job.run.task, job.run.seed, job.run.method) == wanted)
        return next(jobs, None)

    def _ready(self, job: Job) -> bool:
        if job.state != "waiting":
            return False
        if job.run.needs is None:
            return True
        source = self._source(job.run)
        return source is not None and source.state == "done"

    def _start_ready(self, free: list[int], view: View) -> None:
        for job in self.jobs:
            if not free:
                return
            if self._ready(job):
                self._start(job, free.pop(0), view)

    def _start(self, job: Job, core: int, view: View) -> None:
        job.derived = self._derive(job.run)
        job.directory.mkdir(parents=True, exist_ok=True)
        (job.directory / ERROR_FILE).unlink(missing_ok=True)
        write_json(
            job.directory / RUN_FILE,
            {**job.run.to_json(), "fingerprint": job.run.fingerprint, "derived": job.derived},
        )
        resumed = (job.directory / RUN_DIRECTORY).is_dir()
        job.process = self._backend.start(job.run, job.directory, core)
        job.core, job.state, job.started = core, "running", time.monotonic()
        view.tell(f"{'resumed' if resumed else 'started'}  {job.run.name}")

    def _derive(self, run: Run) -> dict[str, Any]:
        """Take from another run what a control needs."""
        source = self._source(run) if run.needs is not None else None
        if source is None:
            return {}
        if run.needs == "size":
            done = read_done(source.directory, source.run)
            assert done is not None
            return {"buffer_size": done["size"]}
        table = read_columns(source.metrics_file)
        rows = np.stack([table["env_steps"], table["buffer_size"]], axis=1).astype(int)
        # A few hundred sizes say as much as thousands, and are written into every control's file.
        chosen = np.unique(np.linspace(0, len(rows) - 1, _MOST_SIZES).round().astype(int))
        return {"sizes": rows[chosen].tolist()}

    def _finish(self, job: Job, view: View) -> None:
        assert job.process is not None
        code = job.process.wait()
        job.process = None
        job.seconds = time.monotonic() - job.started
        done = read_done(job.directory, job.run)
        if code == 0 and done is not None:
            job.state = "done"
            view.tell(f"done     {job.run.name}: reward {_reward(done)} in {job.seconds:,.0f} s")
        elif self._stop is not None:
            job.state = "waiting"
        else:
            job.state = "failed"
            job.detail = self._failure(job, code)
            view.tell(f"FAILED   {job.run.name}\n{job.detail}")

    def _failure(self, job: Job, code: int) -> str:
        error = job.directory / ERROR_FILE
        told = _text(error)
        if not told:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            log = _text(job.directory / OUTPUT_FILE)[-4000:] or "none; is the disk full?"
            told = f"The process ended with {how}. Its last words:\n{log}"
            with contextlib.suppress(OSError):
                error.write_text(told, encoding="utf-8")
        return told

    def _block_the_rest(self, view: View) -> None:
        for job in self.jobs:
            if job.state == "waiting":
                job.state = "blocked"
                view.tell(f"blocked  {job.run.name}: its {job.run.source} run has no result")

    def _acquire(self) -> None:
        """Keep a second grid out of the directory; the system lets go when this process ends."""
        try:
            self._lock.acquire()
        except OSError as error:
            raise BenchError(f"out={str(self.root)!r} cannot be filled: {error}") from None

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Pass the first SIGINT or SIGTERM on to the runs, which save; the second kills them."""

        def handle(signum: int, frame: FrameType | None) -> None:
            if self._stop is not None:
                for job in self.jobs:
                    if job.process is not None:
                        job.process.kill()
            self._stop = signum

        handled = (signal.SIGINT, signal.SIGTERM)
        previous: dict[int, Any] = {}
        with contextlib.suppress(ValueError):  # not in the main thread
            previous = {number: signal.signal(number, handle) for number in handled}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._kill_all()

    def _tell_to_stop(self, running: Sequence[Job]) -> None:
        for job in running:
            if job.process is not None and not job.told_to_stop:
                job.process.terminate()
                job.told_to_stop = True

    def _kill_all(self) -> None:
        """Leave no process behind when something unforeseen ends the grid."""
        for job in self.jobs:
            if job.process is not None and job.process.poll() is None:
                job.process.terminate()


def _visible(directory: Path) -> Iterator[Path]:
    """List a directory without what a grid killed at its very beginning may have left."""
    return (path for path in directory.iterdir() if not path.name.startswith("."))


def _text(path: Path) -> str:
    """Read a file as text; empty where there is none."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _reward(done: Mapping[str, Any]) -> str:
    reward = done.get("reward")
    return f"{reward:,.2f}" if isinstance(reward, (int, float)) else "not measured"
