"""Storage on several file systems, and a run's copy in it: whole files, in an order that holds."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from frugalrl.distributed.storage import ClaimLostError, RunCopy, SharedDirectory
from frugalrl.training.errors import ConfigError


@pytest.fixture(params=["path", "file", "memory"])
def storage(request, tmp_path) -> SharedDirectory:
    """Give an empty storage on each of three file systems."""
    urls = {
        "path": str(tmp_path / "there"),
        "file": (tmp_path / "there").as_uri(),
        "memory": f"memory://{uuid.uuid4().hex}/there",
    }
    return SharedDirectory(urls[request.param])


@pytest.fixture
def folder(tmp_path) -> Path:
    """Give a directory in which a run works."""
    (tmp_path / "here" / "run" / "checkpoints").mkdir(parents=True)
    return tmp_path / "here"


def write(folder: Path, name: str, text: str = "x") -> None:
    (folder / name).write_text(text)


def checkpoint(step: int) -> str:
    return f"run/checkpoints/step-{step:012d}.safetensors"


def test_files_come_back_as_they_were_put(storage, folder):
    write(folder, "cell.json", "a cell")
    storage.put(folder / "cell.json", "deep/down/cell.json")
    assert storage.names() == {"deep/down/cell.json": 6}
    storage.at("deep").get("down/cell.json", folder / "back" / "cell.json")
    assert (folder / "back" / "cell.json").read_text() == "a cell"
    write(folder, "cell.json", "another")
    storage.put(folder / "cell.json", "deep/down/cell.json")
    assert storage.read("deep/down/cell.json") == b"another"
    storage.delete("deep/down/cell.json")
    storage.delete("deep/down/cell.json")
    assert storage.names() == {}
    assert storage.read("deep/down/cell.json") is None


def test_a_partial_upload_is_never_taken_for_the_whole(storage, folder, monkeypatch):
    write(folder, "cell.json", "old")
    storage.put(folder / "cell.json", "cell.json")
    write(folder, "cell.json", "new and much longer")

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(storage._files), "mv", die)
    with pytest.raises(KeyboardInterrupt):
        storage.put(folder / "cell.json", "cell.json")
    assert storage.read("cell.json") == b"old"
    assert list(storage.names()) == ["cell.json"]
    assert len(storage.names(leftovers=True)) == 2


def test_a_relative_path_means_the_same_to_every_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert SharedDirectory("results").url == str(tmp_path / "results")
    assert SharedDirectory("memory://results/").url == "memory://results"


def test_a_run_goes_on_from_what_was_pushed(storage, folder, tmp_path):
    first = RunCopy(storage, folder)
    assert first.fetch() == []
    for name in ("cell.json", "run/config.json", "run/metrics.csv", ".lock", "run/.x.tmp"):
        write(folder, name)
    assert not first.has_new_checkpoint
    for step in (100, 200):
        write(folder, checkpoint(step))
    assert first.has_new_checkpoint
    first.push()
    assert not first.has_new_checkpoint
    wanted = {"cell.json", "run/config.json", "run/metrics.csv", checkpoint(100), checkpoint(200)}
    assert {*storage.names()} - {"owner"} == wanted
    (folder / checkpoint(100)).unlink()
    write(folder, checkpoint(300))
    first.push()
    elsewhere = RunCopy(storage, tmp_path / "elsewhere")
    assert {*elsewhere.fetch()} == wanted - {checkpoint(100)} | {checkpoint(300)}
    assert (tmp_path / "elsewhere" / checkpoint(300)).read_text() == "x"


def test_rows_are_there_before_the_checkpoint_that_counts_on_them(storage, folder, monkeypatch):
    order = []
    put = SharedDirectory.put
    monkeypatch.setattr(
        SharedDirectory,
        "put",
        lambda self, source, name: order.append(name) or put(self, source, name),
    )
    copy = RunCopy(storage, folder)
    copy.fetch()
    for name in ("run/metrics.csv", "run/evaluations.csv", checkpoint(1), checkpoint(2)):
        write(folder, name)
    copy.push()
    rows = ["run/evaluations.csv", "run/metrics.csv"]
    assert order == [*rows, checkpoint(1), checkpoint(2)]
    end = ["run/policy.safetensors", "run/buffer.safetensors", "run/final.json", "done.json"]
    for name in sorted(end):
        write(folder, name)
    write(folder, "run/checkpoints/step-000000000003.damaged")
    copy.push(ended=True)
    assert order[4:] == end


def test_the_end_comes_last_and_checkpoints_go(storage, folder):
    copy = RunCopy(storage, folder)
    copy.fetch()
    write(folder, "cell.json")
    write(folder, checkpoint(100))
    write(folder, "run/final.json")
    write(folder, "run/policy.safetensors")
    copy.push()
    # Whoever goes on from here starts at the checkpoint: there is no end without its summary.
    assert {*storage.names()} == {"owner", "cell.json", checkpoint(100)}
    (folder / checkpoint(100)).unlink()
    write(folder, "done.json")
    copy.push(ended=True)
    assert {*storage.names()} == {
        "cell.json",
        "run/final.json",
        "run/policy.safetensors",
        "done.json",
    }


def test_an_end_that_failed_half_way_can_be_tried_again(storage, folder, monkeypatch):
    copy = RunCopy(storage, folder)
    copy.fetch()
    write(folder, "done.json")
    storage.write("left.json", b"by an earlier attempt")
    delete = SharedDirectory.delete

    def fail_once(self, name):
        monkeypatch.setattr(SharedDirectory, "delete", delete)
        raise OSError("busy")

    monkeypatch.setattr(SharedDirectory, "delete", fail_once)
    with pytest.raises(OSError, match="busy"):
        copy.push(ended=True)
    copy.push(ended=True)
    assert {*storage.names()} == {"done.json"}


def test_only_what_changed_is_copied(storage, folder, monkeypatch):
    copy = RunCopy(storage, folder)
    copy.fetch()
    write(folder, "cell.json")
    copy.push()
    order = []
    put = SharedDirectory.put
    monkeypatch.setattr(
        SharedDirectory,
        "put",
        lambda self, source, name: order.append(name) or put(self, source, name),
    )
    copy.push()
    write(folder, "run/metrics.csv")
    copy.push()
    assert order == ["run/metrics.csv"]


def test_whoever_fetches_last_owns_a_run(storage, folder, tmp_path):
    zombie = RunCopy(storage, folder)
    zombie.fetch()
    write(folder, "cell.json", "zombie")
    zombie.push()
    heir = RunCopy(storage, tmp_path / "heir")
    heir.fetch()
    write(folder, "cell.json", "zombie again")
    with pytest.raises(ClaimLostError, match="another process"):
        zombie.push()
    assert storage.read("cell.json") == b"zombie"
    heir.push()


def test_storage_that_can_be_written_is_left_as_it_was(storage):
    storage.check_writable()
    assert storage.names() == {}


def test_storage_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"storage='.*file' cannot be written: \w+Error"):
        SharedDirectory(tmp_path / "file").check_writable()


@pytest.mark.parametrize(
    "url", ["nonsense://somewhere", "s3://bucket/results", "ftp://127.0.0.1:1/results"]
)
def test_an_unknown_or_uninstalled_protocol_is_refused(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=r"cannot be used.*pip install s3fs"):
        SharedDirectory(url)
