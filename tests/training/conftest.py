"""Shared by the tests of training: tiny runs of tiny environments."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest
import training_worlds
from training_tiny import TINY

from frugalrl.bench.inspection import load_buffer
from frugalrl.state_io import load_state
from frugalrl.training import TrainConfig, TrainingInterrupted, resume, train
from frugalrl.training.session import Session, fingerprint

training_worlds.register()


@pytest.fixture
def tiny():
    """Give a configuration of a run that takes a moment, with changes."""

    def make(**changes) -> TrainConfig:
        if changes.get("admission") == "fac":
            changes.setdefault("fac_warmup_steps", 100)
        return dataclasses.replace(TINY, **changes)

    return make


@pytest.fixture
def interrupt(monkeypatch):
    """Give a function that lets every run stop, as if by a signal, from a step on."""

    def stop_at(step: int | None) -> None:
        def pause(self: Session) -> bool:
            if step is not None and self._loop.env_steps >= step:
                self._guard.signum = signal.SIGINT
            return self._guard.triggered

        monkeypatch.setattr(Session, "_pause", pause)

    return stop_at


@pytest.fixture
def stop_and_go(interrupt):
    """Give a function that runs a configuration with interruptions and resumes it to its end."""

    def run(config: TrainConfig, *stops: int):
        interrupt(stops[0])
        with pytest.raises(TrainingInterrupted):
            train(config)
        for stop in stops[1:]:
            interrupt(stop)
            with pytest.raises(TrainingInterrupted):
                resume(config.out)
        interrupt(None)
        return resume(config.out)

    return run


def without_times(path: Path) -> list[list[str]]:
    """Read metrics.csv without the columns that no two runs have in common."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, name in enumerate(rows[0]) if not name.endswith("_seconds")]
    return [[row[i] for i in keep] for row in rows]


@pytest.fixture
def assert_same_run():
    """Give a function that compares two finished runs bit by bit."""

    def compare(one, other) -> None:
        assert one.fingerprint == other.fingerprint
        first, second = one.directory, other.directory
        assert without_times(first / "metrics.csv") == without_times(second / "metrics.csv")
        name = "evaluations.csv"
        assert (first / name).read_bytes() == (second / name).read_bytes()
        # The order of safetensors' metadata is not fixed, so files are compared by content.
        states = [load_state(path / "policy.safetensors", "policy", 1) for path in (first, second)]
        assert fingerprint(states[0]) == fingerprint(states[1])
        buffers = [load_buffer(path).state_dict() for path in (first, second)]
        assert fingerprint(buffers[0]) == fingerprint(buffers[1])
        assert one.evaluations == other.evaluations
        assert one.final.to_dict() == other.final.to_dict()

    return compare
