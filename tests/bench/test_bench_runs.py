"""Runs: order, scale, fingerprints, and the command that repeats a run."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
from bench_made_up import made_up_suite

import frugalrl
from frugalrl.bench.errors import BenchError
from frugalrl.bench.runs import Run, command, describe_change, expand, make_run
from frugalrl.bench.suites import Task, load_suite
from frugalrl.bench.worker import train_config
from frugalrl.training.config import make_admission


def test_controls_come_after_what_they_match() -> None:
    runs = expand(made_up_suite(methods=("random-slot", "small", "baseline", "fac"), seeds=2))
    names = [run.method for run in runs]
    assert names == ["baseline", "fac", "random-slot", "small"] * 2
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4


def test_the_method_has_the_last_word_and_only_filters_take_their_settings() -> None:
    suite = load_suite("smoke")
    fac = make_run(suite, suite.tasks[0], "fac", 0)
    baseline = make_run(suite, suite.tasks[0], "baseline", 0)
    assert fac.settings["fac_warmup_steps"] == 500
    assert "fac_warmup_steps" not in baseline.settings
    assert fac.warmup_steps == baseline.warmup_steps == 500
    assert fac.settings["eval_every"] == 200


def test_scale_shortens_everything_that_counts_steps() -> None:
    suite = load_suite("paper")
    task = next(task for task in suite.tasks if task.env == "Hopper-v5")
    run = make_run(suite, task, "fac", 0, scale=0.1)
    assert run.steps == 100_000
    assert run.settings["learning_starts"] == 1_000
    assert run.settings["fac_warmup_steps"] == run.warmup_steps == 1_000
    assert run.settings["eval_every"] == 2_000
    for scale in (0.0, 1.5):
        with pytest.raises(BenchError, match="scale"):
            expand(suite, scale)


def test_a_task_without_length_is_refused() -> None:
    suite = made_up_suite(tasks=(Task("CartPole-v1", "sac"),))
    with pytest.raises(BenchError, match="pass --steps"):
        expand(suite)


def test_fingerprints_change_with_settings_and_not_with_labels() -> None:
    run = expand(made_up_suite())[0]
    assert Run.from_json(run.to_json()) == run
    assert dataclasses.replace(run, label="other").fingerprint == run.fingerprint
    assert dataclasses.replace(run, steps=1).fingerprint != run.fingerprint
    changed = dataclasses.replace(run, steps=1, settings={**run.settings, "batch_size": 8})
    said = describe_change(run, changed)
    assert said == "batch_size was 64, is 8, steps was 2000, is 1"


def test_directories_have_harmless_names() -> None:
    run = dataclasses.replace(expand(made_up_suite())[0], env="../a b:<c>/Env-v0")
    assert ".." not in run.path.parts
    assert "<" not in str(run.path)


def test_the_printed_command_is_the_run() -> None:
    import tyro

    from frugalrl.commands.train import Arguments

    suite = load_suite("paper")
    ant = next(task for task in suite.tasks if task.env == "Ant-v5")
    run = make_run(suite, ant, "fac-paper", 3, scale=0.5)
    words = shlex.split(command(run, {"buffer_size": 7, "net_arch": [64, 64]}, "runs/x"))
    assert words[:2] == ["frugalrl", "train"]
    parsed = tyro.cli(Arguments, args=words[2:], config=(tyro.conf.PositionalRequiredArgs,))
    ours = train_config(run, {"buffer_size": 7, "net_arch": [64, 64]}, parsed.out)
    for field in dataclasses.fields(ours):
        if field.name not in ("quiet", "tensorboard", "env_kwargs"):
            assert getattr(parsed, field.name) == getattr(ours, field.name), field.name
    assert parsed.environment_arguments() == ours.environment_arguments()


def test_the_printed_command_has_bounds_as_json() -> None:
    import tyro

    from frugalrl.commands.train import Arguments

    bounds = [[-1.0, -1.0, -8.0], [1.0, 1.0, 8.0]]
    run = expand(made_up_suite(methods=("fac",)))[0]
    run = dataclasses.replace(run, settings={**run.settings, "fac_bounds": bounds})
    words = shlex.split(command(run, {}, "runs/x"))
    parsed = tyro.cli(Arguments, args=words[2:], config=(tyro.conf.PositionalRequiredArgs,))
    made = make_admission(parsed, 0)
    assert isinstance(made, frugalrl.FrugalFilter)
    assert made.settings == make_admission(train_config(run, {}, None), 0).settings
