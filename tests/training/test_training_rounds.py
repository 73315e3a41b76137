"""Rounds of steps and updates are counted as Stable-Baselines3 counts them."""

from __future__ import annotations

import dataclasses

import gymnasium
import numpy as np
import pytest
from training_tiny import take_slots

import frugalrl
from frugalrl.agents.agent import Agent
from frugalrl.training import train
from frugalrl.training.loop import TrainingLoop
from reference.n_step import Step, n_step_transitions

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
    assert [c for c in calls if isinstance(c, int)] == [5, 5, 1]
    assert calls.count("act") == 70
    assert calls.count("random") == 0


@pytest.mark.parametrize(("gradient_steps", "last"), [(32, 6), (-1, 6), (64, 12)])
def test_a_round_cut_short_has_as_many_updates_for_a_step_as_the_others(
    gradient_steps, last, tiny, calls
):
    train(tiny(steps=70, learning_starts=0, train_freq=32, gradient_steps=gradient_steps, **QUIET))
    assert [c for c in calls if isinstance(c, int)][-1] == last


def test_a_round_may_be_an_episode(tiny, calls):
    # Episodes of 25 steps: the third ends at 75, the first after learning starts.
    result = train(
        tiny(steps=110, train_freq="episode", gradient_steps=-1, env_kwargs={"push": 0.01}, **QUIET)
    )
    updates = [16, 8, 1]
    assert calls[:52] == ["round", *["random"] * 25] * 2
    assert calls[52:81] == ["round", *["random"] * 10, *["act"] * 15, *updates]
    assert calls[81:110] == ["round", *["act"] * 25, *updates]
    assert calls[110:] == ["round", *["act"] * 10, 8, 2]
    assert result.updates == 60


def test_an_episodes_updates_can_be_a_fixed_number(tiny, calls):
    train(tiny(steps=110, train_freq="episode", gradient_steps=3, **QUIET))
    rounds = " ".join(map(str, calls)).split("round")[1:]
    assert rounds[-1].count("2 1") == 1
    assert sum(text.count("2 1") for text in rounds) == sum("act" in text for text in rounds)


def test_updates_follow_episodes_as_in_stable_baselines(tiny, monkeypatch):
    import stable_baselines3

    settings = {"learning_starts": 60, "gradient_steps": -1, "batch_size": 16}
    theirs, ours = [], []
    model = stable_baselines3.TD3(
        *("MlpPolicy", gymnasium.make("Pendulum-v1", max_episode_steps=25)),
        **settings,
        train_freq=(1, "episode"),
        policy_kwargs={"net_arch": [8, 8]},
    )
    learn = model.train
    model.train = lambda gradient_steps, batch_size: (
        theirs.append((model.num_timesteps, gradient_steps)) or learn(gradient_steps, batch_size)
    )
    model.learn(100)
    updates = TrainingLoop._updates_after
    monkeypatch.setattr(
        TrainingLoop,
        "_updates_after",
        lambda self, taken: ours.append((self.env_steps, taken)) or updates(self, taken),
    )
    where = {"env": "Pendulum-v1", "preset": "none", "max_episode_steps": 25}
    train(tiny(algo="td3", steps=100, train_freq="episode", **where, **settings, **QUIET))
    assert ours == theirs == [(75, 25), (100, 25)]


def test_steps_are_exact_with_several_environments(tiny, calls):
    result = train(tiny(steps=100, envs=3, train_freq=4, gradient_steps=-1, **QUIET))
    assert result.env_steps == result.buffer.stats.offered == 100
    assert [c for c in calls if isinstance(c, int)] == [12, 12, 12, 4]


def test_an_empty_buffer_is_not_drawn_from(tiny):
    class Nothing(frugalrl.AdmitAll):
        """Admits nothing in the first 90 steps."""

        name = "nothing"

        def __init__(self):
            self.seen = 0

        def offer(self, observations, rewards, free):
            wanted = self.seen + np.arange(len(rewards)) >= 90
            self.seen += len(rewards)
            return take_slots(wanted, free)

    result = train(tiny(steps=100, admission=Nothing(), **QUIET))
    assert result.updates == 10
    assert len(result.buffer) == 10


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


def test_returns_over_several_steps_are_the_slow_twins(tiny):
    config = tiny(gamma=0.9, steps=100, learning_starts=90, eval_every=0, final_episodes=0)
    single, joined = (
        train(dataclasses.replace(config, n_step=n)).buffer.transitions() for n in (1, 3)
    )
    columns = (
        *(map(tuple, single.observations), single.actions[:, 0].tolist(), single.rewards.tolist()),
        *(map(tuple, single.next_observations), single.terminated, single.truncated),
    )
    # Until learning starts both take the same random steps.
    steps = [Step(*values) for values in zip(*columns, strict=True)][:90]
    expected = n_step_transitions(steps, 3, 0.9)
    assert len(expected) > 80
    assert {round(values[-1], 3) for values in expected} == {0.729, 0.81, 0.9}
    found = (
        *(joined.observations, joined.actions[:, 0], joined.rewards),
        *(joined.next_observations, joined.terminated, joined.truncated, joined.extra["discount"]),
    )
    for ours, theirs in zip(found, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(ours[: len(expected)], theirs, rtol=1e-5)
