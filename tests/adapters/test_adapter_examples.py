"""The adapters' examples run, shortened."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("name", ["sb3_sac", "sbx_sac"])
def test_stable_baselines(name, capsys):
    model = load(name)["main"](steps=120, warmup_steps=40, verbose=0)
    stats = model.replay_buffer.stats
    assert stats.offered == 120
    assert stats.replaced > 0
    assert "120 transitions offered" in capsys.readouterr().out


def test_offline_dataset(capsys):
    thinned = load("offline_dataset")["main"](steps=3_000)
    said = capsys.readouterr().out
    assert "of 3,000 transitions kept" in said
    kept = len(thinned["rewards"])
    assert 10 < kept < 1_500
    assert all(len(values) == kept for values in thinned.values())
    assert thinned["next_observations"].shape == (kept, 2)


@pytest.mark.parametrize("name", ["torchrl_buffer", "tianshou_sac"])
def test_other_trainers(name, capsys):
    buffer = load(name)["main"](steps=200, warmup_steps=100)
    assert 100 <= len(buffer) < 200
    assert "200 transitions offered" in capsys.readouterr().out


@pytest.mark.parametrize("admission", ["fac", "none", "random"])
def test_cleanrl_script(admission):
    script = load("cleanrl_sac")
    lines = (EXAMPLES / "cleanrl_sac.py").read_text().splitlines()
    assert len(lines) < 250
    arguments = script["Args"](
        total_timesteps=120,
        num_envs=2,
        warmup_steps=40,
        learning_starts=20,
        batch_size=16,
        hidden=8,
        admission=admission,
    )
    buffer = script["main"](arguments)
    assert buffer.stats.offered == 120
    assert (len(buffer) == 120) == (admission == "none")
    stored = buffer.transitions()
    # InvertedPendulum ends when the pole leans by more than 0.2: the true last observation.
    over = stored.terminated
    assert over.any()
    assert (abs(stored.next_observations[over, 1]) > 0.2).all()
