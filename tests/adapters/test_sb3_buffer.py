"""What FrugalReplayBuffer stores, draws, saves and refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_models import build, frugal_model, make_buffer
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback

import frugalrl
from frugalrl.adapters.sb3 import FrugalReplayBuffer

# --- what is stored and what is drawn ---------------------------------------------------------


def offer(buffer, generator, infos=None, done=None):
    """Offer one random transition an environment; return what was offered."""
    environments = buffer.n_envs
    shape = (environments, *buffer.observation_space.shape)
    obs, next_obs = generator.random((2, *shape)).round(1)
    action = generator.random((environments, 1)).astype(np.float32)
    reward = generator.random(environments).round(1)
    done = np.zeros(environments) if done is None else np.array(done, float)
    buffer.add(obs, next_obs, action, reward, done, infos or [{}] * environments)
    return obs, next_obs, action, reward


def test_each_environment_is_admitted_on_its_own():
    buffer = make_buffer(3, warmup_steps=10, bins=3)
    direct = frugalrl.ReplayBuffer(
        300,
        observation_space=buffer.observation_space,
        action_space=buffer.action_space,
        admission=frugalrl.FrugalFilter(warmup_steps=10, bins=3),
    )
    generator = np.random.default_rng(0)
    for _ in range(60):
        obs, next_obs, action, reward = offer(buffer, generator)
        never = np.zeros(3, np.bool_)
        direct.add(obs, action, reward, next_obs, never, never)
    assert buffer.stats == direct.stats
    assert buffer.stats.replaced > 0
    assert len(buffer) % 3  # not whole rows of environments
    for ours, theirs in zip(buffer.transitions()[:6], direct.transitions()[:6], strict=True):
        assert np.array_equal(ours, theirs)
    assert np.isin(buffer._draw(500), np.arange(len(buffer))).all()


def test_capacity_counts_transitions_of_all_environments():
    buffer = make_buffer(4, size=22, admission=frugalrl.AdmitAll())
    plain = ReplayBuffer(22, buffer.observation_space, buffer.action_space, n_envs=4)
    generator = np.random.default_rng(0)
    for _ in range(9):
        offer(buffer, generator)
    assert buffer.full
    assert buffer.size() == 4 * plain.buffer_size == 20


def test_timeouts_do_not_mask_the_bootstrap():
    info = [{"TimeLimit.truncated": True}, {"TimeLimit.truncated": False}]
    for handled, expected in ((True, {0.0, 1.0}), (False, {1.0})):
        buffer = make_buffer(2, warmup_steps=50, handle_timeout_termination=handled)
        offer(buffer, np.random.default_rng(0), info, done=[True, True])
        batch = buffer.sample(40)
        assert batch.dones.shape == (40, 1)
        assert set(batch.dones.flatten().tolist()) == expected
        assert buffer.transitions().truncated.tolist() == [handled, False]


def test_samples_are_normalised_and_storage_is_not(pendulum):
    model = build(
        SAC,
        pendulum,
        2,
        normalize=True,
        buffer_size=500,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20},
    )
    model.learn(100)
    buffer, env = model.replay_buffer, model.get_vec_normalize_env()
    stored = buffer.transitions()
    assert stored.rewards.min() < -1.0
    np.testing.assert_allclose((stored.observations[:, :2] ** 2).sum(axis=1), 1.0, atol=1e-5)
    slots = np.arange(len(buffer))
    batch = buffer._get_samples(slots, env=env)
    raw = buffer._get_samples(slots)
    np.testing.assert_array_equal(batch.observations, env.normalize_obs(raw.observations.numpy()))
    np.testing.assert_array_equal(batch.rewards, env.normalize_reward(raw.rewards.numpy()))
    assert not torch.equal(batch.observations, raw.observations)


def test_samples_are_on_the_device():
    buffer = make_buffer(warmup_steps=50)
    offer(buffer, np.random.default_rng(0))
    buffer.device = torch.device("meta")
    assert {tensor.device.type for tensor in buffer.sample(3) if tensor is not None} == {"meta"}


def test_extreme_doubles_survive_admit_all():
    buffer = make_buffer(admission=frugalrl.AdmitAll())
    values = np.array([[np.pi * 1e300, -5e-324]])
    flags = np.zeros(1)
    buffer.add(values, -values, np.zeros((1, 1), np.float32), flags, flags, [{}])
    batch = buffer.sample(1)
    assert batch.observations.dtype == torch.float64
    np.testing.assert_array_equal(batch.observations, values)
    np.testing.assert_array_equal(batch.next_observations, -values)


def test_reset_forgets_transitions_and_filter():
    buffer, generator = make_buffer(warmup_steps=5), np.random.default_rng(0)
    for _ in range(30):
        offer(buffer, generator)
    assert buffer.admission.is_fitted
    buffer.reset()
    assert (len(buffer), buffer.pos, buffer.full) == (0, 0, False)
    assert not buffer.admission.is_fitted
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    offer(buffer, generator)
    assert buffer.size() == 1


# --- files ------------------------------------------------------------------------------------


def assert_goes_on_identically(one, other):
    for buffer in (one, other):
        generator = np.random.default_rng(9)
        for _ in range(60):
            environments = buffer.n_envs
            obs, next_obs = generator.random((2, environments, 3)).round(1)
            action = generator.random((environments, 1)).astype(np.float32)
            reward = generator.random(environments).round(1)
            buffer.add(obs, next_obs, action, reward, np.zeros(environments), [{}] * environments)
    assert one.stats == other.stats
    assert one.stats.evicted + one.stats.replaced > 0
    for ours, theirs in zip(one.transitions()[:6], other.transitions()[:6], strict=True):
        assert np.array_equal(ours, theirs)


def test_checkpoints_keep_the_filters_state(pendulum, tmp_path):
    model = frugal_model(pendulum)
    callback = CheckpointCallback(25, str(tmp_path), "run", save_replay_buffer=True)
    model.learn(100, callback=callback)
    loaded = SAC.load(tmp_path / "run_100_steps.zip", env=model.env, device="cpu")
    assert type(loaded.replay_buffer) is FrugalReplayBuffer
    assert loaded.replay_buffer.admission.settings == model.replay_buffer.admission.settings
    assert len(loaded.replay_buffer) == 0  # as with every buffer of Stable-Baselines3
    # The callback saves before the step is stored, so compare what was saved at the end.
    model.save_replay_buffer(tmp_path / "buffer")
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer.stats == model.replay_buffer.stats
    assert loaded.replay_buffer.admission.is_fitted
    assert_goes_on_identically(model.replay_buffer, loaded.replay_buffer)
    loaded.load_replay_buffer(tmp_path / "run_replay_buffer_100_steps.pkl")
    assert loaded.replay_buffer.stats.offered == 98
    loaded.learn(20, reset_num_timesteps=False)
    assert loaded.replay_buffer.stats.offered == 118


def test_a_loaded_model_starts_with_an_unused_filter(pendulum, tmp_path):
    admission = frugalrl.FrugalFilter(warmup_steps=30, bins=7)
    model = build(
        SAC,
        pendulum,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"admission": admission},
    )
    model.learn(50)
    assert model.replay_buffer.admission.is_fitted
    assert not admission.is_fitted
    model.save(tmp_path / "model")
    loaded = SAC.load(tmp_path / "model", env=model.env, device="cpu")
    assert loaded.replay_buffer.admission.settings.bins == 7
    assert not loaded.replay_buffer.admission.is_fitted
    loaded.learn(30)
    assert loaded.replay_buffer.stats.offered == 30


def test_random_eviction_survives_models_pickles_and_files(pendulum, tmp_path):
    model = build(
        SAC,
        pendulum,
        2,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"eviction": "random"},
    )
    model.learn(200)
    assert model.replay_buffer.stats.evicted == 140
    model.save(tmp_path / "model")
    model.replay_buffer.save(tmp_path / "buffer.safetensors")
    loaded = SAC.load(tmp_path / "model", env=model.env, device="cpu")
    assert loaded.replay_buffer.eviction == "random"
    loaded.replay_buffer.load(tmp_path / "buffer.safetensors")
    assert_goes_on_identically(model.replay_buffer, loaded.replay_buffer)
    copy = pickle.loads(pickle.dumps(model.replay_buffer))  # noqa: S301
    assert_goes_on_identically(model.replay_buffer, copy)
    loaded.replay_buffer.reset()
    assert loaded.replay_buffer.eviction == "random"


def test_files_without_pickle(pendulum, tmp_path):
    model = frugal_model(pendulum)
    model.learn(100)
    model.replay_buffer.save(tmp_path / "buffer.safetensors")
    fresh = frugal_model(pendulum)
    fresh.replay_buffer.load(tmp_path / "buffer.safetensors")
    assert fresh.replay_buffer.pos == model.replay_buffer.pos > 0
    assert_goes_on_identically(model.replay_buffer, fresh.replay_buffer)
    other = make_buffer(2, size=80, warmup_steps=30, bins=5)
    with pytest.raises(frugalrl.StateFileError, match="space"):
        other.load(tmp_path / "buffer.safetensors")


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "arguments", "reason"),
    [
        ({}, {"n_sampled_goal": 4}, "hindsight experience replay needs the neighbours"),
        ({}, {"n_steps": 0}, "n=0 is out of range"),
        ({}, {"n_steps": 3, "gamma": 2.0}, "gamma=2.0"),
        ({}, {"observation_key": "state"}, "no Dict"),
    ],
)
def test_what_cannot_work_is_refused(settings, arguments, reason, pendulum):
    with pytest.raises(ValueError, match=reason):
        build(
            SAC,
            pendulum,
            replay_buffer_class=FrugalReplayBuffer,
            replay_buffer_kwargs=arguments,
            **settings,
        )


@pytest.mark.parametrize(
    "bases", [(FrugalReplayBuffer, HerReplayBuffer), (HerReplayBuffer, FrugalReplayBuffer)]
)
def test_hindsight_by_inheritance_is_refused(bases):
    with pytest.raises(TypeError, match="Both: hindsight experience replay needs the neighbours"):
        type("Both", bases, {})


@pytest.mark.filterwarnings("ignore:.*n_steps.* is ignored:UserWarning")
def test_n_steps_and_gamma_are_the_algorithms(pendulum):
    class Mine(FrugalReplayBuffer):
        def __init__(self, *positional, **named):
            super().__init__(*positional, **named)

    model = build(SAC, pendulum, n_steps=2, gamma=0.5, replay_buffer_class=Mine)
    model.learn(10)
    discounts = model.replay_buffer.transitions().extra["discounts"]
    assert set(discounts.tolist()) == {0.25}
    single = build(SAC, pendulum, replay_buffer_class=Mine).learn(5).replay_buffer
    assert single.sample(3).discounts is None


def test_optimize_memory_usage_is_taken_with_a_shrug(pendulum):
    model = build(
        SAC,
        pendulum,
        optimize_memory_usage=True,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 5},
    )
    model.learn(10)
    model.learn(10)  # the plain buffer's last row would be marked as an episode's end
    assert model.replay_buffer.stats.offered == 20
    assert model.replay_buffer.sample(2).rewards.shape == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bin": 3}, TypeError, "argument='bin' is unknown; did you mean 'bins'"),
        ({"evicton": "random"}, TypeError, "did you mean 'eviction'"),
        ({"bins": 0}, ValueError, "bins=0"),
        ({"admission": "fac"}, TypeError, "'fac' is no AdmissionFilter"),
        ({"admission": frugalrl.AdmitAll}, TypeError, r"is a class; use an object, AdmitAll\(\)"),
        ({"admission": frugalrl.AdmitAll(), "bins": 3}, TypeError, "one or the other"),
        ({"dtype": "float64", "bins": 3}, ValueError, "AdmitAll"),
        ({"dtype": "int8"}, ValueError, "dtype='int8'.*float32, float16, float64"),
        ({"capacity_bytes": "2MB"}, TypeError, "capacity_bytes= is.*ReplayBuffer alone"),
        ({"sampler": "prioritized"}, TypeError, "draws as the trainer does"),
        ({"warmup": 150}, ValueError, "its length is warmup_steps=150"),
        ({"eviction": "newest"}, ValueError, "eviction='newest' is unknown"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        make_buffer(**arguments)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (3, 8, 8), np.uint8),
        spaces.Dict({"camera": spaces.Box(0, 255, (8, 8), np.uint8)}),
        spaces.Tuple((spaces.Discrete(2),)),
    ],
)
def test_spaces_that_are_no_vectors_are_refused(space):
    with pytest.raises((ValueError, NotImplementedError)):
        FrugalReplayBuffer(10, space, spaces.Discrete(2), warmup_steps=5)


def test_without_a_filter_everything_is_kept():
    assert isinstance(make_buffer().admission, frugalrl.AdmitAll)
    assert isinstance(make_buffer(warmup_steps=20).admission, frugalrl.FrugalFilter)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_images_with_admit_all_are_the_plain_buffers(dtype):
    space = spaces.Box(0, 255, (3, 5, 7), np.uint8)
    ours = FrugalReplayBuffer(
        20, space, spaces.Discrete(2), "cpu", 2, admission=frugalrl.AdmitAll(), dtype=dtype
    )
    plain = ReplayBuffer(20, space, spaces.Discrete(2), "cpu", 2)
    generator = np.random.default_rng(0)
    for _ in range(15):
        obs, next_obs = generator.integers(0, 256, (2, 2, 3, 5, 7), dtype=np.uint8)
        step = (obs, next_obs, np.array([[0], [1]]), np.ones(2), np.zeros(2), [{}] * 2)
        ours.add(*step)
        plain.add(*step)
    batches = []
    for buffer in (ours, plain):
        np.random.seed(3)  # noqa: NPY002
        batches.append(buffer.sample(50))
    for one, other in zip(*batches, strict=True):
        assert one is other or torch.equal(one, other)
    assert batches[0].observations.dtype == torch.uint8


def test_keys_that_the_filter_reads_can_be_chosen():
    space = spaces.Dict(
        {
            "achieved_goal": spaces.Box(-1, 1, (2,), np.float64),
            "camera": spaces.Box(0, 255, (4, 4), np.uint8),
            "observation": spaces.Box(-1, 1, (3,), np.float64),
        }
    )

    def make(key):
        return FrugalReplayBuffer(
            50, space, spaces.Discrete(2), "cpu", observation_key=key, warmup_steps=10, bins=3
        )

    buffer, generator = make("observation"), np.random.default_rng(0)
    given = []
    for _ in range(30):
        now, then = ({key: box.sample()[None] for key, box in space.items()} for _ in range(2))
        given.append(now)
        buffer.add(now, then, np.zeros((1, 1), int), generator.random(1), np.zeros(1), [{}])
    assert len(buffer.admission.bounds_[0]) <= 3
    assert set(buffer.admission.important_dimensions_) <= {0, 1, 2}
    drawn = buffer.sample(5).observations
    known = {tuple(now["achieved_goal"][0].astype(np.float32)): now for now in given}
    for goal, camera in zip(drawn["achieved_goal"], drawn["camera"], strict=True):
        assert np.array_equal(camera, known[tuple(goal.tolist())]["camera"][0])
    for wrong in ("goal", "camera", []):
        with pytest.raises(ValueError, match=r"observation_key=.*'observation'"):
            make(wrong)


def test_load_refuses_a_buffer_made_otherwise(tmp_path):
    path = tmp_path / "buffer.safetensors"
    saved = make_buffer(2, warmup_steps=5)
    offer(saved, np.random.default_rng(0))
    saved.save(path)
    for arguments, what in (
        ({"size": 100, "warmup_steps": 5}, "capacity 300"),
        ({"dtype": "float16", "warmup_steps": 5}, "dtype 'float32'"),
        ({"eviction": "random", "warmup_steps": 5}, "eviction 'oldest', this one was made with"),
        (
            {"admission": frugalrl.RandomAdmit(0.5)},
            "FrugalFilter, not RandomAdmit",
        ),
        ({"n_steps": 3, "warmup_steps": 5}, "n_steps 1"),
        ({"environments": 1, "warmup_steps": 5}, "n_envs 2, this one was made with 1"),
        ({"environments": 4, "warmup_steps": 5}, "n_envs 2, this one was made with 4"),
    ):
        other = make_buffer(**{"environments": 2, **arguments})
        with pytest.raises(ValueError, match=what):
            other.load(path)
        assert len(other) == 0
    several = make_buffer(2, n_steps=3, warmup_steps=5)
    several.save(path.with_suffix(".n_step"))
    for arguments, what in (({"n_steps": 2}, "n_steps 3"), ({"gamma": 0.9}, r"gamma 0\.99")):
        other = make_buffer(2, **{"n_steps": 3, "warmup_steps": 5, **arguments})
        with pytest.raises(ValueError, match=what):
            other.load(path.with_suffix(".n_step"))
    with pytest.warns(UserWarning, match="the filter it was saved with"):
        make_buffer(2, warmup_steps=6).load(path)
    pickled = tmp_path / "buffer.pkl"
    pickled.write_bytes(pickle.dumps(saved))
    with pytest.raises(ValueError, match="is a pickle"):
        saved.load(pickled)


def test_a_file_that_begins_as_a_pickle_would_is_read(tmp_path):
    path = tmp_path / "buffer.safetensors"
    saved = make_buffer(2, warmup_steps=5)
    offer(saved, np.random.default_rng(0))
    saved.save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    longer = (length // 65536 + 1) * 65536 + 0x0280  # begins with the bytes 80 02
    header = content[8 : 8 + length].ljust(longer)
    path.write_bytes(longer.to_bytes(8, "little") + header + content[8 + length :])
    assert path.read_bytes()[:2] == b"\x80\x02"
    other = make_buffer(2, warmup_steps=5)
    other.load(path)
    assert len(other) == len(saved) > 0


@pytest.mark.parametrize("rows", [4, 14])
def test_a_plain_buffer_fills_a_frugal_one(rows):
    frugal = make_buffer(2, warmup_steps=5, bins=3)
    direct = make_buffer(2, warmup_steps=5, bins=3)
    plain = ReplayBuffer(20, frugal.observation_space, frugal.action_space, "cpu", 2)
    generator, steps = np.random.default_rng(0), []
    for row in range(rows):
        obs, next_obs = generator.random((2, 2, 2)).round(1)
        done = np.array([row % 3 == 0, row % 4 == 0])
        infos = [{"TimeLimit.truncated": row % 6 == 0}, {}]
        steps.append((obs, next_obs, np.zeros((2, 1), np.float32), np.ones(2) * row, done, infos))
        plain.add(*steps[-1])
    for step in steps[-10:]:  # what the plain one still holds
        direct.add(*step)
    frugal.fill(plain)
    assert frugal.stats == direct.stats
    for ours, theirs in zip(frugal.transitions()[:6], direct.transitions()[:6], strict=True):
        assert np.array_equal(ours, theirs)
    with pytest.raises(ValueError, match="n_envs is 2 there and 1 here"):
        make_buffer(1).fill(plain)


def test_another_number_of_environments_is_named():
    buffer = make_buffer(2, warmup_steps=5)
    with pytest.raises(ValueError, match=r"done is that of 3 environments.*n_envs=2"):
        offer(buffer, np.random.default_rng(0), done=[0, 0, 0])
    assert len(buffer) == 0


def test_a_pickled_buffer_goes_on_with_its_n_steps():
    one = make_buffer(2, warmup_steps=10, bins=3, n_steps=3)
    generator = np.random.default_rng(1)
    for _ in range(20):
        offer(one, generator)
    other = pickle.loads(pickle.dumps(one))  # noqa: S301
    assert other.stats == one.stats
    for buffer in (one, other):
        generator = np.random.default_rng(2)
        for _ in range(20):
            offer(buffer, generator)
    for ours, theirs in zip(one.transitions()[:6], other.transitions()[:6], strict=True):
        assert np.array_equal(ours, theirs)


def test_rows_by_environment_point_to_transitions():
    buffer = make_buffer()
    for name in ("observations", "rewards"):
        with pytest.raises(AttributeError, match=r"transitions\(\)"):
            getattr(buffer, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        buffer.nonsense  # noqa: B018
