"""The buffer for PyTorch scripts against one written as CleanRL's is."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import frugalrl
from frugalrl.adapters.torch import ReplayBuffer
from reference.cleanrl_buffer import RowBuffer

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)


def steps(count, environments, seed=0, discrete=False):
    """Steps as a script of CleanRL's adds them."""
    generator = np.random.default_rng(seed)
    obs = generator.uniform(-1, 1, (environments, 3)).astype(np.float32).round(1)
    for _ in range(count):
        next_obs = generator.uniform(-1, 1, (environments, 3)).astype(np.float32).round(1)
        action = generator.uniform(-2, 2, (environments, 2)).astype(np.float32)
        if discrete:
            action = generator.integers(0, 4, environments)
        reward = generator.random(environments).round(1)
        yield obs, next_obs, action, reward, generator.random(environments) < 0.1, {}
        obs = next_obs


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("actions", [ACTIONS, spaces.Discrete(4)])
def test_admit_all_gives_what_cleanrls_buffer_gives(environments, actions):
    arguments = (60, BOX, actions, "cpu", environments)
    ours = ReplayBuffer(*arguments, handle_timeout_termination=False, admission=frugalrl.AdmitAll())
    theirs = RowBuffer(*arguments)
    for step in steps(50, environments, discrete=actions is not ACTIONS):
        ours.add(*step)
        theirs.add(*step)
        np.random.seed(5)  # noqa: NPY002
        one = ours.sample(32)
        np.random.seed(5)  # noqa: NPY002
        for mine, plain in zip(one[:5], theirs.sample(32), strict=True):
            assert mine.dtype == plain.dtype
            assert torch.equal(mine, plain)
    assert one.discounts is None
    assert ours.size() == theirs.size()


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.int16])
def test_the_largest_integers_are_kept(kind):
    limits = np.iinfo(kind)
    space = spaces.Box(limits.min, limits.max, (2,), kind)
    states = np.array([[limits.min, limits.max], [limits.max - 1, 2**24 + 1]]).astype(kind)
    for admission in (frugalrl.AdmitAll(), frugalrl.RandomAdmit(1.0)):
        buffer = ReplayBuffer(5, space, ACTIONS, "cpu", admission=admission)
        action, nothing = np.zeros((1, 2)), np.zeros(1)
        buffer.add(states[:1], states[1:], action, nothing, nothing, [{}])
        drawn = buffer.sample(1)
        kept = torch.cat([drawn.observations, drawn.next_observations]).numpy()
        if isinstance(admission, frugalrl.AdmitAll):
            assert kept.tolist() == states.tolist()
        assert np.allclose(kept.astype(float), states.astype(float), rtol=1e-6)


def test_infos_that_hold_no_limits_are_refused_at_once():
    buffer = ReplayBuffer(5, BOX, ACTIONS, "cpu")
    (step,) = steps(1, 1)
    with pytest.raises(TypeError, match="infos is one dict for all"):
        buffer.add(*step)
    assert len(buffer) == 0


@pytest.mark.parametrize("environments", [1, 3])
def test_a_filter_decides_about_a_vector_whatever_stands_beside_it(environments):
    both = spaces.Dict({"noise": BOX, "state": BOX})
    arguments = ACTIONS, "cpu", environments
    settings = {"warmup_steps": 20, "bins": 3}
    alone = ReplayBuffer(200, BOX, *arguments, False, False, **settings)
    beside = ReplayBuffer(200, both, *arguments, False, False, observation_key="state", **settings)
    noise = np.random.default_rng(1)
    for obs, next_obs, *rest in steps(90, environments):
        alone.add(obs, next_obs, *rest)
        pair = [
            {"state": state, "noise": noise.uniform(-1, 1, state.shape)}
            for state in (obs, next_obs)
        ]
        beside.add(*pair, *rest)
        assert beside.stats == alone.stats
        assert np.array_equal(beside.transitions().slots, alone.transitions().slots)
    assert alone.stats.replaced > 20


@pytest.mark.parametrize(("capacity", "eviction"), [(500, "oldest"), (60, "random")])
def test_keeps_what_the_core_keeps(capacity, eviction):
    ours = ReplayBuffer(
        capacity,
        BOX,
        ACTIONS,
        "cpu",
        2,
        handle_timeout_termination=False,
        eviction=eviction,
        warmup_steps=30,
        bins=3,
    )
    core = frugalrl.ReplayBuffer(
        capacity,
        observation_space=BOX,
        action_space=ACTIONS,
        admission=frugalrl.FrugalFilter(warmup_steps=30, bins=3),
        environments=2,
        eviction=eviction,
    )
    for obs, next_obs, action, reward, done, infos in steps(100, 2):
        ours.add(obs, next_obs, action, reward, done, infos)
        core.add(obs, action, reward, next_obs, done, np.zeros(2, np.bool_))
    assert ours.stats == core.stats
    assert ours.stats.replaced > 0
    assert ours.eviction == eviction
    assert (ours.stats.evicted > 0) == (capacity == 60)
    held = {tuple(row) for row in core.transitions().observations}
    drawn = ours.sample(400)
    assert {tuple(row.tolist()) for row in drawn.observations} <= held
    np.testing.assert_array_equal(ours.transitions().observations, core.transitions().observations)


def test_every_stored_transition_is_drawn_after_a_filtered_warmup():
    buffer = ReplayBuffer(
        200,
        BOX,
        ACTIONS,
        "cpu",
        handle_timeout_termination=False,
        warmup_steps=40,
        bins=2,
        warmup="filter",
        on_equivalent="discard",
    )
    for step in steps(60, 1):
        buffer.add(*step)
    assert buffer.stats.dropped > 10
    drawn = buffer._draw(2_000)
    assert set(drawn.tolist()) == set(buffer._replay.slots().tolist())


def test_returns_over_n_steps():
    buffer = ReplayBuffer(
        100,
        BOX,
        ACTIONS,
        "cpu",
        handle_timeout_termination=False,
        admission=frugalrl.AdmitAll(),
        n_steps=3,
        gamma=0.5,
    )
    taken = list(steps(40, 1, seed=2))
    for step in taken:
        buffer.add(*step)
    states = [tuple(step[0][0].tolist()) for step in taken]
    rewards = [float(step[3][0]) for step in taken]
    ends = [bool(step[4][0]) for step in taken]
    batch = buffer.sample(200)
    for state, reward, done, discount in zip(
        batch.observations.tolist(), batch.rewards, batch.dones, batch.discounts, strict=True
    ):
        first = states.index(tuple(state))
        last = next(i for i in range(first, 40) if ends[i] or i == first + 2)
        expected = sum(0.5 ** (i - first) * rewards[i] for i in range(first, last + 1))
        assert reward.item() == pytest.approx(expected, abs=1e-5)
        assert bool(done) == ends[last]
        assert discount.item() == pytest.approx(0.5 ** (last - first + 1))


def test_a_batch_before_the_first_n_step_return_is_known():
    buffer = ReplayBuffer(100, BOX, ACTIONS, "cpu", n_steps=5, gamma=0.5, warmup_steps=4)
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(1)
    step = next(iter(steps(1, 1)))
    buffer.add(*step[:4], np.zeros(1), [{}])
    assert buffer.sample(2).discounts.flatten().tolist() == [0.5, 0.5]
    assert buffer.pos == 1


def test_timeouts_are_read_from_one_dict_for_each_environment():
    buffer = ReplayBuffer(10, BOX, ACTIONS, "cpu", 2, admission=frugalrl.AdmitAll())
    obs, next_obs, action, reward, _, _ = next(iter(steps(1, 2)))
    done = np.ones(2, np.bool_)
    buffer.add(obs, next_obs, action, reward, done, [{"TimeLimit.truncated": True}, {}])
    assert set(buffer.sample(50).dones.flatten().tolist()) == {0.0, 1.0}
    with pytest.raises(TypeError, match="handle_timeout_termination=False"):
        buffer.add(obs, next_obs, action, reward, done, {"final_info": None})
    assert len(buffer) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bin": 3}, TypeError, "argument='bin' is unknown"),
        ({"n_envs": 0}, ValueError, "n_envs=0"),
        ({"buffer_size": 0}, ValueError, "buffer_size=0"),
        ({"dtype": "int8"}, ValueError, "dtype"),
        ({"eviction": "newest"}, ValueError, "eviction='newest' is unknown"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    given = {"buffer_size": 10, "observation_space": BOX, "action_space": ACTIONS, **arguments}
    with pytest.raises(error, match=message):
        ReplayBuffer(**given)


def test_spaces_of_several_environments_are_told_of():
    batched = spaces.Box(-1.0, 1.0, (2, *ACTIONS.shape), np.float32)
    buffer = ReplayBuffer(10, BOX, batched, "cpu", n_envs=2, handle_timeout_termination=False)
    obs, next_obs, action, reward = next(steps(1, 2))[:4]
    with pytest.raises(ValueError, match="spaces are those of one environment"):
        buffer.add(obs, next_obs, action, reward, np.zeros(2), [{}, {}])


def test_reset_repr_and_bytes():
    buffer = ReplayBuffer(50, BOX, ACTIONS, "cpu", warmup_steps=10, n_steps=2)
    for step in steps(20, 1):
        buffer.add(*step[:4], np.zeros(1), [{}])
    assert "of 50 transitions" in repr(buffer)
    assert buffer.nbytes > len(buffer) * 20
    buffer.reset()
    assert (len(buffer), buffer.pos, buffer.full) == (0, 0, False)
    assert not buffer.admission.is_fitted
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    with pytest.raises(AttributeError, match=r"transitions\(\)"):
        _ = buffer.observations


def test_needs_no_stable_baselines():
    code = (
        "import sys, frugalrl.adapters.torch\n"
        "print(sorted({'stable_baselines3', 'torchrl', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_script_in_cleanrls_manner_learns():
    """The lines of CleanRL's that touch the buffer, unchanged but for the import."""
    torch.manual_seed(0)
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 2)
    envs.action_space.seed(0)
    rb = ReplayBuffer(
        1_000,
        envs.single_observation_space,
        envs.single_action_space,
        torch.device("cpu"),
        n_envs=2,
        handle_timeout_termination=False,
        warmup_steps=60,
        bins=5,
        reward_scale=20.0,
    )
    critic = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    before = critic.weight.detach().clone()
    obs, _ = envs.reset(seed=1)
    for step in range(80):
        actions = envs.action_space.sample()
        next_obs, rewards, terminations, _, infos = envs.step(actions)
        rb.add(obs, next_obs.copy(), actions, rewards, terminations, infos)
        obs = next_obs
        if step > 40:
            data = rb.sample(16)
            following = critic(torch.cat([data.next_observations, data.actions], 1)).detach()
            target = data.rewards.flatten() + (1 - data.dones.flatten()) * 0.9 * following.view(-1)
            value = critic(torch.cat([data.observations, data.actions], 1)).view(-1)
            loss = torch.nn.functional.mse_loss(value, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert rb.stats.offered == 160
    assert rb.stats.replaced > 0
    assert not torch.equal(before, critic.weight)
