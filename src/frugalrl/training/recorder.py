"""Where rows of metrics go: memory, files and loggers."""

from __future__ import annotations

import contextlib
from typing import Any

from frugalrl.training.config import TrainConfig
from frugalrl.training.evaluation import Episodes
from frugalrl.training.metrics import (
    EVALUATION_COLUMNS,
    CsvFile,
    Row,
    Sink,
    TensorBoard,
    WeightsAndBiases,
    columns,
    evaluation_rows,
    read_rows,
)
from frugalrl.training.run_directory import RunDirectory


class Recorder:
    """Records a run's rows.

    Args:
        config: says which loggers to use.
        directory: where files go, None for memory only.
        state: of the checkpoint that the run resumes from; later rows are cut off.
    """

    def __init__(
        self, config: TrainConfig, directory: RunDirectory | None, state: dict[str, Any] | None
    ) -> None:
        self.rows: list[Row] = []
        self.problems: list[str] = []
        self._names = columns(config.algo)
        self._sinks: list[Sink] = []
        self._files: dict[str, CsvFile] = {}
        if directory is None:
            return
        steps = 0 if state is None else int(state["loop"]["counters"]["env_steps"])

        def kept(name: str) -> tuple[int, int] | None:
            return None if state is None else (int(state["files"][name]), steps)

        self._files = {
            "metrics": CsvFile(directory.metrics, self._names, kept("metrics")),
            "evaluations": CsvFile(directory.evaluations, EVALUATION_COLUMNS, kept("evaluations")),
        }
        self.problems = [file.problem for file in self._files.values() if file.problem]
        self.rows = read_rows(directory.metrics)
        if config.tensorboard:
            purge = None if state is None else steps + 1
            self._sinks.append(TensorBoard(directory.tensorboard, purge))
        if config.wandb:
            self._sinks.append(WeightsAndBiases(directory.path.name, config.to_dict()))

    def record(self, row: Row, wall_seconds: float, episodes: Episodes | None) -> None:
        """Add an evaluation to a row, put its columns in order and write it everywhere."""
        full: Row = {**row, "wall_seconds": round(wall_seconds, 3)}
        if episodes is not None:
            full["eval_reward"] = episodes.mean
            full["eval_reward_std"] = episodes.std
            full["eval_length"] = float(episodes.lengths.mean())
            full["eval_success_rate"] = episodes.success_rate
            full["eval_control_cost"] = float(episodes.control_costs.mean())
        full = {name: full.get(name) for name in self._names}
        self.rows.append(full)
        if episodes is not None and "evaluations" in self._files:
            for line in evaluation_rows(int(row["env_steps"] or 0), episodes):
                self._files["evaluations"].write(line)
        if "metrics" in self._files:
            self._files["metrics"].write(full)
        for sink in self._sinks:
            sink.write(full)

    def sizes(self) -> dict[str, int]:
        """Give the bytes of each file, all of them safely on disk."""
        return {name: file.size for name, file in self._files.items()}

    def close(self) -> None:
        """Close files and loggers."""
        for opened in (*self._files.values(), *self._sinks):
            # On a full disk a close fails too, and must not hide the error that was told first.
            with contextlib.suppress(OSError):
                opened.close()
