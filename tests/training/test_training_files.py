"""Checkpoints and signals, by themselves."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from frugalrl.training.errors import StorageError, TrainingInterrupted
from frugalrl.training.process import InterruptGuard, blas_threads, limit_threads
from frugalrl.training.run_directory import CheckpointStore
from frugalrl.training.session import fingerprint


def test_only_so_many_checkpoints_are_kept(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (5, 10, 1_000_000):
        store.save(step, {"step": step}, keep=2)
    assert [path.name for path in store.paths()] == [
        "step-000001000000.safetensors",
        "step-000000000010.safetensors",
    ]
    assert store.newest().state == {"step": 1_000_000}
    assert CheckpointStore(tmp_path / "none").newest() is None
    store.clear()
    assert not tmp_path.exists()


def test_a_file_limit_that_is_reached_leaves_the_old_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"x": np.zeros(10)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StorageError, match=r"step 2 could not.*newest checkpoint is step-0+1"):
            store.save(2, {"x": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(list(tmp_path.iterdir())) == 1
    assert store.newest().state["x"].shape == (10,)


def test_a_fingerprint_sees_every_bit():
    state = {"a": np.arange(3.0), "b": {"c": [1, "x", None]}}
    assert fingerprint(state) == fingerprint({"b": {"c": [1, "x", None]}, "a": np.arange(3.0)})
    for changed in (
        {**state, "a": np.arange(3.0) + 1e-16 * np.array([1, 0, 0])},
        {**state, "a": np.arange(3.0, dtype=np.float32)},
        {**state, "b": {"c": [1, "x", 0]}},
    ):
        assert fingerprint(changed) != fingerprint(state)


def test_the_first_signal_is_remembered_and_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with InterruptGuard() as guard:
        assert not guard.triggered
        signal.raise_signal(signal.SIGTERM)
        assert guard.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(number):
    code = (
        "import time\n"
        "from frugalrl.training.process import InterruptGuard\n"
        "with InterruptGuard():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.send_signal(number)
    assert "saving the run" in process.stderr.readline() + process.stderr.readline()
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number


def test_exit_codes_follow_the_shells_convention():
    assert TrainingInterrupted(signal.SIGINT, None).exit_code == 130
    assert TrainingInterrupted(signal.SIGTERM, None).exit_code == 143


def test_threads_are_limited_before_jax_loads(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--some_flag")
    monkeypatch.delenv("NPROC", raising=False)
    limit_threads(1)
    import os

    assert os.environ["XLA_FLAGS"] == "--some_flag --xla_cpu_multi_thread_eigen=false"
    assert os.environ["NPROC"] == "1"
    monkeypatch.delenv("NPROC")


def test_blas_is_held_to_a_number_of_threads_for_a_while():
    from threadpoolctl import threadpool_info

    def counts():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with blas_threads(2):
        before = counts()
        with blas_threads(1):
            assert set(counts()) == {1}
        assert counts() == before == [2] * len(before)


def test_checkpoints_that_cost_too_much_are_put_off(tiny, tmp_path):
    from frugalrl.training.environments import find_environment
    from frugalrl.training.session import Session

    session = Session(tiny(), find_environment("FrugalPoint-v0"), "fields", None)
    session._save_time = time.perf_counter() - 10
    session._save_cost = 0.9
    assert session._save_is_cheap()
    session._save_cost = 1.1
    assert not session._save_is_cheap()
    session._save_time -= 100
    assert session._save_is_cheap()
