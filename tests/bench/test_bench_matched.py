"""The control that follows another run's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box

import frugalrl
from frugalrl.bench.inspection import inspect_run
from frugalrl.bench.matched import MatchedRandom
from frugalrl.training.config import TrainConfig
from frugalrl.training.runner import train

STEPS = [100, 200, 300, 400]
SIZES = [100, 130, 130, 180]


@pytest.mark.parametrize("replace", [True, False])
def test_the_size_is_met_at_every_recorded_step(replace: bool) -> None:
    box = Box(-1.0, 1.0, (2,), np.float32)
    buffer = frugalrl.ReplayBuffer(
        500,
        observation_space=box,
        action_space=box,
        admission=MatchedRandom(STEPS, SIZES, replace=replace, seed=3),
    )
    sizes = []
    for step in range(500):
        state = np.full(2, step / 500, np.float32)
        buffer.add(state, state, step, state, terminated=False, truncated=False)
        sizes.append(len(buffer))
    assert [sizes[step - 1] for step in STEPS] == SIZES
    assert sizes[-1] == SIZES[-1]  # nothing is recorded beyond: it stays
    stats = buffer.stats
    assert stats.stored == SIZES[-1]
    assert (stats.replaced, stats.dropped) == ((320, 0) if replace else (0, 320))
    rewards = buffer.transitions().rewards
    # Dropping keeps the warm-up for ever; overwriting forgets it like everything else.
    assert (rewards < 100).sum() == (pytest.approx(20, abs=19) if replace else 100)


@pytest.mark.parametrize("replace", [True, False])
def test_it_keeps_the_contract_of_filters(replace: bool) -> None:
    make: Callable[[], MatchedRandom] = lambda: MatchedRandom(  # noqa: E731
        [200, 400, 600], [200, 230, 260], replace=replace, seed=1
    )
    frugalrl.check_filter(make)


def test_steps_and_sizes_belong_together() -> None:
    with pytest.raises(ValueError, match="got 1 steps for 2 sizes"):
        MatchedRandom([1], [1, 2], replace=True)


def test_its_buffer_can_be_inspected(tmp_path: Path) -> None:
    config = TrainConfig(
        "Pendulum-v1",
        "td3",
        MatchedRandom([100, 200], [100, 120], replace=True),
        steps=200,
        out=tmp_path / "run",
        learning_starts=50,
        net_arch=(8, 8),
        batch_size=16,
        eval_every=0,
        final_episodes=0,
        tensorboard=False,
    )
    train(config, progress=False)
    found = inspect_run(tmp_path / "run")
    assert (found["admission"], found["size"]) == ("matched-random", 120)
