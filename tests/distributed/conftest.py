"""Shared by the tests of distribution: tiny runs, and one Ray for all of them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

# The small environments and runs of the training tests, for actors in other processes too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "training"))

import training_worlds
from training_tiny import TINY

training_worlds.register()


@pytest.fixture
def tiny():
    """Give a configuration of a run that takes a moment, with changes."""

    def make(**changes):
        if changes.get("admission") == "fac":
            changes.setdefault("fac_warmup_steps", 100)
        return dataclasses.replace(TINY, **changes)

    return make
