"""States are stored once, and the bytes of a transition stay small."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.controls import AdmitAll, RandomAdmit
from frugalrl.admission.protocol import DROP, REPLACE, Decisions
from frugalrl.replay.buffer import ReplayBuffer

HUMANOID = spaces.Box(-np.inf, np.inf, (376,), np.float64)
HUMANOID_ACTION = spaces.Box(-0.4, 0.4, (17,), np.float32)
SMALL = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ACTION = spaces.Box(-1.0, 1.0, (2,), np.float32)
NO = np.array([False])


class Scripted(AdmitAll):
    """Decides as it is told: a slot to replace, STORE or DROP."""

    def __init__(self, script: list[int | str]) -> None:
        self.script = list(script)

    def offer(self, observations: Any, rewards: Any, free: Any) -> Decisions:
        told = self.script.pop(0)
        if told == "store":
            return super().offer(observations[:1], rewards[:1], free)
        code, slot = (DROP, -1) if told == "drop" else (REPLACE, told)
        return Decisions(np.array([code], dtype=np.int8), np.array([slot], dtype=np.int64))


def walk(buffer: ReplayBuffer, states: list[Any], cut_after: frozenset[int] = frozenset()) -> None:
    """Add the transitions between neighbouring states."""
    for i, (state, next_state) in enumerate(pairwise(states)):
        buffer.add(
            np.array([state]), np.zeros((1, 2), np.float32), np.array([float(i)]),
            np.array([next_state]), np.array([i in cut_after]), NO,
        )  # fmt: skip


def kept_states(buffer: ReplayBuffer) -> int:
    storage = buffer._storage
    return len(storage.states) - storage.free_states


def make(capacity: int = 100, admission: Any = None) -> ReplayBuffer:
    return ReplayBuffer(capacity, observation_space=SMALL, action_space=ACTION, admission=admission)


STATES = [[float(i), i + 0.5, -float(i)] for i in range(12)]


@pytest.mark.pure_python
def test_neighbours_share_their_state() -> None:
    buffer = make()
    walk(buffer, STATES[:6])
    assert len(buffer) == 5
    assert kept_states(buffer) == 6


@pytest.mark.pure_python
def test_sharing_goes_on_after_a_gap_and_through_replacement() -> None:
    buffer = make(admission=Scripted(["store", "store", "drop", "store", "store", 0, "store"]))
    walk(buffer, STATES[:8])
    # 0-1, 1-2, gap, 3-4, 4-5, then 5-6 replaces 0-1, 6-7: states 1 to 7 are kept, once each.
    assert len(buffer) == 5
    assert kept_states(buffer) == 7
    assert buffer.transitions().rewards.tolist() == [1.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.pure_python
def test_a_reset_is_never_mistaken_for_the_terminal_observation() -> None:
    buffer = make()
    walk(buffer, [STATES[0], STATES[1], STATES[2]], cut_after=frozenset({1}))
    walk(buffer, [STATES[7], STATES[8]])
    held = buffer.transitions()
    assert np.array_equal(held.next_observations[1], np.float32(STATES[2]))
    assert np.array_equal(held.observations[2], np.float32(STATES[7]))
    assert held.terminated.tolist() == [False, True, False]
    assert kept_states(buffer) == 5


def test_minus_zero_is_not_zero() -> None:
    buffer = make()
    walk(buffer, [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    walk(buffer, [[-0.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    assert np.signbit(buffer.transitions().observations[1, 0])
    assert kept_states(buffer) == 4


def test_each_environment_shares_with_itself() -> None:
    buffer = make()
    rng = np.random.default_rng(0)
    path = rng.standard_normal((21, 3, 3))
    for i in range(20):
        flags = np.zeros(3, dtype=bool)
        buffer.add(path[i], np.zeros((3, 2)), np.zeros(3), path[i + 1], flags, flags)
    assert len(buffer) == 60
    assert kept_states(buffer) == 63


def test_a_full_ring_keeps_as_many_states() -> None:
    buffer = make(capacity=7)
    rng = np.random.default_rng(0)
    walk(buffer, rng.standard_normal((101, 3)).tolist())
    assert len(buffer) == 7
    assert kept_states(buffer) == 8
    assert buffer.transitions().rewards.tolist() == [float(i) for i in range(93, 100)]


def humanoid_bytes(admission: Any, dtype: str, steps: int, episode: int) -> float:
    """Bytes a transition of a Humanoid-shaped stream."""
    buffer = ReplayBuffer(
        1_000_000,
        observation_space=HUMANOID,
        action_space=HUMANOID_ACTION,
        admission=admission,
        dtype=dtype,
    )
    rng = np.random.default_rng(0)
    state = rng.standard_normal((1, 376))
    action = np.zeros((1, 17), np.float32)
    for i in range(steps):
        next_state = rng.standard_normal((1, 376))
        ended = i % episode == episode - 1
        buffer.add(state, action, np.array([1.0]), next_state, np.array([ended]), NO)
        state = rng.standard_normal((1, 376)) if ended else next_state
    return buffer.nbytes / len(buffer)


def test_humanoid_takes_at_most_1800_bytes() -> None:
    # Episodes of 22 steps are what a random policy manages; each costs one more state.
    for steps in (5_000, 5_300, 5_600, 5_900):
        assert humanoid_bytes(None, "float32", steps, episode=22) <= 1800
    assert humanoid_bytes(None, "float16", 4_000, episode=22) <= 920


def test_gaps_cost_at_most_the_state_they_separate() -> None:
    assert humanoid_bytes(RandomAdmit(0.5), "float32", 4_000, episode=1000) <= 1800 * 1.5


def test_true_terminal_observations_of_a_vector_environment() -> None:
    """Same-step autoreset hands out the reset's observation; the buffer gets the final one."""
    count = 3
    # Gymnasium 0.29 knows no other way to reset, and another name for the final observation.
    modes = getattr(gymnasium.vector, "AutoresetMode", None)
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7)] * count,
        **({} if modes is None else {"autoreset_mode": modes.SAME_STEP}),
    )
    buffer = ReplayBuffer(
        1000,
        observation_space=envs.single_observation_space,
        action_space=envs.single_action_space,
        environments=count,
    )
    state, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    finals, resets = [], []
    for _ in range(21):
        action = envs.action_space.sample()
        following, reward, terminated, truncated, info = envs.step(action)
        true_next = following.copy()
        for i in np.flatnonzero(truncated):
            true_next[i] = info["final_observation" if modes is None else "final_obs"][i]
            finals.append(true_next[i])
            resets.append(following[i])
        buffer.add(state, action, reward, true_next, terminated, truncated)
        state = following
    held = buffer.transitions()
    assert len(finals) == 3 * count
    assert held.truncated.sum() == len(finals)
    assert not held.terminated.any()
    assert np.array_equal(held.next_observations[held.truncated], np.array(finals))
    assert not np.isin(np.array(resets)[:, 0], held.next_observations[:, 0]).any()
    # Each episode of each environment has one state more than it has steps.
    assert kept_states(buffer) == 21 * count + 3 * count
