"""What a fault must not do to a run: damaged text files, leftovers, disks and names."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import pytest
from training_tiny import TINY

from frugalrl.training import (
    ConfigError,
    RunDirectoryError,
    StorageError,
    TrainingInterrupted,
    resume,
    train,
)
from frugalrl.training.session import Session


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Give the directory of a run that was stopped after 150 steps."""

    def pause(self: Session) -> bool:
        if self._loop.env_steps >= 150:
            self._guard.signum = 2
        return self._guard.triggered

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_pause", pause)
        with pytest.raises(TrainingInterrupted):
            train(dataclasses.replace(TINY, out=tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(dataclasses.replace(TINY, out=tmp_path_factory.mktemp("whole") / "run"))


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "bad row": lambda path: path.write_bytes(path.read_bytes().replace(b"\n8", b"\nx", 1)),
    "not text": lambda path: path.write_bytes(path.read_bytes().replace(b"0", b"\xff", 9)),
}


@pytest.mark.parametrize("name", ["metrics.csv", "evaluations.csv"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_does_not_block_a_resume(name, damage, stopped, whole):
    before = (stopped / name).read_text().splitlines()
    DAMAGE[damage](stopped / name)
    damaged = (stopped / name).read_bytes() if (stopped / name).exists() else b""
    said = []
    result = resume(stopped, say=said.append)
    assert result.fingerprint == whole.fingerprint
    assert any(name in line and "could be read" in line for line in said)
    if damaged:
        assert (stopped / f"{name}.damaged").read_bytes() == damaged
    after = (stopped / name).read_text().splitlines()
    assert after[0] == before[0]
    assert after[-1].startswith("240,")
    if damage in ("cut", "bad row"):
        assert len(set(before) & set(after)) >= len(before) - 1


@pytest.mark.parametrize("damage", ["empty", "zeros", "cut"])
@pytest.mark.parametrize("saves", [True, False])
def test_a_damaged_result_is_made_again(damage, saves, tmp_path, whole):
    train(dataclasses.replace(TINY, out=tmp_path / "run", save_buffer=saves))
    before = json.loads((tmp_path / "run" / "final.json").read_text())
    DAMAGE[damage](tmp_path / "run" / "final.json")
    assert resume(tmp_path / "run").fingerprint == whole.fingerprint
    after = json.loads((tmp_path / "run" / "final.json").read_text())
    assert after["final"] == before["final"]
    with pytest.raises(RunDirectoryError, match="is finished"):
        resume(tmp_path / "run")


def edit(run, **changes):
    content = json.loads((run / "config.json").read_text())
    content["config"].update(changes)
    (run / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_freq": 65}, "train_freq=65.*made with train_freq=1"),
        ({"train_freq": -1}, "train_freq=-1"),
        ({"gamma": 0.5}, "gamma=0.5"),
        ({"gamma": "0.99"}, "gamma"),
        ({"seed": 1}, "seed=1"),
        ({"algo": "saq"}, "algo='saq'"),
        ({"net_arch": [8]}, "net_arch"),
        ({"steps": 10}, "learning_starts=60.*steps=10"),
        ({"envs": 2}, "envs=2"),
        ({"color": "red"}, "color"),
    ],
)
def test_a_changed_configuration_is_noticed(changes, message, stopped):
    edit(stopped, **changes)
    with pytest.raises(ConfigError, match=message):
        resume(stopped)


def test_what_leaves_no_trace_may_be_changed(stopped, whole):
    edit(stopped, log_every=7, eval_every=50, quiet=True, tensorboard=True)
    assert resume(stopped).fingerprint == whole.fingerprint


def test_traces_of_killed_processes_are_deleted(stopped):
    leftovers = [
        stopped / ".buffer.safetensors.0123abcd.tmp",
        stopped / "checkpoints" / ".step-000000000100.safetensors.0a1b2c3d.tmp",
    ]
    for path in leftovers:
        path.write_bytes(bytes(1000))
    resume(stopped)
    assert not any(path.exists() for path in leftovers)


def test_a_directory_killed_before_its_configuration_can_be_used(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / ".lock").touch()
    (run / ".config.json.0123abcd.tmp").write_text("{")
    assert train(dataclasses.replace(TINY, out=run)).env_steps == 240
    assert not (run / ".config.json.0123abcd.tmp").exists()


@pytest.mark.parametrize("name", ["caf\udce9", "a" * 300, "nul\0", "deep/" * 1500])
def test_names_that_cannot_be(name, tmp_path):
    for call in (
        lambda path: train(dataclasses.replace(TINY, out=path)),
        lambda path: resume(path),
    ):
        with pytest.raises(RunDirectoryError, match=r"UTF-8|too long"):
            call(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_turned_read_only(stopped, monkeypatch):
    from filelock import FileLock

    def refuse(self):
        raise OSError(30, "Read-only file system", str(stopped))

    monkeypatch.setattr(FileLock, "_acquire", refuse)
    with pytest.raises(RunDirectoryError, match="cannot be written: Read-only file system"):
        resume(stopped)


@pytest.mark.parametrize("error", [28, 30, 13])
def test_metrics_that_cannot_be_opened(error, stopped, monkeypatch):
    def refuse(path):
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr("frugalrl.training.records.appending", refuse)
    with pytest.raises(StorageError, match=r"could not be written.*step-0+150"):
        resume(stopped)


def test_a_directory_deleted_while_running(tmp_path, monkeypatch):
    run = tmp_path / "run"

    def pause(self: Session) -> bool:
        if self._loop.env_steps == 130:
            shutil.rmtree(run)
        return False

    monkeypatch.setattr(Session, "_pause", pause)
    with pytest.raises(StorageError, match="moved or deleted"):
        train(dataclasses.replace(TINY, out=run))


def test_links_in_a_run_directory_are_not_written_through(stopped, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    for name in ("metrics.csv", "run.log"):
        (stopped / name).unlink()
        (stopped / name).symlink_to(mine)
    resume(stopped)
    assert mine.read_text() == "precious"
