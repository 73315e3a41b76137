"""A grid on a real Ray: the same results as on this machine, whatever dies on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import distributed_worlds  # noqa: F401
import pytest

from frugalrl.bench.grid import Job, Start, Tell, open_grid, run_jobs
from frugalrl.bench.runs import Run, expand
from frugalrl.bench.suites import comparison, with_settings
from frugalrl.bench.worker import train_config
from frugalrl.cli import main
from frugalrl.commands.arguments import GridOptions
from frugalrl.commands.grids import run_grid
from frugalrl.distributed import grid as ray_grid
from frugalrl.distributed.cluster import code_versions
from frugalrl.distributed.grid import WorkerKilledError, bring_to_end, ray_tasks
from frugalrl.distributed.storage import RunCopy, SharedDirectory
from frugalrl.files import read_json
from frugalrl.training import train
from frugalrl.training.errors import ConfigError, StorageError

pytestmark = pytest.mark.xdist_group("ray")

ENV = "distributed_worlds:FrugalHeld-v0"
BROKEN = "distributed_worlds:FrugalBroken-v0"
SETTINGS = (
    "net_arch=[8, 8]",
    "batch_size=16",
    "learning_starts=60",
    "log_every=50",
    "eval_every=100",
    "eval_episodes=1",
    "final_episodes=1",
    "checkpoint_every=100",
    "fac_warmup_steps=100",
)
TIMES = {"train_seconds", "wall_seconds", "peak_memory_bytes"}


def make_suite(*methods: str, steps: int = 300, extra: Sequence[str] = ()):
    return with_settings(comparison(ENV, "sac", steps, methods), [*SETTINGS, *extra])


def held(until: Path, since: str | Path = "/") -> str:
    """Give the setting with which runs hardly go on after their first checkpoint."""
    return f'env_kwargs={{until="{until}", since="{since}"}}'


class Watch:
    """Acts once, beside a grid, as soon as something is there."""

    def __init__(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        self.is_due, self.act, self.acted = is_due, act, False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self.acted and not self._over.wait(0.1):
            if self.is_due():
                self.act()
                self.acted = True

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run_all(
    root: Path, runs: Sequence[Run], start: Start, tell: Tell = print
) -> tuple[list[Job], int | None]:
    """Do what is missing; gives the jobs as they then stand, and the signal that stopped them."""
    with open_grid(root, runs, {}) as jobs:
        return jobs, run_jobs(jobs, start, tell)


def never_started(*_: object):
    raise AssertionError("all runs are done")


def without_times(path: Path) -> list[list[str]]:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, name in enumerate(rows[0]) if not name.endswith("_seconds")]
    return [[row[i] for i in keep] for row in rows]


def files(root: Path) -> set[str]:
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return {name for name in found if not name.endswith(".lock")}


def fingerprint_here(run) -> str:
    """Do a grid's run in this process, without a stop, and digest what it came to."""
    return train(train_config(run, {}, None), progress=False).fingerprint


def checkpoints(root: Path) -> list[Path]:
    return sorted(root.glob("runs/*/*/*/*/run/checkpoints/step-*.safetensors"))


def test_a_grid_on_ray_is_the_grid_of_this_machine(cluster, tmp_path):
    # The second run's settings come from the first one's result.
    suite = make_suite("fac", "small")
    here, there = tmp_path / "here", tmp_path / "there"
    storage = tmp_path / "storage"
    assert run_grid(GridOptions(jobs=2), suite, here, []) == 0
    on_ray = GridOptions(backend="ray", storage=storage.as_uri())
    assert run_grid(on_ray, suite, there, []) == 0
    assert files(here) == files(there)
    assert files(storage) == {name for name in files(there) if name.startswith(("runs/", "grid"))}
    for method in ("fac", "small"):
        place = f"runs/{ENV.replace(':', '_')}/sac/{method}/seed-0"
        one, other = (read_json(root / place / "done.json") for root in (here, there))
        assert {**one, **dict.fromkeys(TIMES)} == {**other, **dict.fromkeys(TIMES)}
        one, other = (read_json(root / place / "run/final.json") for root in (here, there))
        assert one["fingerprint"] == other["fingerprint"]
        one, other = (without_times(root / place / "run/metrics.csv") for root in (here, there))
        assert one == other
        assert (there / place / "run/config.json").is_file()
    # Another driver, elsewhere, finds all done.
    elsewhere = tmp_path / "elsewhere"
    with ray_tasks(elsewhere, storage=str(storage)):
        jobs, _ = run_all(elsewhere, expand(suite), never_started)
    assert [job.state for job in jobs] == ["done", "done"]
    assert files(elsewhere) == files(storage)


def is_running(process: int) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "XZ"


@pytest.mark.parametrize("dies", ["worker", "node"])
def test_a_run_whose_worker_or_node_dies_goes_on(cluster, tmp_path, dies):
    out, go = tmp_path / "out", tmp_path / "go"
    (run,) = expand(make_suite("baseline", extra=[held(go)]))
    if dies == "node":
        # Like the first one: whichever dies, the tests that follow find what there was before.
        cluster.add_node(num_cpus=2, object_store_memory=80_000_000)

    def kill() -> None:
        # Of all scratch directories, those of other tests and of processes now gone among them,
        # the one whose owner is a worker of one of the nodes.
        raylets = {n.all_processes["raylet"][0].process.pid: n for n in cluster.worker_nodes}
        owners = {int(path.name.split("-")[2]) for path in Path("/tmp").glob("frugalrl-run-*")}
        stats = {pid: path for pid in owners if (path := Path(f"/proc/{pid}/stat")).exists()}
        parents = {
            pid: int(path.read_text().rpartition(")")[2].split()[1]) for pid, path in stats.items()
        }
        ((worker, node),) = [(p, raylets[up]) for p, up in parents.items() if up in raylets]
        if dies == "worker":
            os.kill(worker, signal.SIGKILL)
        else:
            cluster.remove_node(node, allow_graceful=False)
        while is_running(worker):  # which ends when it misses its node, and could end the run first
            time.sleep(0.02)
        go.touch()

    watch = Watch(lambda: bool(checkpoints(out)), kill)
    try:
        with ray_tasks(out) as start, watch:
            jobs, stopped = run_all(out, [run], start)
    finally:
        if len(cluster.worker_nodes) > 1:
            cluster.remove_node(next(iter(cluster.worker_nodes)))
    assert watch.acted
    assert stopped is None
    assert [job.state for job in jobs] == ["done"]
    done = jobs[0].directory
    assert "resuming from step-" in (done / "run/run.log").read_text()
    assert not list(done.glob("run/checkpoints/*"))
    assert not (done / "owner").exists()
    still = expand(make_suite("baseline"))[0]
    assert read_json(done / "run/final.json")["fingerprint"] == fingerprint_here(still)


def test_a_grid_that_is_stopped_saves_and_goes_on(cluster, tmp_path):
    out, go = tmp_path / "out", tmp_path / "go"
    (run,) = expand(make_suite("baseline", extra=[held(go)]))
    stop = Watch(lambda: bool(checkpoints(out)), lambda: os.kill(os.getpid(), signal.SIGINT))
    lines: list[str] = []
    with ray_tasks(out) as start:
        with stop:
            jobs, stopped = run_all(out, [run], start)
        assert stopped == signal.SIGINT
        assert [job.state for job in jobs] == ["waiting"]
        # Saved at the step where it was stopped, which is no multiple of what was asked for.
        assert int(checkpoints(out)[-1].stem.partition("-")[2]) % 100
        go.touch()
        jobs, stopped = run_all(out, [run], start, lines.append)
        assert stopped is None
        assert [job.state for job in jobs] == ["done"]
    assert any(line.startswith("resumed") for line in lines)
    log = (jobs[0].directory / "run/run.log").read_text()
    assert log.count("resuming from step-") == 1


def test_a_killed_driver_is_started_again_and_does_what_is_missing(cluster, tmp_path):
    out, go = tmp_path / "out", tmp_path / "go"
    first, second = (out / f"runs/{ENV.replace(':', '_')}/sac/{m}/seed-0" for m in ("fac", "small"))
    # The second run waits for the first one's result.
    settings = [*SETTINGS, held(go, since=first / "done.json")]
    words = [
        *("compare", ENV, "--methods", "fac,small", "--seeds", "1", "--steps", "300"),
        *("--out", str(out), "--backend", "ray", "--address", cluster.address),
        *("--set", *settings),
    ]
    driver = subprocess.Popen([sys.executable, "-m", "frugalrl.cli", *words])
    try:
        begun = time.monotonic()
        while not list(second.glob("run/checkpoints/step-*.safetensors")):
            assert driver.poll() is None
            assert time.monotonic() - begun < 200
            time.sleep(0.02)
    finally:
        driver.kill()
        driver.wait()
    assert (first / "done.json").is_file()
    assert not (second / "done.json").exists()
    before = times_of(first)
    go.touch()
    assert main(words) == 0
    # The run that was done is left alone, the other goes on where it was.
    assert times_of(first) == before
    assert "resuming from step-" in (second / "run/run.log").read_text()
    before = times_of(second)
    with ray_tasks(out):
        runs = expand(with_settings(comparison(ENV, "sac", 300, ("fac", "small")), settings))
        jobs, _ = run_all(out, runs, never_started)
    assert [job.state for job in jobs] == ["done", "done"]
    assert times_of(second) == before


def times_of(directory: Path) -> dict[str, int]:
    """Give when each file of a run was written."""
    return {name: (directory / name).stat().st_mtime_ns for name in files(directory)}


def test_a_run_that_fails_says_why(cluster, tmp_path):
    suite = with_settings(comparison(BROKEN, "sac", 200, ("baseline",)), SETTINGS)
    out = tmp_path / "out"
    with ray_tasks(out, storage=str(tmp_path / "storage")) as start:
        jobs, stopped = run_all(out, expand(suite), start)
    assert stopped is None
    assert [job.state for job in jobs] == ["failed"]
    for name in ("error.txt", "output.log"):
        assert "the wheels came off" in (jobs[0].directory / name).read_text()


def begin_in(storage: SharedDirectory, run) -> None:
    """Put a run into storage as a grid does."""
    storage.write("run.json", json.dumps({**run.to_json(), "derived": {}}).encode())


def test_a_run_survives_the_death_of_its_process_in_memory(tmp_path, monkeypatch):
    storage = SharedDirectory(f"memory://{uuid.uuid4().hex}/run")
    go = tmp_path / "go"
    (run,) = expand(make_suite("baseline", extra=[held(go)]))
    begin_in(storage, run)
    processes = []
    start = subprocess.Popen

    def remember(*words, **how):
        processes.append(start(*words, **how))
        return processes[-1]

    push = RunCopy.push

    def push_and_kill(self, **how):
        push(self, **how)
        if len(processes) == 1 and any("checkpoints" in name for name in storage.names()):
            processes[0].kill()
            go.touch()

    monkeypatch.setattr(ray_grid.subprocess, "Popen", remember)
    monkeypatch.setattr(RunCopy, "push", push_and_kill)
    with pytest.raises(WorkerKilledError, match="signal 9"):
        bring_to_end(storage.url, keep_buffer=False, expected=code_versions())
    assert any("checkpoints" in name for name in storage.names())
    assert "done.json" not in storage.names()
    assert bring_to_end(storage.url, keep_buffer=True, expected=code_versions()) == 0
    assert {"done.json", "run/final.json", "run/buffer.safetensors"} <= {*storage.names()}
    assert not any("checkpoints" in name for name in storage.names())
    assert b"resuming from step-" in storage.read("run/run.log")
    final = json.loads(storage.read("run/final.json"))
    assert final["fingerprint"] == fingerprint_here(expand(make_suite("baseline"))[0])
    assert not list(Path(tempfile.gettempdir()).glob(f"frugalrl-run-{os.getpid()}-*"))


def test_a_node_that_does_not_see_the_storage_says_so(tmp_path):
    with pytest.raises(StorageError, match=r"finds no run.json in .*--storage"):
        bring_to_end(str(tmp_path), keep_buffer=False, expected=code_versions())


def test_a_node_with_other_versions_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"numpy .*, here 0.1.*Install the same"):
        bring_to_end(str(tmp_path), keep_buffer=False, expected={**code_versions(), "numpy": "0.1"})


def test_what_cannot_be_written_at_the_end_is_tried_again_and_then_told(monkeypatch):
    waits = []
    monkeypatch.setattr(ray_grid.time, "sleep", waits.append)

    class FullDisk:
        @staticmethod
        def push(ended):
            raise OSError("no space")

    with pytest.raises(StorageError, match="no space"):
        ray_grid._push_at_last(FullDisk, ended=True)
    assert waits == [1.0, 2.0, 4.0]


def test_scratch_of_processes_that_were_killed_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f"frugalrl-run-{dead.pid}-abc").mkdir()
    (tmp_path / f"frugalrl-run-{os.getpid()}-abc").mkdir()
    others = [f"frugalrl-run-{10**20}", "frugalrl-run-notes"]
    for name in others:
        (tmp_path / name).mkdir()
    with ray_grid._scratch() as folder:
        assert folder.parent == tmp_path
        assert len(list(tmp_path.iterdir())) == 4
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"frugalrl-run-{os.getpid()}-abc", *others}


def test_only_runs_with_jax_take_a_gpu(tmp_path, monkeypatch):
    asked = []

    class Ray:
        @staticmethod
        def nodes():
            return [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}]

        @staticmethod
        def remote(**options):
            asked.append(options)
            task = SimpleNamespace(remote=lambda *_, **how: how)
            return lambda function: SimpleNamespace(options=lambda **_: task)

    monkeypatch.setattr(ray_grid, "connected", lambda _: contextlib.nullcontext(Ray))
    monkeypatch.setattr(ray_grid, "check_nodes", lambda *_: None)
    with ray_tasks(tmp_path, gpus=0.5) as start:
        for engine in ("jax", "fused"):
            (run,) = expand(make_suite("baseline", extra=[f"engine={engine}"]))
            started = start(Job(run, tmp_path / run.path))
            assert started.reference["gpu"] == (engine == "jax")
    assert [options["num_gpus"] for options in asked] == [0.5, 0.0]
    assert [options["num_cpus"] for options in asked] == [1, 1]
