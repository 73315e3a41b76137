"""The grid's order, failures, restarts and signals, with a stand-in for training."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from bench_made_up import made_up_suite

from frugalrl.bench.errors import BenchError
from frugalrl.bench.grid import (
    Job,
    open_grid,
    open_view,
    run_jobs,
    start_process,
    steps_done,
    summary_line,
    time_left,
)
from frugalrl.bench.results import read_results
from frugalrl.bench.runs import expand
from frugalrl.files import read_json

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frugalrl.bench.grid.WORKER", FAKE)


def start(job: Job) -> subprocess.Popen[bytes]:
    return start_process(job.directory)


def opened(
    root: Path, *methods: str, seeds: int = 1, steps: int = 2_000
) -> AbstractContextManager[list[Job]]:
    suite = made_up_suite(methods=methods, seeds=seeds)
    suite = replace(suite, tasks=tuple(replace(task, steps=steps) for task in suite.tasks))
    return open_grid(root, expand(suite), {"suite": "test"})


def run_grid(
    root: Path, *methods: str, seeds: int = 1, most: int = 2
) -> tuple[list[Job], list[str]]:
    """Do what is missing; gives the jobs as they then stand, and what was told."""
    lines: list[str] = []
    with opened(root, *methods, seeds=seeds) as jobs:
        assert run_jobs(jobs, start, lines.append, most) is None
    return jobs, lines


def order(root: Path) -> list[str]:
    path = root / "order.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def done(root: Path, method: str, seed: int = 0) -> dict[str, object]:
    found = read_json(root / f"runs/Pendulum-v1/sac/{method}/seed-{seed}/done.json")
    assert found is not None
    return found


def test_controls_wait_for_what_they_match_and_take_its_numbers(tmp_path: Path) -> None:
    names = ("small", "random-slot", "random-drop", "fac", "fac-paper")
    jobs, _ = run_grid(tmp_path / "r", *names)
    assert [job.state for job in jobs] == ["done"] * 5
    assert set(order(tmp_path / "r")[:2]) == {"fac 0", "fac-paper 0"}
    stored = {job.run.method: read_json(job.directory / "run.json") or {} for job in jobs}
    assert stored["small"]["derived"] == {"buffer_size": 250}
    for name in ("random-slot", "random-drop"):
        assert stored[name]["derived"] == {"sizes": [[1000, 200], [2000, 250]]}


def test_runs_have_one_thread_and_may_use_any_core(tmp_path: Path) -> None:
    """Were they tied to one, two grids side by side would meet on it and leave another idle."""
    run_grid(tmp_path / "r", "baseline")
    found = done(tmp_path / "r", "baseline")
    assert found["threads"] == "1"
    if hasattr(os, "sched_getaffinity"):
        assert found["cores"] == sorted(os.sched_getaffinity(0))


def test_a_failed_run_shows_its_traceback_and_stops_nothing(tmp_path: Path) -> None:
    jobs, lines = run_grid(tmp_path / "r", "laber", "per", "baseline", "fac", most=1)
    states = {job.run.method: job.state for job in jobs}
    assert states == {"laber": "failed", "per": "failed", "baseline": "done", "fac": "done"}
    told = "\n".join(lines)
    assert "ValueError: no torque" in told
    assert "signal 9" in told
    assert "last words" in told
    problems = {p.run.method: p.detail for p in read_results(tmp_path / "r").problems}
    assert "no torque" in problems["laber"]
    assert "signal 9" in problems["per"]


def test_controls_of_a_failed_run_are_blocked(tmp_path: Path) -> None:
    lines: list[str] = []
    with opened(tmp_path / "r", "fac", "small") as jobs:
        fac = jobs[0]
        fac.run = replace(fac.run, method="laber")  # the stand-in fails
        run_jobs(jobs, start, lines.append)
    assert [job.state for job in jobs] == ["failed", "blocked"]
    assert any("blocked" in line for line in lines)


def test_a_second_start_does_only_what_is_missing(tmp_path: Path) -> None:
    root = tmp_path / "r"
    run_grid(root, "baseline", "fac", seeds=2)
    assert len(order(root)) == 4
    (root / "runs/Pendulum-v1/sac/fac/seed-1/done.json").unlink()
    with opened(root, "baseline", "fac", seeds=2) as jobs:
        assert [job.state for job in jobs].count("done") == 3
    _, lines = run_grid(root, "baseline", "fac", seeds=2)
    assert order(root)[4:] == ["fac 1"]
    assert lines[0].startswith("resumed")


def test_a_failed_run_is_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "r"
    run_grid(root, "laber")
    with opened(root, "laber") as jobs:
        assert jobs[0].state == "waiting"
    run_grid(root, "laber")
    assert order(root) == ["laber 0", "laber 0"]


def test_more_seeds_and_methods_add_to_a_directory(tmp_path: Path) -> None:
    root = tmp_path / "r"
    run_grid(root, "baseline", seeds=1)
    run_grid(root, "fac", seeds=2)
    assert {(r.run.method, r.run.seed) for r in read_results(root).runs} == {
        ("baseline", 0),
        ("fac", 0),
        ("fac", 1),
    }


def test_a_changed_configuration_is_refused(tmp_path: Path) -> None:
    run_grid(tmp_path / "r", "baseline")
    with (
        pytest.raises(BenchError, match=r"other settings: .* steps was 2000, is 3000"),
        opened(tmp_path / "r", "baseline", steps=3_000),
    ):
        pass
    assert done(tmp_path / "r", "baseline")["reward"] == 1.0


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("letters", "not empty and holds no grid"),
        ("file", "is a file"),
        ("file/below", "cannot be filled: Not a directory"),
    ],
)
def test_directories_that_hold_something_else_are_refused(
    out: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("dear", "utf-8")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(BenchError, match=message), opened(tmp_path / out, "baseline"):
        pass


def test_a_grid_killed_at_its_very_beginning_can_begin_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".grid.json.123").touch()
    run_grid(tmp_path, "baseline")
    assert done(tmp_path, "baseline")["reward"] == 1.0


def test_a_second_grid_is_kept_out(tmp_path: Path) -> None:
    with opened(tmp_path / "r", "baseline"):
        before = (tmp_path / "r" / "grid.json").read_text("utf-8")
        with (
            pytest.raises(BenchError, match=rf"is in use by process {os.getpid()}"),
            opened(tmp_path / "r", "fac"),
        ):
            pass
        assert (tmp_path / "r" / "grid.json").read_text("utf-8") == before
    with opened(tmp_path / "r", "fac"):
        pass


def test_a_signal_is_passed_on_and_the_grid_can_go_on(tmp_path: Path) -> None:
    root, lines = tmp_path / "r", list[str]()

    def interrupt() -> None:
        asleep = root / "runs/Pendulum-v1/sac/fac+laber/seed-0/asleep"
        while not asleep.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with opened(root, "fac+laber", "baseline") as jobs:
        stopped = run_jobs(jobs, start, lines.append)
    thread.join()
    assert stopped == signal.SIGTERM
    assert [job.state for job in jobs] == ["waiting", "waiting"]
    assert lines == ["started  Pendulum-v1 sac fac+laber seed 0"]
    assert order(root) == ["fac+laber 0"]
    assert read_results(root).problems[0].state == "unfinished"


def test_time_left_follows_the_speed_so_far(tmp_path: Path) -> None:
    with opened(tmp_path / "r", "baseline", seeds=4) as jobs:
        assert time_left(jobs) is None
    jobs[0].state, jobs[0].seconds = "done", 100.0
    assert time_left(jobs) == pytest.approx(300.0)
    assert summary_line(jobs) == "1 of 4 runs done, about 5m00s left"
    jobs[1].state = "failed"
    assert "1 failed" in summary_line(jobs)


def test_steps_are_read_from_the_end_of_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert steps_done(path) == 0
    path.write_text("env_steps,loss\n1000,0.5\n2000,0.4\n", "utf-8")
    assert steps_done(path) == 2000


def test_the_table_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with opened(tmp_path / "r", "baseline", seeds=2) as jobs:
        job = jobs[0]
    job.state, job.started = "running", time.monotonic() - 10
    job.metrics_file.parent.mkdir(parents=True)
    job.metrics_file.write_text("env_steps,loss\n1000,0.5\n", "utf-8")
    with open_view(jobs) as tell:
        tell("a line")
    shown = capsys.readouterr().out
    assert "0 of 2 runs done, about 3" in shown  # seconds
    assert re.search(r"1,000 / 2,000.* 1\ds", shown)
    assert "a line" in shown


def test_the_plain_view_prints_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path / "r", "baseline") as jobs, open_view(jobs) as tell:
        run_jobs(jobs, start, tell)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 runs, 0 done before"
    assert lines[1].startswith("started")
    assert lines[2].startswith("done")
