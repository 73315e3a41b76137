"""Grids of runs on damaged files and full disks: redone, or a message, never a traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from frugalrl.bench.runs import DONE_FILE, RUN_FILE, Run
from frugalrl.bench.worker import finish_run
from frugalrl.cli import main
from frugalrl.files import read_json, write_json

SETTINGS = {
    "net_arch": [8, 8],
    "batch_size": 16,
    "learning_starts": 50,
    "final_episodes": 1,
    "eval_every": 100,
    "eval_episodes": 1,
}
TIMES = ("train_seconds", "wall_seconds", "peak_memory_bytes")


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("damage", ['{"fingerprint": ', '{"fingerprint": "FINGERPRINT"}', None])
def test_a_run_whose_summary_is_damaged_is_done_again(damage: str | None, tmp_path: Path) -> None:
    run = Run("Pendulum-v1", "td3", "baseline", 0, 200, SETTINGS, warmup_steps=50)
    write_json(tmp_path / RUN_FILE, run.to_json())
    finish_run(tmp_path)
    before: dict[str, Any] = read_json(tmp_path / DONE_FILE) or {}
    assert not (tmp_path / "run/buffer.safetensors").exists()
    if damage is None:
        (tmp_path / DONE_FILE).unlink()
    else:
        (tmp_path / DONE_FILE).write_text(damage.replace("FINGERPRINT", run.fingerprint))
    finish_run(tmp_path)
    after: dict[str, Any] = read_json(tmp_path / DONE_FILE) or {}
    assert after["reward"] == before["reward"]
    for found in (before, after):
        for key in TIMES:
            del found[key]
    assert after == before


@pytest.mark.parametrize("full", ["frugalrl.bench.grid.write_json", "subprocess.Popen"])
def test_a_grid_on_a_full_disk_ends_with_a_message(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "Pendulum-v1", "--methods", "baseline", "--seeds", "1", "--steps", "600"]
    words += ["--set", "learning_starts=50", "--out", str(tmp_path / "results")]
    with monkeypatch.context() as patch:
        patch.setattr(full, no_room)
        assert main(words) == 1
    told = capsys.readouterr().err
    assert "cannot be written: No space left on device. Put that right" in told
