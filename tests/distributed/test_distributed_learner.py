"""The learner's loop with actors of this process: who is asked, what is admitted, how often."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from inline_ray import InlineRay

from frugalrl.distributed import fleet as fleets
from frugalrl.distributed import training
from frugalrl.distributed.fleet import ActorSettings, Fleet
from frugalrl.training import runner
from frugalrl.training.errors import BrokenEnvironmentError, ConfigError, StorageError


def finish(loop, target=None) -> None:
    loop.advance(loop.config.steps if target is None else target, lambda: False)


def test_all_steps_are_taken_and_learned_from(make_loop, admitted):
    loop = make_loop(steps=233)
    before = loop.agent.actor_parameters()
    finish(loop)
    assert loop.finished
    assert loop.env_steps == 233 == loop.buffer.stats.offered
    assert loop.updates == 233 - 60
    assert loop.measures.duplicates == loop.measures.lost == 0
    assert len(admitted) == len(set(admitted)) == loop.measures.fragments == 12
    assert np.isfinite(loop.agent.actor_parameters()).all()
    assert not np.array_equal(before, loop.agent.actor_parameters())
    assert {actor for actor, _ in admitted} == {0, 1}
    assert loop.measures.publications > 1


@pytest.mark.parametrize(
    ("changes", "updates", "ratio"),
    [
        ({"train_freq": 1, "gradient_steps": 1}, 180, 1.0),
        ({"train_freq": 32, "gradient_steps": 8}, 5 * 8, 0.25),
        ({"train_freq": 8, "gradient_steps": -1}, 180, 1.0),
        ({"train_freq": 4, "gradient_steps": 2, "envs": 3}, 15 * 2, 1 / 6),
        ({"train_freq": "episode", "gradient_steps": -1}, 180, 1.0),
    ],
)
def test_updates_are_held_in_proportion_to_steps(make_loop, changes, updates, ratio):
    loop = make_loop(**changes)
    finish(loop)
    assert loop.updates == updates
    measured = loop.measured()
    assert measured["update_ratio_configured"] == ratio
    assert measured["update_ratio"] == pytest.approx(ratio, abs=0.05)


def test_updates_may_be_so_many_for_an_episode(make_loop):
    loop = make_loop(train_freq="episode", gradient_steps=3, learning_starts=20)
    finish(loop)
    assert loop.updates > 0
    assert loop.updates % 3 == 0
    assert loop.measured()["update_ratio_configured"] is None


def test_the_random_start_is_random_and_the_rest_is_not(make_loop, monkeypatch):
    asked = []
    ask = Fleet.ask
    monkeypatch.setattr(
        Fleet, "ask", lambda self, a, *rest, **how: asked.append(how) or ask(self, a, *rest, **how)
    )
    finish(make_loop(learning_starts=60))
    assert [how["random"] for how in asked] == [True] * 3 + [False] * 9


def test_no_more_is_under_way_than_allowed(make_loop, monkeypatch):
    most = []
    take = Fleet.take

    def look(self, seconds):
        most.append(max(len(self.under_way(actor)) for actor in range(2)))
        return take(self, seconds)

    monkeypatch.setattr(Fleet, "take", look)
    finish(make_loop(in_flight=3))
    assert max(most) == 3


def test_a_slow_actor_is_not_waited_for(make_loop, admitted):
    ray = InlineRay(slow=(0,))
    loop = make_loop(ray, steps=400, worker_timeout=1000.0)
    loop.advance(300, lambda: False)
    assert {actor for actor, _ in admitted} == {1}
    assert loop.measures.idle_seconds < 10.0
    # What the slow one was asked for counts as taken: nobody else does it.
    assert loop._fleet.waiting_steps >= 40


def test_a_hanging_actor_is_killed_and_asked_again(make_loop, admitted, monkeypatch):
    monkeypatch.setattr(fleets, "START_SECONDS", 0.01)
    ray = InlineRay(slow=(0,))
    loop = make_loop(ray, worker_timeout=0.01)
    finish(loop)
    assert "actor 0 has not answered for 0.02 s and is killed" in loop.told
    assert [no_restart for _, no_restart in ray.killed] == [False]
    assert loop.measures.lost == loop.measures.restarts == 1
    assert sorted(admitted)[:2] == [(0, 0), (0, 1)]
    assert loop.env_steps == 240 == loop.buffer.stats.offered


def test_a_lost_fragment_is_counted_and_asked_for_again(make_loop, admitted):
    loop = make_loop(InlineRay(fails=(0, 5)))
    finish(loop)
    assert loop.measures.lost == loop.measures.restarts == 2
    assert len(admitted) == len(set(admitted)) == 12
    assert (0, 0) in admitted
    assert loop.env_steps == 240 == loop.buffer.stats.offered


def test_an_actor_that_only_dies_ends_the_run(make_loop):
    loop = make_loop(InlineRay(fails=tuple(range(100))), in_flight=1)
    with pytest.raises(BrokenEnvironmentError, match=r"actor \d died 5 times in a row.*actor died"):
        finish(loop)


def test_an_error_of_the_environment_is_told(make_loop):
    loop = make_loop(env="FrugalFaulty-v0", env_kwargs={"fault": "raise", "at": 30})
    with pytest.raises(BrokenEnvironmentError, match=r"actor \d raised(.|\n)*wheels came off"):
        finish(loop)


def test_nonsense_from_the_environment_is_refused_and_then_too_much(make_loop):
    with pytest.warns(RuntimeWarning, match="NaN"):
        finish(make_loop(env="FrugalFaulty-v0", env_kwargs={"fault": "nan", "at": 90}))
    loop = make_loop(env="FrugalFaulty-v0", env_kwargs={"fault": "nan", "at": 5, "every": 2})
    with (
        pytest.warns(RuntimeWarning, match="NaN"),
        pytest.raises(BrokenEnvironmentError, match="gave NaN or infinity"),
    ):
        finish(loop)


def test_a_fragment_that_comes_twice_is_admitted_once(make_loop):
    loop = make_loop()
    finish(loop, 20)
    loop._ask([0])
    fragment = loop._fleet.take(1.0)
    loop._admit(fragment)
    steps, offered, updates = loop.env_steps, loop.buffer.stats.offered, loop.updates
    loop._admit(fragment)
    assert (steps, offered, updates) == (loop.env_steps, loop.buffer.stats.offered, loop.updates)
    assert loop.measures.duplicates == 1


def test_a_saved_learner_goes_on_with_its_numbers(make_loop, admitted):
    loop = make_loop()
    finish(loop, 120)
    state, before = loop.state_dict(), list(admitted)
    assert any(state["ledger"]["open"])
    finish(loop, 200)  # a death throes' work that is not in the checkpoint
    admitted[:] = before
    again = make_loop(state=state)
    assert again.env_steps == 120 == again.buffer.stats.offered
    assert again.updates == 60
    finish(again)
    assert again.env_steps == 240 == again.buffer.stats.offered
    assert again.updates == 180
    assert len(admitted) == len(set(admitted))
    # None that was under way is passed over.
    for actor in range(2):
        numbers = sorted(number for owner, number in admitted if owner == actor)
        assert numbers == list(range(len(numbers)))


def test_weights_are_published_every_so_many_updates(make_loop):
    loop = make_loop(publish_updates=50)
    finish(loop)
    assert 2 <= loop.measures.publications <= 1 + 180 // 50
    size = loop.agent.actor_parameters().nbytes
    assert loop.measures.bytes_published == loop.measures.publications * size
    measured = loop.measured()
    assert 0 < measured["updates_behind_mean"] < 180
    assert measured["bytes_per_step"] > 8


def test_more_actors_than_processors_are_refused():
    with pytest.raises(ConfigError, match=r"actors=5 need a processor each.*has 4.*--actors 4"):
        fleets.check_room(InlineRay(cpus=4), 5)


def test_actors_that_do_not_start_are_told_of(make_loop, monkeypatch):
    monkeypatch.setattr(fleets, "START_SECONDS", 0.01)
    monkeypatch.setattr(
        InlineRay, "wait", lambda self, refs, num_returns, timeout: (refs[:1], refs[1:])
    )
    ray = InlineRay()
    with pytest.raises(ConfigError, match=r"actors=2, but only 1 started within 0.01 s"):
        make_loop(ray)
    assert len(ray.killed) == 2


def test_measures_that_cannot_be_written_stop_the_run(tiny, tmp_path, monkeypatch):
    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "write_json", full)
    sessions = partial(training.LearnerSession, InlineRay(), ActorSettings(2))
    with pytest.raises(StorageError, match=r"is the disk full.*step-0+1\d\d.*then resume"):
        runner.train(tiny(out=tmp_path / "run"), make_session=sessions, actors={})
