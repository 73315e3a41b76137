"""A grid's runs as Ray tasks: each works on some node and leaves its files in storage."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frugalrl.bench.grid import Job, Start, start_process
from frugalrl.bench.results import GRID_FILE
from frugalrl.bench.runs import ERROR_FILE, RUN_FILE
from frugalrl.distributed.cluster import check_node, check_nodes, code_versions, connected
from frugalrl.distributed.storage import ClaimLostError, RunCopy, SharedDirectory
from frugalrl.files import write_text_atomically
from frugalrl.training.errors import ConfigError, StorageError

_RETRIES = 3
_POLL = 0.2
_PUSH_EVERY = 10.0  # seconds between copies of what has changed, where no checkpoint was written
_SCRATCH = "frugalrl-run-"
_TERMINATED = 128 + signal.SIGTERM


class WorkerKilledError(RuntimeError):
    """A run's process was killed from outside; another may succeed from its last checkpoint."""


@contextlib.contextmanager
def ray_tasks(
    out: Path,
    *,
    address: str | None = None,
    storage: str | None = None,
    keep_buffers: bool = False,
    gpus: float = 0.0,
) -> Iterator[Start]:
    """Give what starts the runs of a grid as Ray tasks.

    Ray queues them, places them on nodes with a free processor, and starts those again whose
    worker or node died; a run then goes on from its last checkpoint in storage.

    They leave results and checkpoints in `storage`, or in `out` itself if all nodes see it. The
    other arguments are those of `GridOptions`.
    """
    if not 0.0 <= gpus < math.inf or (gpus > 1.0 and gpus % 1.0):
        raise ConfigError(f"gpus={gpus} must be a share from 0 to 1, or a whole number")
    here = SharedDirectory(os.path.abspath(out))
    results = here if storage is None else SharedDirectory(storage)
    is_remote = results.url != here.url

    def start(job: Job) -> RayRun:
        run, directory = job.run, job.directory
        there = results.at(directory.relative_to(out))
        if is_remote:
            results.put(out / GRID_FILE, GRID_FILE)
            # A run of another results directory may be in storage already, further than here.
            if there.read(RUN_FILE) is None:
                RunCopy(there, directory).put_all()
            else:
                there.put(directory / RUN_FILE, RUN_FILE)
            there.delete(ERROR_FILE)
        share = gpus if run.settings.get("engine") == "jax" else 0.0
        task = ray.remote(
            num_cpus=1,
            num_gpus=share,
            max_retries=_RETRIES,
            retry_exceptions=[WorkerKilledError],
        )(bring_to_end)
        reference = task.options(name=run.name).remote(
            there.url, keep_buffer=keep_buffers, gpu=share > 0.0, expected=code_versions()
        )
        return RayRun(ray, reference, there if is_remote else None, directory)

    with connected(address) as ray:
        _check_room(ray, gpus)
        check_nodes(ray, results.url)
        if is_remote:
            # What earlier drivers have done, wherever they ran.
            results.fetch(out, only_new=True)
        yield start


def _check_room(ray: Any, gpus: float) -> None:
    """Refuse what no node has: Ray would let the runs wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for what, needed in (("CPU", 1.0), ("GPU", gpus)):
        most = max(there.get(what, 0.0) for there in nodes)
        if needed > most:
            raise ConfigError(
                f"a run needs {needed:g} {what}, but no node of the cluster has more than "
                f"{most:g}; add a node that has"
                + (", or leave --gpus out" if what == "GPU" else "")
            )


@dataclass(frozen=True)
class RayRun:
    """A run on Ray, as the grid sees a process."""

    ray: Any
    reference: Any
    """To the task's exit code."""
    storage: SharedDirectory | None
    """From which the run's files are fetched; None where they are written in place."""
    directory: Path
    """Where they belong."""

    def poll(self) -> int | None:
        """Give the exit code, None while the run waits or works."""
        return self._finish() if self.ray.wait([self.reference], timeout=0)[0] else None

    def terminate(self) -> None:
        """Ask the run to save and stop."""
        self.ray.cancel(self.reference, force=False)

    def _finish(self) -> int:
        errors = self.ray.exceptions
        problem, code = "", 1
        try:
            code = int(self.ray.get(self.reference))
        except errors.TaskCancelledError:
            code = _TERMINATED
        except errors.RayTaskError as error:
            problem = f"{type(error.cause).__name__}: {error.cause}"
        except errors.RayError as error:
            problem = f"Ray gave the run up after {_RETRIES} retries: {error}"
        if self.storage is not None:
            try:
                self.storage.fetch(self.directory)
            except Exception as error:
                # Every file system has errors of its own.
                problem, code = f"its files cannot be fetched from storage: {error!r}", 1
        if problem:
            write_text_atomically(self.directory / ERROR_FILE, f"{problem}\n")
        return code


def bring_to_end(
    url: str, *, keep_buffer: bool, expected: dict[str, str], gpu: bool = False
) -> int:
    """Bring a run to its end from wherever it is in storage; the body of a task.

    The work is done by the process that the local backend would start, in a directory of this
    node; its files are copied to storage after each checkpoint and at the end.

    Returns:
        The process's exit code.

    Raises:
        ConfigError: this node has other versions than the grid.
        StorageError: the run is not in storage, or its files cannot be written there.
        WorkerKilledError: the process was killed.
    """
    check_node(expected)
    with _scratch() as folder:
        copy = RunCopy(SharedDirectory(url), folder)
        if RUN_FILE not in copy.fetch():
            raise StorageError(
                f"{socket.gethostname()} finds no {RUN_FILE} in {url}: all nodes must see the "
                "same files; use --storage with a shared path or a URL such as s3://bucket/results"
            )
        process = start_process(folder, keep_buffer=keep_buffer, gpu=gpu)
        code = _accompany(process, copy)
        if code < 0:
            with contextlib.suppress(ClaimLostError, OSError):
                copy.push()
            raise WorkerKilledError(f"the run's process was ended by signal {-code}")
        _push_at_last(copy, ended=code == 0)
    return code


def _accompany(process: subprocess.Popen[bytes], copy: RunCopy) -> int:
    """Copy to storage what the process writes, until it ends."""
    # Ray cancels a task by an interrupt of the main thread, wherever it is: where errors are
    # ignored, such as in a finalizer, KeyboardInterrupt would be lost, and the run go on.
    told: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: told.append(signum))
    pushed = time.monotonic()
    try:
        while process.poll() is None and not told:
            time.sleep(_POLL)
            if copy.has_new_checkpoint or time.monotonic() - pushed > _PUSH_EVERY:
                pushed = time.monotonic()
                # What cannot be copied now is copied next time; only the end has to succeed.
                with contextlib.suppress(OSError):
                    copy.push()
        if told:
            # The process saves a checkpoint, which is copied like others.
            process.terminate()
        return process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _push_at_last(copy: RunCopy, *, ended: bool) -> None:
    """Copy the last state, patiently: without it the work was for nothing."""
    for wait in (1.0, 2.0, 4.0, None):
        try:
            copy.push(ended=ended)
            return
        except ClaimLostError:
            raise
        except Exception as error:
            # Every file system has errors of its own.
            if wait is None:
                raise StorageError(f"the run's files cannot be written: {error!r}") from error
            time.sleep(wait)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Give a directory of this process; what processes that were killed have left is deleted."""
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        try:
            os.kill(int(left.name.removeprefix(_SCRATCH).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (OSError, ValueError, OverflowError):
            pass  # alive, and another user's; or not ours at all
    prefix = f"{_SCRATCH}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
