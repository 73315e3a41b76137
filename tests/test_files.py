"""Atomic writes and locks, on file systems with and without them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys

import pytest

from frugalrl.files import (
    DirectoryInUseError,
    DirectoryLock,
    delete_leftovers,
    read_json,
    replacing,
    write_json,
    write_text_atomically,
)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, 2.5, None]})
    assert read_json(path) == {"a": [1, 2.5, None]}
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with contextlib.suppress(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert read_json(path) == {"a": [1, 2.5, None]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", "[" * 100_000])
def test_json_that_is_damaged_reads_as_none(tmp_path, text):
    (tmp_path / "a.json").write_text(text, "latin-1")
    assert read_json(tmp_path / "a.json") is None
    assert read_json(tmp_path / "none.json") is None


def test_a_new_file_has_the_mode_of_any_new_file_and_links_are_replaced(tmp_path):
    mask = os.umask(0o027)
    try:
        write_text_atomically(tmp_path / "a", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_text_atomically(tmp_path / "link", "y")
    assert (tmp_path / "a").read_text() == "x"
    assert not (tmp_path / "link").is_symlink()
    write_text_atomically(tmp_path / ("n" * 255), "as long as a name may be")


def test_leftovers_are_deleted_and_nothing_else(tmp_path):
    for name in (".a.json.0123abcd.tmp", ".step-1.safetensors.ffffffff.tmp"):
        (tmp_path / name).write_bytes(b"12345")
    for name in ("mine.tmp", ".mine.tmp", "a.json"):
        (tmp_path / name).touch()
    delete_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.tmp", "a.json", "mine.tmp"]
    delete_leftovers(tmp_path / "none")


def _no_locks(number):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", [None, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_one_at_a_time_also_where_the_file_system_has_no_locks(tmp_path, monkeypatch, number):
    if number is not None:
        monkeypatch.setattr("fcntl.flock", _no_locks(number))
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    with pytest.raises(DirectoryInUseError, match=f"in use by process {os.getpid()} on") as caught:
        second.acquire()
    assert ("no locks" in str(caught.value)) == (number is not None)
    first.release()
    second.acquire()
    second.release()
    second.release()


@pytest.mark.parametrize("number", [None, errno.ENOLCK])
def test_a_killed_process_leaves_no_lock_behind(tmp_path, number):
    code = (
        "import fcntl, os, sys\n"
        "from frugalrl.files import DirectoryLock\n"
        "def none(*_): raise OSError(int(sys.argv[2]), 'no locks')\n"
        "if int(sys.argv[2]): fcntl.flock = none\n"
        "DirectoryLock(sys.argv[1]).acquire()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path), str(number or 0)]
    assert subprocess.run(words, check=False).returncode == -9  # it had the lock when it died
    lock = DirectoryLock(tmp_path)
    lock.acquire(wait=5)
    lock.release()


def test_a_directory_that_takes_no_lock_is_an_error_of_its_own(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        DirectoryLock(tmp_path / "file").acquire()
