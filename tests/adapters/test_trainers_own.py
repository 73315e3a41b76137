"""A few lines in the style of the trainers' own buffer tests, and the script that runs theirs."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import frugalrl
from frugalrl.adapters.sb3 import FrugalReplayBuffer

SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float64),
    "image": spaces.Box(0, 255, (3, 4, 4), np.uint8),
    "discrete": spaces.Discrete(5),
    "multi discrete": spaces.MultiDiscrete([3, 4]),
    "multi binary": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Box(0, 255, (2, 2), np.uint8)}
    ),
}
ACTIONS = {
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "discrete": spaces.Discrete(3),
    "multi discrete": spaces.MultiDiscrete([2, 3]),
    "multi binary": spaces.MultiBinary(3),
}


def stack(samples):
    if isinstance(samples[0], dict):
        return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
    return np.stack(samples)


@pytest.mark.parametrize("observations", SPACES)
@pytest.mark.parametrize("actions", ACTIONS)
def test_every_space_gives_the_plain_buffers_samples(observations, actions):
    """As in their test of devices and spaces: add, sample, compare shapes, types and values."""
    space, action_space = SPACES[observations], ACTIONS[actions]
    plain = DictReplayBuffer if observations == "dict" else ReplayBuffer
    buffers = [
        plain(40, space, action_space, "cpu", 2),
        FrugalReplayBuffer(40, space, action_space, "cpu", 2, admission=frugalrl.AdmitAll()),
    ]
    space.seed(0)
    action_space.seed(0)
    for step in range(30):
        given = (
            stack([space.sample() for _ in range(2)]),
            stack([space.sample() for _ in range(2)]),
            np.array([action_space.sample() for _ in range(2)]),
            np.array([0.5, -1.0]) * step,
            np.array([step % 7 == 0, step % 5 == 0]),
            [{"TimeLimit.truncated": step % 10 == 0}, {}],
        )
        for buffer in buffers:
            buffer.add(*given)
    drawn = []
    for buffer in buffers:
        np.random.seed(0)  # noqa: NPY002
        drawn.append(buffer.sample(64))
    for theirs, ours in zip(*drawn, strict=True):
        if isinstance(theirs, dict):
            assert theirs.keys() == ours.keys()
        pairs = [(theirs, ours)] if not isinstance(theirs, dict) else []
        pairs += [(theirs[key], ours[key]) for key in theirs] if isinstance(theirs, dict) else []
        for one, other in pairs:
            assert one is other or (one.dtype == other.dtype and one.equal(other))


def test_normalised_samples_are_the_plain_buffers():
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0))
    env.action_space.seed(0)
    env.reset()
    given = (env.observation_space, env.action_space, "cpu", 2)
    buffers = [
        ReplayBuffer(100, *given),
        FrugalReplayBuffer(100, *given, admission=frugalrl.AdmitAll()),
    ]
    before = env.get_original_obs()
    for _ in range(40):
        action = np.array([env.action_space.sample() for _ in range(2)])
        _, _, done, infos = env.step(action)
        after, reward = env.get_original_obs(), env.get_original_reward()
        for buffer in buffers:
            buffer.add(before, after, action, reward, done, infos)
        before = after
    drawn = []
    for buffer in buffers:
        np.random.seed(0)  # noqa: NPY002
        drawn.append(buffer.sample(32, env=env))
    for theirs, ours in zip(*drawn, strict=True):
        assert theirs is ours or theirs.equal(ours)


def test_the_script_swaps_buffers_and_tells_what_is_expected(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    trainers_own = importlib.import_module("trainers_own")
    tests = tmp_path / "trainer-1.0" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_save_load.py").write_text(
        "import pytest\n"
        "from stable_baselines3 import SAC\n"
        "def test_sac():\n"
        "    model = SAC('MlpPolicy', 'Pendulum-v1', learning_starts=5, buffer_size=50,\n"
        "                policy_kwargs=dict(net_arch=[4]))\n"
        "    assert type(model.learn(20).replay_buffer).__name__ == 'Swapped'\n"
        "    assert model.replay_buffer.stats.offered == 20\n"
        "@pytest.mark.parametrize('name', ['observations', 'rewards'])\n"
        "def test_save_load_replay_buffer(name):\n"
        "    raise AttributeError(f'has no {name!r} by row and environment')\n"
        "def test_warn_buffer(): pass\n"
        "class TestElse:\n"
        "    def test_else(self): assert 1 == 2\n"
        "def test_deselected(): assert False\n"
    )
    out = tmp_path / "own.json"
    asked = [str(tests.parent), "-k", "not deselected", "--out", str(out)]
    assert trainers_own.main(asked) == 1
    said = capsys.readouterr().out
    assert "test_save_load.py::TestElse::test_else: assert 1 == 2" in said
    unexpected = [line for line in said.splitlines() if line.startswith("unexpected: ")]
    assert [line.split(": test_save_load.py::")[1] for line in unexpected] == [
        "test_save_load_replay_buffer[rewards]",
        "TestElse::test_else",
        "test_warn_buffer is refused no longer",
    ]
    page = out.with_suffix(".md").read_text()
    assert "| trainer-1.0/test_save_load.py | 2 | 1 | 0 | 1 | 3 |" in page
    assert "| test_save_load.py::test_save_load_replay_buffer | reads `observations` by" in page
    assert "test_buffer_dtypes" not in page
