"""Rounds of steps and updates are counted as Stable-Baselines3 counts them."""

from __future__ import annotations

import numpy as np
import pytest

from frugalrl.agents.agent import Agent
from frugalrl.training import train

QUIET = {"eval_every": 0, "final_episodes": 0}


@pytest.fixture
def calls(monkeypatch):
    """Record what the agent is asked for: 'random', 'act', 'round' or a number of updates."""
    seen = []

    def record(name, word):
        original = getattr(Agent, name)

        def call(self, *args, **kwargs):
            seen.append(word(*args))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(Agent, name, call)

    record("act_random", lambda *args: "random")
    record("act", lambda *args: "act")
    record("rollout_started", lambda *args: "round")
    record("update", lambda batch, progress: len(batch.rewards))
    return seen


def test_one_update_a_step_after_learning_starts(tiny, calls):
    train(tiny(steps=63, learning_starts=60, **QUIET))
    # Stable-Baselines3 updates once more than `learning_starts` steps were taken.
    assert calls[:120] == ["round", "random"] * 60
    assert calls[120:] == ["round", "act", 1] * 3


def test_rounds_of_several_steps_and_environments(tiny, calls):
    result = train(
        tiny(steps=96, learning_starts=60, envs=3, train_freq=4, gradient_steps=-1, **QUIET)
    )
    # A round is 4 steps of 3 environments; the fifth ends at 60, which is not more than 60.
    assert calls[:25] == ["round", *["random"] * 4] * 5
    assert calls[25:] == ["round", *["act"] * 4, 12] * 3
    assert result.updates == 36
    assert result.buffer.stats.offered == 96


def test_the_last_round_is_cut_at_the_last_step(tiny, calls):
    result = train(tiny(steps=70, learning_starts=0, train_freq=32, gradient_steps=5, **QUIET))
    assert result.env_steps == 70
    assert [c for c in calls if isinstance(c, int)] == [5, 5, 5]
    assert calls.count("act") == 70
    assert calls.count("random") == 0


def test_the_remaining_fraction_follows_steps_not_what_is_stored(tiny, monkeypatch):
    seen = []
    update = Agent.update
    monkeypatch.setattr(
        Agent,
        "update",
        lambda self, batch, progress: (seen.append(progress), update(self, batch, progress))[1],
    )
    result = train(
        tiny(steps=100, learning_starts=90, admission="random", random_rate=0.3, **QUIET)
    )
    np.testing.assert_allclose(seen, 1 - np.arange(91, 101) / 100)
    assert len(result.buffer) < 60


def test_prioritized_sampling_hears_of_errors(tiny, monkeypatch):
    from frugalrl.replay.buffer import ReplayBuffer

    heard = []
    feedback = ReplayBuffer.feedback
    monkeypatch.setattr(
        ReplayBuffer,
        "feedback",
        lambda self, slots, errors: (heard.append(errors), feedback(self, slots, errors))[1],
    )
    train(tiny(steps=65, sampler="prioritized", **QUIET))
    assert len(heard) == 5
    assert all(np.shape(errors) == (1, 16) for errors in heard)
    assert all(np.all(np.asarray(errors) >= 0) for errors in heard)
    result = train(tiny(steps=65, sampler="prioritized", **QUIET))
    assert result.buffer.sampler.anneal_steps == 65
