"""What a run writes down as it goes: metrics.csv, evaluations.csv, TensorBoard, W&B."""

from __future__ import annotations

import contextlib
import csv
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from frugalrl.agents.settings import LOSSES
from frugalrl.files import appending, replacing, write_text_atomically
from frugalrl.training.config import TrainConfig
from frugalrl.training.evaluation import Episodes
from frugalrl.training.run_directory import RunDirectory

MetricsRow = dict[str, float | int | None]

# The columns of metrics.csv before and after an algorithm's losses, with their names in TensorBoard
# and W&B: Stable-Baselines3's where it has one.
_BEFORE_LOSSES = {
    "env_steps": "time/total_timesteps",
    "train_seconds": "time/train_seconds",
    "offered": "buffer/offered",
    "stored": "buffer/stored",
    "replaced": "buffer/replaced",
    "dropped": "buffer/dropped",
    "buffer_bytes": "buffer/bytes",
    "eval_reward": "eval/mean_reward",
}
_AFTER_LOSSES = {
    "buffer_size": "buffer/size",
    "evicted": "buffer/evicted",
    "rejected_nonfinite": "buffer/rejected_nonfinite",
    "cells": "buffer/cells",
    "filter_bytes": "buffer/filter_bytes",
    "updates": "train/n_updates",
    "learning_rate": "train/learning_rate",
    "episodes": "time/episodes",
    "episode_reward": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "success_rate": "rollout/success_rate",
    "eval_reward_std": "eval/reward_std",
    "eval_length": "eval/mean_ep_length",
    "eval_control_cost": "eval/control_cost",
    "eval_success_rate": "eval/success_rate",
    "wall_seconds": "time/wall_seconds",
}
EVALUATION_COLUMNS = ("env_steps", "episode", "seed", "reward", "length", "control_cost")


def columns(algo: str) -> tuple[str, ...]:
    """Give the columns of metrics.csv for an algorithm."""
    return (*_BEFORE_LOSSES, *LOSSES[algo], *_AFTER_LOSSES)


def tag(column: str) -> str:
    """Give a column's name in TensorBoard and W&B."""
    return (_BEFORE_LOSSES | _AFTER_LOSSES).get(column, f"train/{column}")


def tagged(row: MetricsRow) -> dict[str, float]:
    """Give a row's numbers under their names in TensorBoard and W&B, with the steps per second."""
    values = {tag(name): float(value) for name, value in row.items() if value is not None}
    steps, seconds = row.get("env_steps"), row.get("train_seconds")
    if steps and seconds:
        values["time/fps"] = steps / seconds
    return values


class CsvFile:
    """A CSV file that is appended to, and cut back to a checkpoint when a run resumes.

    `kept` are bytes and steps of that checkpoint; None starts a new file. `problem` says what was
    found damaged and what became of it.
    """

    def __init__(
        self, path: Path, names: Sequence[str], kept: tuple[int, int] | None = None
    ) -> None:
        self._columns = len(names)
        self._header = ",".join(names) + "\n"
        self.problem: str | None = None
        if kept is None:
            write_text_atomically(path, self._header)
        else:
            self._cut_back(path, *kept)
        self._file = appending(path)
        self._writer = csv.writer(self._file, lineterminator="\n")

    def _cut_back(self, path: Path, size: int, env_steps: int) -> None:
        """Keep the rows up to a checkpoint; of a damaged file those that can be read."""
        content = path.read_bytes() if path.is_file() else b""
        rows = filter(self._fits, content.decode(errors="replace").splitlines(keepends=True))
        # The first column counts steps in every file.
        good = [row for row in rows if float(row.partition(",")[0] or 0) <= env_steps]
        text = "".join([self._header, *good])
        if len(content) >= size and text.encode().startswith(content[:size]):
            os.truncate(path, size)
            return
        if content:
            aside = path.with_name(f"{path.name}.damaged")
            with replacing(aside) as temporary:
                temporary.write_bytes(content)
            self.problem = f"{path} is damaged; it is kept as {aside.name}, and of its rows"
        else:
            self.problem = f"{path} is missing; of its rows"
        self.problem += f" {len(good)} could be read"
        write_text_atomically(path, text)

    def _fits(self, line: str) -> bool:
        """Whether a line is a whole row of numbers."""
        values = line.removesuffix("\n").split(",")
        try:
            numbers = [float(value) for value in values if value]
        except ValueError:
            return False
        return line.endswith("\n") and len(values) == self._columns and len(numbers) > 0

    @property
    def size(self) -> int:
        """Bytes written so far, all of them safely on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def write(self, values: Iterable[float | int | None]) -> None:
        """Append a row; a column without a value stays empty."""
        self._writer.writerow(values)
        # Line by line, so that whoever reads along sees whole rows.
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """TensorBoard's event files, written without TensorFlow or Torch.

    When a run resumes, `purge_step` is the first step whose older events no longer count.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._protocol: Any = event_pb2
        self._writer: Any = EventFileWriter(str(folder))
        if purge_step is not None:
            event = self._event(purge_step)
            event.session_log.status = event_pb2.SessionLog.START
            self._writer.add_event(event)

    def write(self, row: MetricsRow) -> None:
        """Take one row."""
        event = self._event(row["env_steps"])
        for name, number in tagged(row).items():
            event.summary.value.add(tag=name, simple_value=number)
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is still waiting."""
        self._writer.close()

    def _event(self, step: Any) -> Any:
        return self._protocol.Event(wall_time=time.time(), step=int(step))


def read_rows(path: Path) -> list[MetricsRow]:
    """Read a CSV file of metrics back; empty columns are None."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _number(text: str | None) -> float | int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


class Recorder:
    """Records a run's rows, in memory and, where there is a directory, in files and loggers.

    Rows that are later than the checkpoint's state that the run resumes from are cut off.
    """

    def __init__(
        self, config: TrainConfig, directory: RunDirectory | None, state: dict[str, Any] | None
    ) -> None:
        self.rows: list[MetricsRow] = []
        self.warnings: list[str] = []
        self._names = columns(config.algo)
        self._files: dict[str, CsvFile] = {}
        self._write: list[Callable[[MetricsRow], None]] = []
        self._close: list[Callable[[], None]] = []
        if directory is None:
            return
        steps = 0 if state is None else int(state["loop"]["counters"]["env_steps"])
        for name, names in (("metrics", self._names), ("evaluations", EVALUATION_COLUMNS)):
            kept = None if state is None else (int(state["files"][name]), steps)
            self._files[name] = CsvFile(getattr(directory, name), names, kept)
        self.warnings = [f"warning: {it.problem}" for it in self._files.values() if it.problem]
        self.rows = read_rows(directory.metrics)
        self._close = [file.close for file in self._files.values()]
        if config.tensorboard:
            board = TensorBoard(directory.tensorboard, None if state is None else steps + 1)
            self._write.append(board.write)
            self._close.append(board.close)
        if config.wandb:
            import wandb

            # Resumed under the run directory's name.
            name, settings = directory.path.name, config.to_dict()
            run: Any = wandb.init(
                project="frugalrl", name=name, id=name, resume="allow", config=settings
            )
            self._write.append(lambda row: run.log(tagged(row), step=int(row["env_steps"] or 0)))
            self._close.append(run.finish)

    def record(self, row: MetricsRow, wall_seconds: float, episodes: Episodes | None) -> None:
        """Add an evaluation to a row, put its columns in order and write it everywhere."""
        full: MetricsRow = {**row, "wall_seconds": round(wall_seconds, 3)}
        if episodes is not None:
            full["eval_reward"] = episodes.mean
            full["eval_reward_std"] = episodes.std
            full["eval_length"] = float(episodes.lengths.mean())
            full["eval_success_rate"] = episodes.success_rate
            full["eval_control_cost"] = float(episodes.control_costs.mean())
        full = {name: full.get(name) for name in self._names}
        self.rows.append(full)
        if self._files:
            self._files["metrics"].write(full.values())
        if self._files and episodes is not None:
            parts = episodes.seeds, episodes.rewards, episodes.lengths, episodes.control_costs
            rows = zip(*(part.tolist() for part in parts), strict=True)
            for number, values in enumerate(rows):
                self._files["evaluations"].write([full["env_steps"], number, *values])
        for write in self._write:
            write(full)

    def sizes(self) -> dict[str, int]:
        """Give the bytes of each file, all of them safely on disk."""
        return {name: file.size for name, file in self._files.items()}

    def close(self) -> None:
        """Close files and loggers."""
        for close in self._close:
            # On a full disk a close fails too, and must not hide the error that was told first.
            with contextlib.suppress(OSError):
                close()
