"""The frugal buffers under Tianshou's collector and algorithms."""

from __future__ import annotations

import runpy
import tracemalloc
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from tianshou.algorithm.algorithm_base import Algorithm, RandomActionPolicy
from tianshou.data import (
    Batch,
    Collector,
    ReplayBuffer,
    VectorReplayBuffer,
)
from tianshou.data.collector import EpisodeRolloutHookMCReturn
from tianshou.env import DummyVectorEnv
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

import frugalrl
from frugalrl.adapters.tianshou import FrugalReplayBuffer, FrugalVectorReplayBuffer

EXAMPLE = Path(__file__).parents[2] / "examples" / "tianshou_sac.py"
FILTERS = {
    "all": {"admission": frugalrl.AdmitAll()},
    "random": {"admission": frugalrl.RandomAdmit(0.3, seed=1)},
    "replace": {"warmup_steps": 30, "bins": 4},
    "discard": {"warmup_steps": 30, "bins": 4, "on_equivalent": "discard"},
    "filtered warm-up": {"warmup_steps": 30, "bins": 4, "warmup": "filter"},
}


class Countdown(gymnasium.Env):
    """Episodes of changing length, ended or cut off in turn; few distinct transitions."""

    observation_space = Box(-1.0, 30.0, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, offset=0):
        self._episode = offset

    def reset(self, *, seed=None, options=None):
        self._episode += 1
        self._left = 3 + 5 * self._episode % 11
        return self._observe(), {}

    def _observe(self):
        return np.array([self._left, self._episode % 2], np.float64)

    def step(self, action):
        self._left -= 1
        over = self._left == 0
        cut = bool(over and self._episode % 2)
        return self._observe(), float(self._left % 3), over and not cut, cut, {"left": self._left}


def make(environments, size=200, **arguments):
    if environments == 1:
        return FrugalReplayBuffer(size, **arguments)
    return FrugalVectorReplayBuffer(size, environments, **arguments)


def make_collector(buffer, environments, env=Countdown, **settings):
    envs = DummyVectorEnv([lambda i=i: env(i) for i in range(environments)])
    torch.manual_seed(0)
    collector = Collector(RandomActionPolicy(envs.action_space[0]), envs, buffer, **settings)
    collector.reset()
    return collector


def plain(environments, size=200):
    if environments == 1:
        return ReplayBuffer(size)
    return VectorReplayBuffer(size, environments)


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("amount", [{"n_step": 75}, {"n_episode": 9}])
def test_episode_statistics_are_the_plain_buffers(environments, name, amount):
    results = []
    for buffer in (plain(environments), make(environments, **FILTERS[name])):
        collector = make_collector(buffer, environments, raise_on_nan_in_buffer=True)
        results.append([collector.collect(**amount) for _ in range(2)])
    for expected, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got.lens, expected.lens)
        np.testing.assert_array_equal(got.returns, expected.returns)
        assert got.n_collected_episodes == expected.n_collected_episodes > 0
        assert got.n_collected_steps == expected.n_collected_steps
    stats = buffer.stats
    assert stats.offered == collector.collect_step
    assert len(buffer) == stats.stored - stats.evicted
    if name != "all":
        assert len(buffer) < stats.offered


@pytest.mark.parametrize(
    ("name", "eviction"), [*((name, "oldest") for name in FILTERS), ("all", "random")]
)
def test_stores_what_the_core_buffer_stores(name, eviction):
    space = Countdown.observation_space
    frugal = make(1, size=40, observation_space=space, eviction=eviction, **FILTERS[name])
    admission = FILTERS[name].get("admission")
    core = frugalrl.ReplayBuffer(
        40,
        observation_space=space,
        action_space=Countdown.action_space,
        eviction=eviction,
        admission=type(admission).from_state_dict(admission.state_dict())
        if admission
        else frugalrl.FrugalFilter(**FILTERS[name]),
    )
    reference = plain(1, 500)
    make_collector(reference, 1).collect(n_step=300)
    make_collector(frugal, 1).collect(n_step=300)
    for row in range(300):
        step = reference[row]
        core.add(step.obs, step.act, step.rew, step.obs_next, step.terminated, step.truncated)
    everything, stored = frugal[:], core.transitions()
    assert frugal.stats == core.stats
    np.testing.assert_array_equal(everything.obs, stored.observations)
    np.testing.assert_array_equal(everything.obs_next, stored.next_observations)
    np.testing.assert_array_equal(everything.rew, stored.rewards)
    np.testing.assert_array_equal(everything.terminated, stored.terminated)
    np.testing.assert_array_equal(everything.truncated, stored.truncated)
    np.testing.assert_array_equal(everything.info.left, stored.next_observations[:, 0])


def test_admit_all_draws_as_the_plain_buffer():
    buffers = [plain(1, 60), make(1, 60, **FILTERS["all"])]
    for buffer in buffers:
        make_collector(buffer, 1).collect(n_step=100)
    for size in (16, None, 5):
        ours, theirs = (buffer.sample(size) for buffer in buffers)
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_array_equal(ours[0].obs, theirs[0].obs)
    np.testing.assert_array_equal(buffers[0].sample_indices(0), buffers[1].sample_indices(0))
    assert len(buffers[1].sample_indices(-1)) == 0


class SaysMore(Countdown):
    """Says more as the episode goes on, as Gymnasium's RecordEpisodeStatistics does at its end."""

    def step(self, action):
        *step, over, cut, info = super().step(action)
        info = {"last": {"left": self._left}} if over or cut else info if self._left % 2 else {}
        return *step, over, cut, info


@pytest.mark.parametrize("n_step", [1, 3])
def test_information_may_change_its_keys(n_step):
    buffers = plain(2), make(2, n_step=n_step, **FILTERS["all"])
    for buffer in buffers:
        result = make_collector(buffer, 2, env=SaysMore).collect(n_episode=6)
        assert len(result.lens) == 6
    theirs, ours = (buffer[:] for buffer in buffers)
    assert set(ours.info.get_keys()) == set(theirs.info.get_keys())
    if n_step == 1:
        for batch in (theirs, ours):  # 0 where a step did not say it
            at_end = batch.terminated | batch.truncated
            np.testing.assert_array_equal(batch.info.left % 2, batch.info.left > 0)
            np.testing.assert_array_equal(batch.info.last.left[at_end], batch.obs_next[at_end, 0])
        assert sorted(ours.info.left) == sorted(theirs.info.left)


@pytest.mark.parametrize("environments", [1, 3])
def test_hooks_see_whole_episodes_and_write_to_stored_steps(environments):
    buffer = make(environments, **FILTERS["replace"])
    hook = EpisodeRolloutHookMCReturn(gamma=1.0)
    collector = make_collector(buffer, environments, on_episode_done_hook=hook)
    result = collector.collect(n_episode=30)
    stored = buffer[:]
    written = ~np.isnan(stored.full_episode_mc_return)
    assert written.sum() > 10
    assert set(stored.full_episode_mc_return[written]) <= set(result.returns.tolist())
    # The reward still to come from a state is known: the sum of what counts down from there.
    left = stored.obs[:, 0]
    to_come = np.array([sum(n % 3 for n in range(int(n))) for n in left])
    np.testing.assert_array_equal(stored.mc_return_to_go[written], to_come[written])


def test_single_transitions_without_buffer_ids():
    buffer = make(1, **FILTERS["discard"])
    for step in range(5):
        slot, reward, length, start = buffer.add(
            Batch(
                obs=np.array([1.0, step]),
                act=np.array([0.0]),
                rew=1.0,
                terminated=step == 4,
                truncated=False,
                obs_next=np.array([1.0, step + 1]),
                info={},
            )
        )
        assert slot.tolist() == [step]
    assert (reward.tolist(), length.tolist()) == ([5.0], [5])
    assert len(buffer[buffer.get_buffer_indices(int(start[0]), 0)]) == 5


def test_a_single_step_is_stored_as_in_the_plain_buffer():
    buffers = ReplayBuffer(10), FrugalReplayBuffer(10, admission=frugalrl.AdmitAll())
    observation = np.zeros(2)
    for step, name in enumerate(["a", "longer", "b"]):
        observation += 1  # in place, as some environments do
        for buffer in buffers:
            given = Batch(
                obs=observation,
                act=step,
                rew=0.5 * step,
                terminated=step == 1,
                truncated=False,
                obs_next=observation,
                info={"name": name, "inner": {"value": step}, "mask": torch.ones(2)},
            )
            buffer.add(given)
    theirs, ours = (buffer[np.arange(3)] for buffer in buffers)
    for key in ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next"):
        assert theirs[key].dtype == ours[key].dtype
        np.testing.assert_array_equal(theirs[key], ours[key])
    for batch in (theirs, ours):
        assert batch.info.name.tolist() == ["a", "longer", "b"]
        assert batch.info.inner.value.tolist() == [0, 1, 2]
        assert batch.info.mask.equal(torch.ones(3, 2))


@pytest.mark.parametrize("n_step", [1, 3])
def test_arrays_that_are_used_again_are_copied(n_step):
    plain = VectorReplayBuffer(20, 2)
    ours = FrugalVectorReplayBuffer(20, 2, n_step=n_step, admission=frugalrl.AdmitAll())
    rewards, observations = np.zeros(2), np.zeros((2, 3))
    for step in range(6):
        rewards[:] = observations[:] = step
        over = np.full(2, step == 5)
        given = Batch(
            obs=observations,
            act=np.zeros((2, 1)),
            rew=rewards,
            terminated=over,
            truncated=np.zeros(2, bool),
            obs_next=observations,
            info=Batch(),
        )
        returns = [buffer.add(given, buffer_ids=[0, 1])[1].tolist() for buffer in (plain, ours)]
    assert returns == [[15.0, 15.0]] * 2
    assert sorted(ours[:].obs[:, 0].tolist()) == np.repeat(range(6), 2).tolist()


def test_unfinished_episodes_are_known():
    buffer = make(2, **FILTERS["all"])
    assert buffer.unfinished_index().tolist() == []
    collector = make_collector(buffer, 2)
    collector.collect(n_step=4)
    assert buffer.unfinished_index().tolist() == [2, 3]


def test_reset_forgets_the_filter_and_keeps_running_episodes_if_asked():
    buffer = make(1, **FILTERS["replace"])
    collector = make_collector(buffer, 1)
    collector.collect(n_step=150)
    assert buffer.admission.is_fitted
    buffer.reset(keep_statistics=True)
    assert len(buffer) == 0
    assert not buffer.admission.is_fitted
    result = collector.collect(n_step=20)
    assert set(result.lens.tolist()) <= {3 + 5 * episode % 11 for episode in range(20)}


def test_refuses_nan_but_counts_the_step():
    buffer = make(1, **FILTERS["all"])
    row = {"act": [0.0], "rew": 1.0, "terminated": False, "truncated": False, "info": {}}
    good = Batch(obs=np.zeros(2), obs_next=np.ones(2), **row)
    bad = Batch(obs=np.zeros(2), obs_next=np.array([0.0, np.nan]), **{**row, "terminated": True})
    buffer.add(good)
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        slot, _, length, _ = buffer.add(bad)
    assert (slot.tolist(), length.tolist()) == ([-1], [2])
    assert buffer.stats.rejected_nonfinite == 1
    assert not buffer.hasnull()


@pytest.mark.parametrize(("environments", "eviction"), [(1, "oldest"), (2, "random")])
def test_saved_buffers_go_on_identically(environments, eviction, tmp_path):
    one = make(environments, size=20, eviction=eviction, **FILTERS["replace"])
    make_collector(one, environments).collect(n_step=60)
    one.save_hdf5(str(tmp_path / "buffer.hdf5"))
    other = type(one).load_hdf5(str(tmp_path / "buffer.hdf5"))
    assert other.stats == one.stats
    assert other.eviction == eviction
    for buffer in (one, other):
        collector = Collector(
            RandomActionPolicy(Countdown.action_space),
            DummyVectorEnv([lambda i=i: Countdown(i) for i in range(environments)]),
            buffer,
        )
        torch.manual_seed(1)
        collector.reset(reset_buffer=False)
        collector.collect(n_step=60)
    assert one.stats == other.stats
    assert one.stats.replaced > 0
    assert one.stats.evicted > 0
    np.testing.assert_array_equal(one[:].obs, other[:].obs)
    np.testing.assert_array_equal(one.sample(20)[1], other.sample(20)[1])


def test_what_needs_neighbours_is_refused():
    for option in ({"stack_num": 2}, {"ignore_obs_next": True}, {"save_only_last_obs": True}):
        with pytest.raises(ValueError, match="needs the neighbours"):
            make(1, **option)
    buffer = make(1, **FILTERS["all"])
    make_collector(buffer, 1).collect(n_step=10)
    for method in (buffer.next, buffer.prev):
        with pytest.raises(NotImplementedError, match="needs the neighbours"):
            method(np.array([1]))
    for use in (lambda: buffer.update(plain(1)), lambda: buffer.set_batch(Batch())):
        with pytest.raises(NotImplementedError, match="filter decides"):
            use()
    with pytest.raises(NotImplementedError, match="refused when they are added"):
        buffer.dropnull()


def test_bad_use_is_named():
    with pytest.raises(TypeError, match="argument='bin' is unknown"):
        make(1, bin=3)
    with pytest.raises(ValueError, match="eviction='newest' is unknown"):
        make(2, eviction="newest")
    buffer = make(1, longest_episode=5, **FILTERS["all"])
    with pytest.raises(ValueError, match="has no act, obs_next"):
        buffer.add(Batch(obs=np.zeros(2), rew=0.0, terminated=False, truncated=False))
    with pytest.raises(ValueError, match="longest_episode=5"):
        make_collector(buffer, 1).collect(n_episode=5)
    row = {"obs": np.zeros((1, 2)), "act": np.zeros((1, 1)), "obs_next": np.zeros((1, 2))}
    ends = {"terminated": np.zeros(1, bool), "truncated": np.zeros(1, bool)}
    with pytest.raises(ValueError, match="one reward for each"):
        buffer.add(Batch(rew=np.zeros((1, 2)), **row, **ends), buffer_ids=[0])


def test_dict_observations_are_joined_for_the_filter():
    buffer = make(2, warmup_steps=6, bins=2)
    obs = {"a": np.array([[1.0], [2.0]]), "b": np.array([[3, 4], [5, 6]])}
    for step in range(5):
        buffer.add(
            Batch(
                obs=Batch(obs),
                obs_next=Batch(obs),
                act=np.zeros((2, 1)),
                rew=np.array([step, 0.0]),
                terminated=np.zeros(2, bool),
                truncated=np.zeros(2, bool),
            )
        )
    assert buffer.admission.is_fitted
    assert set(buffer.admission.important_dimensions_) <= {0, 1, 2}
    assert buffer.sample(4)[0].obs.b.shape == (4, 2)


def targets(buffer, indices, n_step, gamma=0.9):
    """Tianshou's own targets, with a made-up value of the state that a transition arrives at."""

    def value(buffer, indices):
        return torch.as_tensor(buffer[indices].obs_next @ np.array([1.0, 10.0]))

    batch = Algorithm.compute_nstep_return(
        buffer[indices], buffer, indices, value, gamma=gamma, n_step=n_step
    )
    return batch.returns.flatten().tolist()


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("n_step", [2, 3, 5])
def test_returns_over_n_steps_are_tianshous(environments, n_step):
    frugal = make(environments, 900, n_step=n_step, gamma=0.9, **FILTERS["all"])
    reference = plain(environments, 900)
    for buffer in (frugal, reference):
        make_collector(buffer, environments).collect(n_step=120)
    ours = sorted(targets(frugal, frugal.sample_indices(0), n_step))
    indices = reference.sample_indices(0)
    running = reference.unfinished_index()
    for _ in range(n_step - 2):  # what waits for its last steps is not stored yet
        running = np.union1d(running, reference.prev(running))
    complete = np.setdiff1d(indices, running)
    expected = sorted(targets(reference, complete, n_step))
    np.testing.assert_allclose(ours, expected)
    assert frugal.stats.offered == len(ours)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_decide_about_returns_over_n_steps(name):
    buffer = make(2, 60, n_step=3, gamma=0.9, **FILTERS[name])
    reference = plain(2, 1_000)
    for each in (buffer, reference):
        make_collector(each, 2).collect(n_step=300)
    possible = set(np.round(targets(reference, reference.sample_indices(0), 3), 9))
    buffer.sample_indices(1)
    stored = np.round(targets(buffer, buffer.sample_indices(0), 3), 9)
    assert len(stored) == len(buffer) > 0
    assert set(stored) <= possible
    if name != "all":
        assert len(buffer) < 60 or buffer.stats.replaced + buffer.stats.dropped > 0
    batch, _ = buffer.sample(20)
    np.testing.assert_array_equal(batch.done, batch.terminated | batch.truncated)


def test_a_batch_before_the_first_return_over_n_steps():
    buffer = make(1, n_step=5, **FILTERS["all"])
    make_collector(buffer, 1).collect(n_step=2)
    assert len(buffer) == 0
    assert buffer.sample(4)[0].obs.shape == (4, 2)
    assert len(buffer) == 2


def test_memory_grows_with_need():
    tracemalloc.start()
    buffer = make(2, 10_000_000, **FILTERS["replace"])
    make_collector(buffer, 2).collect(n_step=300)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert buffer.nbytes < taken < 4_000_000
    many = make(2, 100_000, **FILTERS["all"])
    collector = make_collector(many, 2)
    collector.collect(n_step=600)
    small, held = many.nbytes, many[:].obs.copy()
    collector.collect(n_step=600)
    assert many.nbytes > small
    assert len(many) == 1_200
    np.testing.assert_array_equal(many[:].obs[:600], held)


def test_there_are_no_buffers_for_each_environment():
    buffer = make(2, **FILTERS["all"])
    assert len(buffer.buffers) == 2
    with pytest.raises(NotImplementedError, match="share one pool"):
        buffer.buffers[0]


@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_learns(n_step):
    make_sac = runpy.run_path(str(EXAMPLE))["make_sac"]
    buffer = make(2, n_step=n_step, **FILTERS["discard"])
    make_collector(buffer, 2).collect(n_step=100)
    algorithm = make_sac(Countdown(), hidden=(8,), n_step_return_horizon=n_step)
    before = [tensor.clone() for tensor in algorithm.parameters()]
    with policy_within_training_step(algorithm.policy), torch_train_mode(algorithm):
        for _ in range(3):
            algorithm.update(sample_size=16, buffer=buffer)
    pairs = zip(before, algorithm.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)


@pytest.mark.parametrize(
    ("held", "asked", "error", "message"),
    [
        (1, 3, NotImplementedError, "make the buffer with n_step="),
        (3, 1, ValueError, "use n_step_return_horizon=3"),
        (3, 5, ValueError, "use n_step_return_horizon=3"),
    ],
)
def test_another_horizon_than_the_buffers_is_refused(held, asked, error, message):
    make_sac = runpy.run_path(str(EXAMPLE))["make_sac"]
    buffer = make(2, n_step=held, **FILTERS["all"])
    make_collector(buffer, 2).collect(n_step=60)
    algorithm = make_sac(Countdown(), hidden=(8,), n_step_return_horizon=asked)
    with (
        policy_within_training_step(algorithm.policy),
        torch_train_mode(algorithm),
        pytest.raises(error, match=message),
    ):
        algorithm.update(sample_size=16, buffer=buffer)
