"""A run that is interrupted and resumed ends with the bits of one that was not."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import training_worlds
from training_tiny import take_slots

import frugalrl
from frugalrl.training import TrainingError, TrainingInterrupted, resume, train
from frugalrl.training.errors import ConfigError, RunDirectoryError, StorageError


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "large_batch"])
@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_every_admission_and_sampler(algo, sampler, tiny, stop_and_go, assert_same_run, tmp_path):
    for admission in ("none", "fac", "random"):
        noise = {} if algo == "sac" else {"action_noise": "ornstein-uhlenbeck"}
        config = tiny(algo=algo, sampler=sampler, admission=admission, **noise)
        whole = train(dataclasses.replace(config, out=tmp_path / f"{admission}-whole"))
        # before learning starts, in the filter's warm-up, and in mid-flight
        pieces = stop_and_go(
            dataclasses.replace(config, out=tmp_path / f"{admission}-pieces"), 33, 71, 187
        )
        assert_same_run(whole, pieces)
        assert whole.updates == config.steps - config.learning_starts


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_with_jax(algo, tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(algo=algo, engine="jax", admission="fac", sampler="prioritized")
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    assert_same_run(whole, stop_and_go(dataclasses.replace(config, out=tmp_path / "run"), 111))


def test_state_dependent_exploration_in_rounds(tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(
        use_sde=True, sde_sample_freq=4, train_freq=8, gradient_steps=-1, learning_rate="lin_1e-3"
    )
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 101)
    assert_same_run(whole, pieces)
    assert whole.metrics[-1]["learning_rate"] < whole.metrics[0]["learning_rate"]


def test_rounds_of_episodes(tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(algo="td3", train_freq="episode", gradient_steps=-1, admission="fac")
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    # in the middle of episodes, which are rounds
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 33, 110, 190)
    assert_same_run(whole, pieces)
    assert whole.updates >= 150


@pytest.mark.parametrize("envs", [1, 3])
def test_returns_over_several_steps(envs, tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(n_step=3, envs=envs, admission="fac", sampler="prioritized")
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 33, 110, 190)
    assert_same_run(whole, pieces)
    assert whole.updates > 0


def test_actor_and_critics_of_different_sizes(tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(net_arch={"pi": [4], "qf": [12, 6]}, use_sde=True)
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 33, 110)
    assert_same_run(whole, pieces)
    policy = frugalrl.load_policy(tmp_path / "pieces")
    assert policy.mlp.sizes[1:-1] == (4,)
    again = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert again["config"]["net_arch"] == {"pi": [4], "qf": [12, 6]}


@pytest.mark.parametrize("env", ["Hopper-v5", "LunarLanderContinuous-v3", "Pendulum-v1"])
def test_real_environments_in_mid_episode(env, tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(env=env, preset="none", admission="fac", steps=150, eval_every=0)
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 40, 111)
    assert_same_run(whole, pieces)


def test_several_environments(tiny, stop_and_go, assert_same_run, tmp_path):
    config = tiny(env="FrugalOpaque-v0", envs=3, admission="fac")
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 90)
    assert_same_run(whole, pieces)


def test_crowded_cells_and_a_byte_limit(tiny, stop_and_go, assert_same_run, tmp_path):
    # Few cells hold many rewards, in buckets; evictions depend on every allocated byte.
    config = tiny(
        env="Pendulum-v1",
        preset="none",
        admission="fac",
        fac_bins=2,
        fac_warmup_steps=700,
        buffer_bytes="80kB",
        steps=1500,
        learning_starts=1400,
        eval_every=0,
    )
    whole = train(dataclasses.replace(config, out=tmp_path / "whole"))
    pieces = stop_and_go(dataclasses.replace(config, out=tmp_path / "pieces"), 600, 1100)
    assert_same_run(whole, pieces)
    assert whole.buffer.stats.evicted > 0
    assert whole.buffer.admission.cell_counts().max() > 100


def test_different_seeds_differ(tiny):
    one, other = train(tiny(seed=0)), train(tiny(seed=1))
    assert one.fingerprint != other.fingerprint
    again = train(tiny(seed=0))
    assert again.fingerprint == one.fingerprint


def test_resuming_fires_no_burst_of_updates(tiny, interrupt, tmp_path):
    interrupt(150)
    with pytest.raises(TrainingInterrupted):
        train(tiny(out=tmp_path / "run"))
    interrupt(170)
    with pytest.raises(TrainingInterrupted):
        resume(tmp_path / "run")
    interrupt(None)
    result = resume(tmp_path / "run")
    rows = {row["env_steps"]: row["updates"] for row in result.metrics}
    assert all(updates == max(0, steps - 60) for steps, updates in rows.items())


def test_an_evaluation_cut_short_is_made_up_for(
    tiny, interrupt, assert_same_run, tmp_path, monkeypatch
):
    whole = train(tiny(out=tmp_path / "whole"))
    from frugalrl.training import session

    def cut_short(policy, environment, seeds, stop, longest):
        monkeypatch.undo()
        cut_short.session._guard.signum = 2

    monkeypatch.setattr(session, "run_episodes", cut_short)
    original = session.Session._evaluate
    monkeypatch.setattr(
        session.Session,
        "_evaluate",
        lambda self, *a: (setattr(cut_short, "session", self), original(self, *a))[1],
    )
    with pytest.raises(TrainingInterrupted):
        train(tiny(out=tmp_path / "pieces"))
    assert not (tmp_path / "pieces" / "evaluations.csv").read_text().count("\n") > 1
    assert_same_run(whole, resume(tmp_path / "pieces"))


def test_an_environment_that_cannot_be_reproduced_goes_on_anew(tiny, stop_and_go, tmp_path):
    result = stop_and_go(tiny(env="FrugalMoody-v0", out=tmp_path / "run"), 120)
    assert result.env_steps == 240
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["environment_state"] == "fresh"
    assert "begins a new episode" in stored["notes"][0]
    assert "begins a new episode" in (tmp_path / "run" / "run.log").read_text()


def test_an_environment_that_turns_unreadable_is_no_end(tiny, interrupt, tmp_path):
    interrupt(150)
    with pytest.raises(TrainingInterrupted):
        train(tiny(env="FrugalTurning-v0", out=tmp_path / "run"))
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["environment_state"] == "fields"
    log = (tmp_path / "run" / "run.log").read_text()
    assert log.count("can no longer be read") == 1
    assert "Turning.secret is a _Box" in log
    interrupt(None)
    said = []
    result = resume(tmp_path / "run", say=said.append)
    assert result.env_steps == 240
    assert any("begins a new episode: Unreadable" in line for line in said)


@pytest.mark.parametrize("env", ["FrugalNormalized-v0", "FrugalStacked-v0", "FrugalShared-v0"])
def test_stateful_wrappers_in_mid_episode(env, tiny, stop_and_go, assert_same_run, tmp_path):
    whole = train(tiny(env=env, out=tmp_path / "whole"))
    pieces = stop_and_go(tiny(env=env, out=tmp_path / "pieces"), 40, 111)
    assert_same_run(whole, pieces)


def test_before_the_first_checkpoint_it_starts_anew(tiny, assert_same_run, tmp_path, monkeypatch):
    whole = train(tiny(out=tmp_path / "whole"))
    from frugalrl.training.loop import TrainingLoop

    monkeypatch.setattr(TrainingLoop, "advance", lambda *a: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        train(tiny(out=tmp_path / "killed"))
    monkeypatch.undo()
    said = []
    again = resume(tmp_path / "killed", say=said.append)
    assert_same_run(whole, again)
    assert "no checkpoint was written yet" in said[0]


def test_a_damaged_newest_checkpoint_falls_back(tiny, interrupt, assert_same_run, tmp_path):
    whole = train(tiny(out=tmp_path / "whole"))
    interrupt(170)
    with pytest.raises(TrainingInterrupted):
        train(tiny(out=tmp_path / "run"))
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    (newest.parent / f".{newest.name}.0a1b2c3d.tmp").write_bytes(content)  # killed while writing
    files = sorted(newest.parent.iterdir())
    assert frugalrl.load_policy(tmp_path / "run")(np.zeros(2)).shape == (1,)
    assert sorted(newest.parent.iterdir()) == files  # looking changes nothing
    interrupt(None)
    said = []
    again = resume(tmp_path / "run", say=said.append)
    assert "cannot be read" in said[0]
    assert newest.name in said[0]
    assert "step-000000000100" in said[1]
    assert_same_run(whole, again)
    assert [path.suffix for path in newest.parent.iterdir()] == [".damaged"]


def test_only_damaged_checkpoints_are_an_error(tiny, interrupt, tmp_path):
    interrupt(120)
    with pytest.raises(TrainingInterrupted):
        train(tiny(out=tmp_path / "run"))
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TrainingError, match="no checkpoint can be read"):
        resume(tmp_path / "run")


def test_a_full_disk_keeps_the_old_checkpoint(tiny, assert_same_run, tmp_path, monkeypatch):
    whole = train(tiny(out=tmp_path / "whole"))
    from frugalrl.training import run_directory

    written = []
    save = run_directory.save_state

    def fail_second(path, *args, **kwargs):
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        save(path, *args, **kwargs)

    monkeypatch.setattr(run_directory, "save_state", fail_second)
    with pytest.raises(StorageError, match=r"disk full.*newest checkpoint is step-0+100"):
        train(tiny(out=tmp_path / "run"))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [written[0].name]
    assert_same_run(whole, resume(tmp_path / "run"))


def test_metrics_that_cannot_be_written_stop_the_run(tiny, tmp_path, monkeypatch):
    from frugalrl.training.records import CsvFile

    def full(self, *row):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CsvFile, "write", full)
    monkeypatch.setattr(CsvFile, "close", full)  # it tries once more to write
    with pytest.raises(StorageError, match=r"is the disk full.*then resume"):
        train(tiny(out=tmp_path / "run"))


def test_results_that_cannot_be_written_leave_the_run_resumable(
    tiny, assert_same_run, tmp_path, monkeypatch
):
    whole = train(tiny(out=tmp_path / "whole"))
    from frugalrl.training import session

    def full(*args, **kwargs):
        raise OSError("could not write: No space left on device")

    monkeypatch.setattr(session, "save_state", full)
    with pytest.raises(StorageError, match=r"No space left.*step-0+240.*resume"):
        train(tiny(out=tmp_path / "run"))
    monkeypatch.undo()
    assert_same_run(whole, resume(tmp_path / "run"))


class Every(frugalrl.AdmitAll):
    """Admits every n-th transition, and has a length that is 0 at first."""

    name = "every"

    def __init__(self, n: int = 2) -> None:
        self.n, self.seen = n, 0

    def __len__(self) -> int:
        return self.seen

    def offer(self, observations, rewards, free):
        wanted = (self.seen + np.arange(len(rewards))) % self.n == 0
        decisions = take_slots(wanted, free)
        self.seen += len(decisions.codes)
        return decisions

    def state_dict(self):
        return {"n": self.n, "seen": self.seen}

    @classmethod
    def from_state_dict(cls, state):
        made = cls(state["n"])
        made.seen = state["seen"]
        return made


def test_a_filter_of_ones_own(tiny, interrupt, tmp_path):
    whole = train(tiny(admission=Every(3)))
    assert len(whole.buffer) == 80
    interrupt(100)
    with pytest.raises(TrainingInterrupted):
        train(tiny(admission=Every(3), out=tmp_path / "run"))
    interrupt(None)
    with pytest.raises(ConfigError, match=r"'every'.*admission=YourFilter"):
        resume(tmp_path / "run")
    again = resume(tmp_path / "run", admission=Every())
    assert again.fingerprint == whole.fingerprint


def test_a_filter_of_the_library_may_be_given_again(tiny, interrupt, tmp_path):
    whole = train(tiny(admission="fac"))
    interrupt(100)
    with pytest.raises(TrainingInterrupted):
        train(tiny(admission="fac", out=tmp_path / "run"))
    interrupt(None)
    again = resume(tmp_path / "run", admission=frugalrl.FrugalFilter(warmup_steps=100))
    assert again.fingerprint == whole.fingerprint


def test_a_finished_run_with_a_filter_of_ones_own_can_be_prolonged(tiny, tmp_path):
    whole = train(tiny(admission=Every(3)))
    train(tiny(admission=Every(3), steps=160, out=tmp_path / "run"))
    longer = resume(tmp_path / "run", steps=240, admission=Every())
    assert longer.fingerprint == whole.fingerprint


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_can_be_prolonged(finished, tiny, interrupt, tmp_path):
    whole = train(tiny(out=tmp_path / "whole", admission="fac"))
    short = tiny(out=tmp_path / "run", admission="fac", steps=160)
    if finished:
        train(short)
    else:
        interrupt(130)
        with pytest.raises(TrainingInterrupted):
            train(short)
        interrupt(None)
    with pytest.raises(ConfigError, match="steps=100 must be above"):
        resume(tmp_path / "run", steps=100)
    assert (tmp_path / "run" / "final.json").exists() == finished
    longer = resume(tmp_path / "run", steps=240)
    # Nothing here depends on the length of the run, so it is the run of that length.
    assert longer.fingerprint == whole.fingerprint
    assert longer.env_steps == 240
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["steps"] == 240


def test_a_run_without_its_buffer_cannot_be_prolonged(tiny, tmp_path):
    train(tiny(out=tmp_path / "run", save_buffer=False))
    with pytest.raises(RunDirectoryError, match=r"cannot be prolonged.*--no-save-buffer"):
        resume(tmp_path / "run", steps=500)
    assert (tmp_path / "run" / "final.json").exists()


def test_what_cannot_be_resumed(tiny, tmp_path):
    with pytest.raises(RunDirectoryError, match="no directory"):
        resume(tmp_path / "nothing")
    with pytest.raises(RunDirectoryError, match=r"config\.json is missing"):
        resume(tmp_path)
    train(tiny(out=tmp_path / "run"))
    with pytest.raises(RunDirectoryError, match="finished"):
        resume(tmp_path / "run")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        resume(tmp_path / "broken")
    (tmp_path / "broken" / "config.json").write_text('{"version": 99}')
    with pytest.raises(RunDirectoryError, match="version 99"):
        resume(tmp_path / "broken")


def test_worlds_are_what_they_claim():
    assert training_worlds.Point().reset(seed=3)[0].shape == (2,)
