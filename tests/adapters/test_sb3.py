"""FrugalReplayBuffer in Stable-Baselines3's own algorithms."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN
from sb3_models import build, frugal_model, parameters, same
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.logger import configure

import frugalrl
from frugalrl.adapters.sb3 import FrugalCallback, FrugalReplayBuffer


def hopper():
    return gymnasium.make("Hopper-v5")


# --- AdmitAll is the plain buffer -------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SAC, TD3])
@pytest.mark.parametrize(
    ("environments", "normalize"), [(1, False), (3, False), (1, True), (3, True)]
)
@pytest.mark.parametrize("env", ["pendulum", "hopper"])
def test_admit_all_is_the_plain_run_to_the_bit(algorithm, environments, normalize, env, pendulum):
    make_env = hopper if env == "hopper" else pendulum  # float64 and float32 observations
    runs = []
    for settings in (
        {},
        {
            "replay_buffer_class": FrugalReplayBuffer,
            "replay_buffer_kwargs": {"admission": frugalrl.AdmitAll()},
        },
    ):
        model = build(algorithm, make_env, environments, normalize, **settings)
        before = parameters(model)
        model.learn(130)  # more than the buffer holds: the ring wraps
        runs.append((parameters(model), np.random.get_state()))  # noqa: NPY002
    assert type(model.replay_buffer) is FrugalReplayBuffer
    assert model.replay_buffer.stats.evicted > 0
    assert not same(before, runs[0][0])
    assert same(runs[0][0], runs[1][0])
    assert np.array_equal(runs[0][1][1], runs[1][1][1])


def test_admit_all_is_the_plain_run_for_dict_observations(dict_pendulum):
    results = []
    for kind, settings in (
        (DictReplayBuffer, {}),
        (FrugalReplayBuffer, {"replay_buffer_kwargs": {"admission": frugalrl.AdmitAll()}}),
    ):
        model = build(
            SAC, dict_pendulum, 2, policy="MultiInputPolicy", replay_buffer_class=kind, **settings
        )
        results.append(parameters(model.learn(130)))
    assert same(*results)


# --- every algorithm learns -------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG])
def test_algorithms_learn_with_admission(algorithm, pendulum):
    model = build(
        algorithm,
        pendulum,
        2,
        buffer_size=1000,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 40, "on_equivalent": "discard", "bins": 5},
    )
    before = parameters(model)
    model.learn(200)
    assert not same(before, parameters(model))
    stats = model.replay_buffer.stats
    assert stats.offered == model.num_timesteps == 200
    assert 40 <= stats.stored < 200
    assert len(model.replay_buffer) == model.replay_buffer.size() == stats.stored


@pytest.mark.parametrize("name", ["TQC", "CrossQ"])
def test_contrib_learns_with_admission(name, pendulum):
    import sb3_contrib

    model = build(
        getattr(sb3_contrib, name),
        pendulum,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 30, "bins": 5},
    )
    before = parameters(model)
    model.learn(120)
    assert not same(before, parameters(model))
    assert model.replay_buffer.stats.replaced > 0


@pytest.mark.parametrize(
    ("env", "kind", "algorithm"),
    [
        ("CartPole-v1", np.float32, DQN),
        ("FrozenLake-v1", np.int64, DQN),
        ("CartPole-v1", np.float32, QRDQN),
    ],
)
def test_discrete_actions_learn_with_admission(env, kind, algorithm):
    model = build(
        algorithm,
        lambda: gymnasium.make(env),
        2,
        buffer_size=500,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 40},
    )
    before = parameters(model)
    model.learn(200)
    assert not same(before, parameters(model))
    assert model.replay_buffer.stats.replaced > 0
    batch = model.replay_buffer.sample(5)
    assert batch.actions.shape == (5, 1)
    assert batch.actions.dtype == torch.int64
    assert batch.observations.numpy().dtype == kind


def test_dict_observations_are_flattened_for_the_filter(dict_pendulum):
    model = build(
        SAC,
        dict_pendulum,
        2,
        policy="MultiInputPolicy",
        buffer_size=500,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 40, "bins": 5},
    )
    model.learn(120)
    buffer = model.replay_buffer
    assert buffer.transitions().observations.shape == (len(buffer), 4)
    batch = buffer.sample(6)
    assert batch.observations["quadrant"].dtype == torch.int64
    assert batch.observations["quadrant"].shape == (6, 1)
    assert batch.next_observations["angle"].shape == (6, 2)
    cosine, sine = batch.observations["angle"].T
    quadrant = 2 * (cosine > 0).long() + (sine > 0).long()
    assert torch.equal(quadrant, batch.observations["quadrant"][:, 0])


def test_the_filter_reads_the_vector_of_an_image_and_a_vector(camera_pendulum):
    from stable_baselines3.common.torch_layers import CombinedExtractor

    model = build(
        SAC,
        camera_pendulum,
        2,
        policy="MultiInputPolicy",
        policy_kwargs={"net_arch": [8], "features_extractor_class": CombinedExtractor},
        buffer_size=500,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20, "bins": 3, "reward_scale": 50.0},
    )
    before = parameters(model)
    model.learn(60)
    assert not same(before, parameters(model))
    buffer = model.replay_buffer
    assert buffer.stats.replaced > 0
    assert set(buffer.admission.important_dimensions_) <= {0, 1, 2}
    batch = buffer.sample(8)
    assert batch.observations["camera"].shape == (8, 3, 36, 36)
    assert batch.observations["camera"].dtype == torch.uint8
    # The camera shows the state, so each image must have stayed with its vector.
    assert torch.equal(batch.observations["camera"][:, 0, 0, 0], shade(batch.observations["state"]))
    following = batch.next_observations
    assert torch.equal(following["camera"][:, 2, -1, -1], shade(following["state"]))


def shade(state):
    return (127 * (1 + state[:, 0])).to(torch.uint8)


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG])
def test_returns_over_n_steps(algorithm, pendulum):
    model = build(
        algorithm,
        pendulum,
        2,
        buffer_size=500,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs={"warmup_steps": 20, "bins": 3, "n_steps": 3, "gamma": 0.9},
    )
    before = parameters(model)
    model.learn(60)
    assert not same(before, parameters(model))
    stats = model.replay_buffer.stats
    assert stats.offered == 60
    discounts = model.replay_buffer.sample(300).discounts
    assert discounts.shape == (300, 1)
    expected = {round(0.9**steps, 4) for steps in (1, 2, 3)}
    assert {round(value, 4) for value in discounts.flatten().tolist()} == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"admission": frugalrl.RandomAdmit(0.001)},
        {"warmup_steps": 3, "on_equivalent": "discard"},
        {"warmup_steps": 3, "warmup": "filter", "density_threshold": 0.0},
        {"warmup_steps": 3, "n_steps": 4},
    ],
)
def test_learning_from_the_first_step_meets_no_empty_buffer(arguments, pendulum):
    model = build(
        SAC,
        pendulum,
        learning_starts=0,
        train_freq=1,
        replay_buffer_class=FrugalReplayBuffer,
        replay_buffer_kwargs=arguments,
    )
    model.learn(8)
    assert model._n_updates == 8
    assert len(model.replay_buffer) >= 1


# --- the log ----------------------------------------------------------------------------------


def test_callback_logs_admission(pendulum, tmp_path):
    model = frugal_model(pendulum)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(152, callback=FrugalCallback(), log_interval=2)
    model.logger.dump(step=152)
    header, *rows = (tmp_path / "progress.csv").read_text().splitlines()
    table = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    assert len(table) >= 3
    offered = [float(row["buffer/offered"]) for row in table]
    assert offered == sorted(offered)
    last, stats = table[-1], model.replay_buffer.stats
    assert float(last["buffer/offered"]) == stats.offered == 152
    assert float(last["buffer/stored"]) == stats.stored
    assert float(last["buffer/replaced"]) == stats.replaced
    assert float(last["buffer/size"]) == len(model.replay_buffer)
    assert float(last["buffer/bytes"]) == model.replay_buffer.nbytes
    assert 0 < float(last["buffer/filter_bytes"]) < model.replay_buffer.nbytes


def test_callback_says_when_the_warmup_never_ends(pendulum):
    model = frugal_model(pendulum)
    with pytest.warns(UserWarning, match=r"warm-up takes 30 steps .* lower warmup_steps"):
        model.learn(20, callback=FrugalCallback())
    # Together with those 20 steps the next 20 are enough; a warning would be an error here.
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.learn(20, callback=FrugalCallback(), reset_num_timesteps=False)
    assert model.replay_buffer.admission.is_fitted


def test_callback_needs_a_frugal_buffer(pendulum):
    with pytest.raises(ValueError, match="replay_buffer_class=FrugalReplayBuffer"):
        build(SAC, pendulum).learn(5, callback=FrugalCallback())
