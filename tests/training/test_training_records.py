"""What a run leaves behind: metrics, evaluations, TensorBoard, W&B, results."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import sys
import types

import numpy as np
import pytest
from training_tiny import TINY

import frugalrl
from frugalrl.agents.settings import LOSSES
from frugalrl.bench.inspection import acceptance, inspect_run, inspection_lines, load_buffer
from frugalrl.compiling import COMPILATION, Stopwatch
from frugalrl.training import train
from frugalrl.training.console import (
    Progress,
    describe,
    duration,
    mean_interval,
    result_lines,
    spread,
)
from frugalrl.training.evaluation import run_episodes
from frugalrl.training.loop import TrainingLoop
from frugalrl.training.records import CsvFile, TensorBoard, read_rows, tag

FIRST = ["env_steps", "train_seconds", "offered", "stored", "replaced", "dropped", "buffer_bytes"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("records") / "run"
    config = dataclasses.replace(
        TINY, admission="fac", fac_warmup_steps=100, tensorboard=True, out=out
    )
    return train(config)


def test_metrics_csv_has_its_columns_in_order(run):
    rows = list(csv.reader((run.directory / "metrics.csv").open()))
    assert rows[0][:8] == [*FIRST, "eval_reward"]
    assert rows[0][8:10] == ["critic_loss", "actor_loss"]
    # After 50 steps without one, with every evaluation (80), and at the end.
    assert [int(row[0]) for row in rows[1:]] == [50, 80, 130, 160, 210, 240]
    assert read_rows(run.directory / "metrics.csv") == run.metrics


@pytest.mark.parametrize(("train_freq", "log_every", "gap"), [(16, 50, 48), (16, 5, 16)])
def test_no_row_is_late_where_rounds_are_long(train_freq, log_every, gap, tiny):
    result = train(tiny(train_freq=train_freq, log_every=log_every, eval_every=0))
    assert [row["env_steps"] for row in result.metrics] == list(range(gap, 241, gap))


def test_metrics_say_what_happened(run):
    first, last = run.metrics[0], run.metrics[-1]
    assert first["critic_loss"] is None
    assert first["offered"] == first["stored"] == 50
    assert last["offered"] == 240
    assert last["stored"] + last["replaced"] + last["dropped"] == 240
    assert last["buffer_size"] == len(run.buffer)
    assert last["buffer_bytes"] == run.buffer.nbytes
    assert last["cells"] == run.buffer.admission.cells > 0
    assert last["updates"] == 180
    assert last["critic_loss"] > 0
    assert [row["eval_reward"] is not None for row in run.metrics] == [
        row["env_steps"] % 80 == 0 for row in run.metrics
    ]
    pairs = itertools.pairwise(row["train_seconds"] for row in run.metrics)
    assert all(earlier <= later for earlier, later in pairs)


def test_compilation_is_no_time_of_training(tiny, monkeypatch):
    step = TrainingLoop._step

    def compile_for_an_hour(self: TrainingLoop) -> bool:
        COMPILATION.seconds += 3600 * (self.env_steps == 100)
        return step(self)

    monkeypatch.setattr(TrainingLoop, "_step", compile_for_an_hour)
    monkeypatch.setattr(COMPILATION, "seconds", 0.0)
    # The hour passed on no clock, so that it is missing from the time of training.
    assert train(tiny()).train_seconds < -3000


def test_a_compiler_inside_another_counts_once(monkeypatch):
    clock = iter((10.0, 17.0))
    monkeypatch.setattr("frugalrl.compiling.time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    with watch, watch:
        pass
    assert watch.seconds == 7.0


def test_evaluations_csv_has_every_episode(run):
    rows = list(csv.DictReader((run.directory / "evaluations.csv").open()))
    assert [int(row["env_steps"]) for row in rows] == [80, 80, 160, 160, 240, 240]
    assert [int(row["seed"]) for row in rows[:2]] == [2_000_000, 2_000_001]
    mean = np.mean([float(row["reward"]) for row in rows[2:4]])
    assert run.evaluations[1] == (160, pytest.approx(mean))


def test_final_json_sums_up(run):
    final = json.loads((run.directory / "final.json").read_text())
    assert final["final"]["seeds"] == [1_000_000, 1_000_001]
    assert final["final"]["reward_mean"] == pytest.approx(np.mean(final["final"]["rewards"]))
    assert final["buffer"]["size"] == len(run.buffer)
    assert final["peak_memory_bytes"] > 1e7
    assert 0 < final["train_seconds"] <= final["wall_seconds"]
    assert final["fingerprint"] == run.fingerprint
    assert not (run.directory / "checkpoints").exists()


def test_the_saved_policy_and_buffer_are_the_runs(run):
    policy = frugalrl.load_policy(run.directory)
    observation = np.array([0.3, -0.2])
    np.testing.assert_array_equal(policy(observation), run.policy(observation))
    assert policy(np.zeros((5, 2))).shape == (5, 1)
    same = frugalrl.load_policy(run.directory / "policy.safetensors")
    np.testing.assert_array_equal(same(observation), policy(observation))
    loaded = load_buffer(run.directory).transitions()
    np.testing.assert_array_equal(loaded.rewards, run.buffer.transitions().rewards)


def test_config_json_tells_all(run):
    content = json.loads((run.directory / "config.json").read_text())
    assert content["config"]["batch_size"] == 16
    assert content["config"]["fac_bins"] == 50
    assert content["origins"]["tau"] == "default"
    assert content["environment_state"] == "fields"
    assert {"python", "frugalrl", "gymnasium"} <= set(content["versions"])


def test_tensorboard_events_hold_the_same_numbers(run):
    events = _events(run.directory / "tensorboard")
    rewards = [(step, value) for step, name, value in events if name == "eval/mean_reward"]
    assert [step for step, _ in rewards] == [80, 160, 240]
    assert rewards[0][1] == pytest.approx(run.evaluations[0][1], rel=1e-6)
    assert {
        "buffer/stored",
        "train/critic_loss",
        "time/episodes",
        "rollout/ep_rew_mean",
        "time/fps",
    } <= {e[1] for e in events}


def _events(folder):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = []
    for path in sorted(folder.iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = value.tensor.float_val[0] if value.HasField("tensor") else 0.0
                found.append((event.step, value.tag, number))
            if event.HasField("session_log"):
                found.append((event.step, "session", event.session_log.status))
    return found


def test_a_resumed_tensorboard_purges_what_it_will_write_again(tmp_path):
    board = TensorBoard(tmp_path, purge_step=70)
    board.write({"env_steps": 80, "eval_reward": 1.5, "critic_loss": None})
    board.close()
    assert _events(tmp_path) == [
        (70, "session", 1),
        (80, "time/total_timesteps", 80),
        (80, "eval/mean_reward", 1.5),
    ]


def test_wandb_gets_every_row(tiny, tmp_path, monkeypatch):
    calls = []

    class Run:
        def log(self, values, step):
            calls.append((step, values))

        def finish(self):
            calls.append("finished")

    stub = types.ModuleType("wandb")
    stub.init = lambda **arguments: calls.append(arguments) or Run()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    train(tiny(wandb=True, out=tmp_path / "run"))
    assert calls[0]["id"] == "run"
    assert calls[0]["config"]["env"] == "FrugalPoint-v0"
    assert calls[1][0] == 50
    assert "eval/mean_reward" in calls[2][1]
    assert calls[-1] == "finished"


def test_evaluation_can_be_switched_off(tiny, tmp_path):
    result = train(tiny(eval_every=0, final_episodes=0, save_buffer=False, out=tmp_path / "run"))
    assert result.final is None
    assert result.evaluations == []
    assert json.loads((tmp_path / "run" / "final.json").read_text())["final"] is None
    assert (tmp_path / "run" / "evaluations.csv").read_text().count("\n") == 1
    assert not (tmp_path / "run" / "buffer.safetensors").exists()
    with pytest.raises(frugalrl.training.RunDirectoryError, match="--no-save-buffer"):
        load_buffer(tmp_path / "run")


def test_a_run_without_directory_leaves_nothing(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train(tiny(tensorboard=True))
    assert result.directory is None
    assert list(tmp_path.iterdir()) == []
    assert len(result.metrics) == 6


def test_learning_moves_the_parameters_and_only_after_learning_starts(tiny):
    before = train(tiny(steps=61, final_episodes=0, eval_every=0))
    after = train(tiny(steps=200, final_episodes=0, eval_every=0))
    assert (before.updates, after.updates) == (1, 140)
    assert not np.array_equal(before.policy.parameters, after.policy.parameters)


def test_a_csv_is_cut_back_to_a_size(tmp_path):
    path = tmp_path / "a.csv"
    file = CsvFile(path, ["x", "y"])
    file.write([1, 0.1])
    size = file.size
    file.write([2, None])
    file.close()
    assert path.read_text() == "x,y\n1,0.1\n2,\n"
    file = CsvFile(path, ["x", "y"], (size, 1))
    file.write([3, float("nan")])
    file.close()
    assert path.read_text() == "x,y\n1,0.1\n3,nan\n"
    assert read_rows(path)[0] == {"x": 1, "y": 0.1}
    missing = CsvFile(tmp_path / "b.csv", ["x"], (99, 1))
    missing.close()
    assert "is missing" in missing.problem
    assert (tmp_path / "b.csv").read_text() == "x\n"


def test_losses_have_the_agents_names(run, tiny):
    for result in (run, train(tiny(algo="td3", final_episodes=0, eval_every=0))):
        for name in LOSSES[result.config.algo]:
            assert result.metrics[-1][name] is not None
    assert tag("actor_loss") == "train/actor_loss"
    assert tag("buffer_bytes") == "buffer/bytes"


def test_control_cost_and_rewards_of_an_episode():
    import gymnasium

    environment = gymnasium.make("FrugalPoint-v0", push=0.0)
    episodes = run_episodes(lambda o: np.array([2.0], np.float32), environment, [3, 4])
    np.testing.assert_array_equal(episodes.lengths, [25, 25])
    np.testing.assert_allclose(episodes.control_costs, 100.0)
    again = run_episodes(lambda o: np.array([2.0], np.float32), environment, [3, 4])
    np.testing.assert_array_equal(episodes.rewards, again.rewards)
    # The last step counts: the sum over all 25.
    environment.reset(seed=3)
    total = sum(environment.step(np.zeros(1))[1] for _ in range(25))
    assert episodes.rewards[0] == pytest.approx(total)


def test_a_bootstrap_interval_contains_the_mean():
    values = np.random.default_rng(0).normal(5, 1, 400)
    low, high = mean_interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(4 * 1 / 20, rel=0.2)
    assert mean_interval(values) == (low, high)


def _buffer(stored, offered, nbytes):
    """Give what the progress line looks at."""
    stats = types.SimpleNamespace(stored=stored, offered=offered)
    return types.SimpleNamespace(stats=stats, nbytes=nbytes)


def test_the_progress_line_in_words():
    buffer = _buffer(4000, 5000, 1_500_000)
    text = describe(5000, 20000, 100.0, buffer, -150.25)
    assert (
        text
        == "5,000/20,000 steps · 100/s · 2m30s left · eval -150.2 · stored 4,000/5,000 · 1.5 MB"
    )
    assert "left" not in describe(5000, 20000, None, buffer, None)
    assert [duration(s) for s in (5, 65, 3700)] == ["5s", "1m05s", "1h01m"]


def test_the_progress_line_is_shown_only_when_asked(capfd):
    buffer = _buffer(4, 5, 15)
    with Progress(visible=False) as hidden:
        assert not hidden.due
        hidden.show(5, 20, buffer)
    assert capfd.readouterr().err == ""
    with Progress(visible=True) as shown:
        assert shown.due
        shown.show(5, 20, buffer)
        assert not shown.due
        shown.note("evaluating")
        shown.show(10, 20, buffer)
        assert shown.rate() > 0
    assert "stored 4/5" in capfd.readouterr().err


def test_without_a_terminal_there_is_a_line_a_minute(capfd, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("frugalrl.training.console.time.monotonic", lambda: clock[0])
    with Progress(visible=None, title="Hopper-v5 sac") as shown:
        assert not shown.due
        clock[0] += 61
        assert shown.due
        shown.show(5000, 20000, _buffer(4, 5, 15))
        assert not shown.due
        shown.note("evaluating")
        clock[0] += 61
        shown.show(11_000, 20_000, _buffer(4, 5, 15), -7.0)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("Hopper-v5 sac: 11,000/20,000 steps · 98/s")


@pytest.mark.parametrize(("columns", "title"), [("70", False), ("160", True)])
def test_a_narrow_terminal_shows_every_number(columns, title, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    with Progress(visible=True, title="Hopper-v5 sac") as shown:
        shown.show(150_000, 300_000, _buffer(98_000, 150_000, 10_100_000), 2923.25)
    text = capfd.readouterr().err
    assert "98,000/150,000" in text
    assert "10.1 MB" in text
    assert ("Hopper-v5 sac" in text) == title


def test_result_lines_say_what_counts(run):
    text = "\n".join(result_lines(run))
    assert "240 steps" in text
    assert "2 episodes" in text
    assert "95 % interval" not in text  # two episodes have none
    assert "95 % interval" in spread(np.arange(10.0))
    assert spread(np.arange(5.0)) == "over 5 episodes; sd 1.6"
    assert str(run.directory) in text


def test_inspection_measures_the_buffer(run):
    found = inspect_run(run.directory)
    assert found["size"] == len(run.buffer)
    contents = found["contents"]
    assert contents["cells"] == run.buffer.admission.cells
    measures = contents["measures"]
    assert (
        0 < measures["entropy"] <= measures["entropy_limit"] == pytest.approx(np.log(found["size"]))
    )
    lines = "\n".join(inspection_lines(found))
    assert "entropy" in lines
    assert "rewards per cell" in lines
    json.dumps(found)


def test_inspection_without_the_filter_and_of_an_unfinished_run(tiny, interrupt, tmp_path):
    interrupt(130)
    with pytest.raises(frugalrl.training.TrainingInterrupted):
        train(tiny(out=tmp_path / "run"))
    found = inspect_run(tmp_path / "run")
    assert found["finished"] is False
    assert found["contents"]["cells"] > 1
    assert found["stats"]["offered"] >= 130
    assert frugalrl.load_policy(tmp_path / "run")(np.zeros(2)).shape == (1,)


def test_inspection_of_an_empty_buffer(tiny, tmp_path):
    settings = {"admission": "fac", "fac_warmup": "observe"}
    result = train(tiny(**settings, fac_warmup_steps=TINY.steps, out=tmp_path / "run"))
    assert len(result.buffer) == 0
    found = inspect_run(tmp_path / "run")
    assert found["size"] == 0
    assert "contents" not in found
    assert inspection_lines(found)[1].startswith("held      0 transitions")


def test_acceptance_over_time():
    rows = [
        {"env_steps": 10, "offered": 10, "stored": 10, "replaced": 0},
        {"env_steps": 20, "offered": 20, "stored": 14, "replaced": 6},
    ]
    assert acceptance(rows) == [
        {"env_steps": 10, "stored": 1.0, "replaced": 0.0},
        {"env_steps": 20, "stored": 0.4, "replaced": 0.6},
    ]
    assert acceptance([]) == []
