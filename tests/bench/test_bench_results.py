"""Reading results back, whole or in pieces, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bench_made_up import made_up_suite

from frugalrl.bench.aggregate import Summary, summarize
from frugalrl.bench.errors import BenchError
from frugalrl.bench.report import tables
from frugalrl.bench.report.table import Column
from frugalrl.bench.report.verdict import warnings
from frugalrl.bench.results import read_columns, read_results
from frugalrl.bench.suites import Task
from frugalrl.files import read_json, write_json

MakeResults = Callable[..., Path]


def test_a_finished_directory(make_results: MakeResults) -> None:
    results = read_results(make_results())
    assert len(results.runs) == 25
    assert results.problems == ()
    assert results.tasks == [("Pendulum-v1", "sac")]
    assert results.methods == ["baseline", "fac", "laber", "small", "random-slot"]
    result = results.select(("Pendulum-v1", "sac"), "fac")[3]
    assert result.run.seed == 3
    steps, rewards = result.curve
    assert steps.size == rewards.size == 10
    assert result.metrics["offered"][-1] == 2_000
    assert math.isnan(result.number("nothing"))


def test_the_curve_averages_the_episodes_of_an_evaluation(make_results: MakeResults) -> None:
    results = read_results(make_results(made_up_suite(methods=("baseline",), seeds=1)))
    path = results.runs[0].directory / "run" / "evaluations.csv"
    path.write_text("env_steps,episode,seed,reward\n10,0,0,1\n10,1,1,3\n20,0,0,5\n", "utf-8")
    steps, rewards = read_results(results.directory).runs[0].curve
    np.testing.assert_array_equal(steps, [10, 20])
    np.testing.assert_array_equal(rewards, [2, 5])


def test_what_is_missing_is_said(make_results: MakeResults) -> None:
    root = make_results(failed=(("laber", 1),), missing=(("random-slot", 2),))
    half = root / "runs/Pendulum-v1/sac/small/seed-0/done.json"
    half.write_text(half.read_text("utf-8")[:50], "utf-8")
    results = read_results(root)
    states = {(p.run.method, p.run.seed): p.state for p in results.problems}
    assert states == {
        ("laber", 1): "failed",
        ("random-slot", 2): "missing",
        ("small", 0): "unfinished",
    }
    failed = next(problem for problem in results.problems if problem.state == "failed")
    assert "ValueError" in failed.detail
    assert len(results.runs) == 22


def test_results_of_other_settings_do_not_count(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(methods=("baseline",), seeds=1))
    grid = read_json(root / "grid.json")
    assert grid is not None
    grid["runs"][0]["steps"] = 7
    write_json(root / "grid.json", grid)
    assert [problem.state for problem in read_results(root).problems] == ["unfinished"]


@pytest.mark.parametrize("kind", ["none", "empty", "half"])
def test_a_directory_without_results_is_refused(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "results"
    if kind != "none":
        root.mkdir()
    if kind == "half":
        (root / "grid.json").write_text('{"runs": [', "utf-8")
    message = "there is no results directory" if kind == "none" else "holds no results"
    with pytest.raises(BenchError, match=message):
        read_results(root)


def test_half_written_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("env_steps,loss\n10,0.5\n20,\n30", "utf-8")
    table = read_columns(path)
    np.testing.assert_array_equal(table["env_steps"], [10, 20])
    assert math.isnan(table["loss"][1])
    path.write_text("", "utf-8")
    assert read_columns(path) == {}
    assert read_columns(tmp_path / "nowhere.csv") == {}


def test_summaries_by_hand(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(methods=("baseline", "fac"), seeds=3))
    for method, rewards in (("baseline", (10.0, 20.0, 30.0)), ("fac", (12.0, 22.0, 32.0))):
        for seed, reward in enumerate(rewards):
            path = root / f"runs/Pendulum-v1/sac/{method}/seed-{seed}/done.json"
            done = read_json(path)
            assert done is not None
            write_json(path, {**done, "reward": reward})
    summary = summarize(read_results(root))
    fac = summary.get(("Pendulum-v1", "sac"), "fac")
    assert fac is not None
    assert fac.reward.value == 22.0
    assert fac.sd("reward") == 10.0
    assert fac.size == 1_000
    assert fac.stored_share == 0.5
    assert fac.mean("control_cost") == 51.0
    assert fac.against_reference is not None
    assert fac.against_reference.difference.interval == (2.0, 2.0)
    assert summary.scores == {}  # one task needs no scores over tasks


def test_normalised_scores_by_hand(make_results: MakeResults) -> None:
    tasks = (Task("Pendulum-v1", "sac", 100), Task("Hopper-v5", "sac", 100))
    root = make_results(made_up_suite(tasks, ("baseline", "fac"), 3))
    for env, method, reward in (
        ("Pendulum-v1", "baseline", -100.0),
        ("Pendulum-v1", "fac", -150.0),
        ("Hopper-v5", "baseline", 1_000.0),
        ("Hopper-v5", "fac", 2_000.0),
    ):
        for seed in range(3):
            path = root / f"runs/{env}/sac/{method}/seed-{seed}/done.json"
            done = read_json(path)
            assert done is not None
            low = -200.0 if env == "Pendulum-v1" else 0.0
            write_json(path, {**done, "reward": reward, "random_reward": low})
    summary = summarize(read_results(root))
    np.testing.assert_allclose(summary.scores["fac"]["Pendulum-v1", "sac"], 0.5)
    np.testing.assert_allclose(summary.scores["fac"]["Hopper-v5", "sac"], 2.0)
    row = tables.over_tasks(summary).rows[1]
    assert row[tables.METHOD].value == "fac"
    assert row[Column("Mean")].value == pytest.approx(1.25)
    chance = summary.improvement("fac")
    assert chance is not None
    assert chance.value == 0.5  # better on one task, worse on the other


def test_a_baseline_no_better_than_random_is_left_out(make_results: MakeResults) -> None:
    names = ("Pendulum-v1", "Hopper-v5", "Swimmer-v5")
    tasks = tuple(Task(name, "sac", 100) for name in names)
    root = make_results(made_up_suite(tasks, ("baseline",), 2))
    for path in root.glob("runs/Pendulum-v1/**/done.json"):
        done = read_json(path)
        assert done is not None
        write_json(path, {**done, "random_reward": 1e6})
    summary = summarize(read_results(root))
    assert set(summary.scores["baseline"]) == {("Hopper-v5", "sac"), ("Swimmer-v5", "sac")}
    assert any("for want of a reference: Pendulum-v1 (SAC)." in it for it in warnings(summary))


def mean_of(summary: Summary, method: str) -> float:
    entry = summary.get(("Pendulum-v1", "sac"), method)
    assert entry is not None
    return entry.reward.value


def test_unequal_seeds_are_named(make_results: MakeResults) -> None:
    summary = summarize(read_results(make_results(missing=(("laber", 1), ("laber", 2)))))
    assert any("Pendulum-v1 (SAC): laber 3, the others 5." in note for note in warnings(summary))
    laber = summary.get(("Pendulum-v1", "sac"), "laber")
    assert laber is not None
    assert laber.against_reference is not None
    difference = laber.reward.value - mean_of(summary, "baseline")  # over all seeds of each
    assert laber.against_reference.difference.value == pytest.approx(difference)


def test_the_same_results_give_the_same_intervals(make_results: MakeResults) -> None:
    root = make_results()
    first, again = summarize(read_results(root)), summarize(read_results(root))
    assert [entry.reward for entry in first.by_method.values()] == [
        entry.reward for entry in again.by_method.values()
    ]
