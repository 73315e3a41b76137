"""A buffer goes on from a file as if nothing had happened, and refuses foreign files."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.controls import AdmitAll, RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import VERSION, ReplayBuffer
from frugalrl.replay.samplers import Prioritized, Uniform
from frugalrl.state_io import StateFileError, save_state

# Gymnasium 1.0 and older know integer actions of one type only.
HAS_TYPES = "dtype" in inspect.signature(spaces.Discrete).parameters
NARROW = [spaces.Discrete(4, dtype=np.int32)] if HAS_TYPES else []
SPACE = spaces.Box(-1.0, 1.0, (3,), np.float64)
ACTION = spaces.Box(-1.0, 1.0, (2,), np.float32)
FILTERS: dict[str, Any] = {
    "all": AdmitAll,
    "random": lambda: RandomAdmit(0.4, seed=5),
    "fac": lambda: FrugalFilter(warmup_steps=50, bins=3),
    "filtered": lambda: FrugalFilter(warmup_steps=50, bins=3, warmup="filter"),
}


def feed(buffer: ReplayBuffer, seed: int, steps: int = 200) -> list[tuple[list[int], list[int]]]:
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, (2, 3))
    told = []
    for _ in range(steps):
        next_state = rng.uniform(-1, 1, (2, 3))
        flags = rng.random((2, 2)) < 0.1
        outcome = buffer.add(state, rng.random((2, 2)), rng.random(2), next_state, *flags)
        told.append((outcome.codes.tolist(), outcome.slots.tolist()))
        state = next_state
    return told


def make(admission: str = "all", **options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        options.pop("capacity", 90),
        observation_space=SPACE,
        action_space=ACTION,
        admission=FILTERS[admission](),
        **options,
    )


@pytest.mark.parametrize("warm", [10, 200])
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("admission", sorted(FILTERS))
def test_a_loaded_buffer_goes_on_identically(
    tmp_path: Path, admission: str, sampler: str, warm: int
) -> None:
    buffer = make(admission, sampler=sampler, dtype="float16" if warm == 10 else "float32")
    feed(buffer, 0, warm)
    batch = buffer.sample(32)
    buffer.feedback(batch.slots, batch.rewards)
    buffer.save(tmp_path / "b")
    loaded = ReplayBuffer.load(tmp_path / "b", SPACE, ACTION)
    assert loaded.stats == buffer.stats
    assert loaded.observation_space == SPACE
    for turn in range(3):
        assert feed(buffer, turn + 1) == feed(loaded, turn + 1)
        one, two = buffer.sample(64, batches=2), loaded.sample(64, batches=2)
        for left, right in zip(one, two, strict=True):
            assert np.array_equal(left, right)
        buffer.feedback(one.slots, one.rewards)
        loaded.feedback(two.slots, two.rewards)
    buffer.save(tmp_path / "one")
    loaded.save(tmp_path / "two")
    assert ReplayBuffer.load(tmp_path / "one").stats == ReplayBuffer.load(tmp_path / "two").stats
    for left, right in zip(buffer.transitions(), loaded.transitions(), strict=True):
        assert np.array_equal(left, right)


def test_an_empty_buffer_round_trips(tmp_path: Path) -> None:
    buffer = make("fac")
    buffer.save(tmp_path / "b")
    loaded = ReplayBuffer.load(tmp_path / "b")
    assert len(loaded) == 0
    assert feed(loaded, 0) == feed(buffer, 0)


def test_the_file_holds_no_slack(tmp_path: Path) -> None:
    buffer = make(capacity=1_000_000)
    feed(buffer, 0, 3000)
    buffer.save(tmp_path / "b")
    states = 2 * 3001 * (12 + 4)
    records = 6000 * (20 + 8)
    assert (tmp_path / "b").stat().st_size < states + records + 4000


def test_state_dict_is_a_copy() -> None:
    buffer = make("random")
    feed(buffer, 0, 30)
    state = buffer.state_dict()
    rewards = buffer.transitions().rewards
    feed(buffer, 1)
    assert np.array_equal(ReplayBuffer.from_state_dict(state).transitions().rewards, rewards)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "name"),
    [
        (spaces.Box(-1.0, 1.0, (4,), np.float64), None, "observation_space"),
        (spaces.Box(-2.0, 1.0, (3,), np.float64), None, "observation_space"),
        (spaces.Box(-1.0, 1.0, (3,), np.float32), None, "observation_space"),
        (None, spaces.Discrete(3), "action_space"),
        (None, spaces.Dict({"a": ACTION}), "action_space"),
    ],
)
def test_another_space_is_refused(
    tmp_path: Path, observation_space: Any, action_space: Any, name: str
) -> None:
    make().save(tmp_path / "b")
    with pytest.raises(StateFileError, match=f"saved with {name}="):
        ReplayBuffer.load(tmp_path / "b", observation_space, action_space)


@pytest.mark.parametrize(
    "action_space",
    [
        spaces.Discrete(4, start=-1),
        *NARROW,
        spaces.Box(-1.0, 1.0, (), np.float32),
        spaces.MultiDiscrete([3, 200]),
        spaces.MultiBinary(3),
        spaces.Box(-5, 5, (2,), np.int64),
        spaces.Box(-(2**40), 2**40, (2,), np.int64),
    ],
)
def test_every_action_space_is_restored(tmp_path: Path, action_space: Any) -> None:
    buffer = ReplayBuffer(10, observation_space=SPACE, action_space=action_space)
    action_space.seed(0)
    actions = np.array([action_space.sample() for _ in range(6)])
    states = np.zeros((6, 3))
    buffer.add(states, actions, np.zeros(6), states, np.zeros(6, bool), np.zeros(6, bool))
    buffer.save(tmp_path / "b")
    loaded = ReplayBuffer.load(tmp_path / "b", action_space=action_space)
    assert np.array_equal(loaded.transitions().actions, actions)
    assert loaded.transitions().actions.dtype == action_space.dtype


def test_a_single_number_is_restored(tmp_path: Path) -> None:
    number = spaces.Box(0.0, 1.0, (), np.float64)
    buffer = ReplayBuffer(10, observation_space=number, action_space=number)
    buffer.add(0.5, 0.1, 1.0, 0.75, False, False)
    buffer.save(tmp_path / "b")
    loaded = ReplayBuffer.load(tmp_path / "b", number, number)
    assert loaded.observation_space.shape == loaded.action_space.shape == ()
    assert loaded.transitions().next_observations.tolist() == [0.75]


@pytest.mark.parametrize("scale", [np.nan, 0.0, -1.0, np.inf, "auto"])
def test_a_scale_that_cannot_be_is_refused(scale: Any) -> None:
    buffer = make("fac")
    feed(buffer, 0)
    state = buffer.state_dict()
    assert "partition" in state["admission"]["state"]
    state["admission"]["state"]["reward_scale"] = scale
    with pytest.raises(ValueError, match="reward_scale"):
        ReplayBuffer.from_state_dict(state)


class OwnFilter(RandomAdmit):
    """Somebody else's filter."""

    name = "own"


class OwnSampler(Uniform):
    """Somebody else's sampler."""

    name = "own"


def test_foreign_filters_and_samplers_are_given_by_class(tmp_path: Path) -> None:
    buffer = ReplayBuffer(
        50,
        observation_space=SPACE,
        action_space=ACTION,
        admission=OwnFilter(0.5),
        sampler=OwnSampler(),
    )
    feed(buffer, 0)
    path = tmp_path / "b"
    buffer.save(path)
    with pytest.raises(StateFileError, match=r"'own' is not one of this library's.*admission="):
        ReplayBuffer.load(path)
    with pytest.raises(StateFileError, match=r"'own' is not one of this library's.*sampler="):
        ReplayBuffer.load(path, admission=OwnFilter)
    with pytest.raises(StateFileError, match="the saved filter is own, not AdmitAll"):
        ReplayBuffer.load(path, admission=AdmitAll, sampler=OwnSampler)
    loaded = ReplayBuffer.load(path, admission=OwnFilter, sampler=OwnSampler)
    made = ReplayBuffer.load(path, admission=OwnFilter.from_state_dict, sampler=OwnSampler)
    assert isinstance(loaded.admission, OwnFilter)
    assert feed(buffer, 1) == feed(loaded, 1) == feed(made, 1)


@pytest.mark.parametrize("admission", ["all", "fac"])
def test_damaged_files_are_refused(tmp_path: Path, admission: str) -> None:
    buffer = make(admission, sampler="prioritized")
    feed(buffer, 0)
    path = tmp_path / "b"
    buffer.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150):
        path.write_bytes(whole[:place])
        with pytest.raises(StateFileError):
            ReplayBuffer.load(path)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(damaged)
        with pytest.raises(StateFileError):
            ReplayBuffer.load(path)


def spoil(state: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        state = state[folder]
    if value is KeyError:
        del state[name]
    elif callable(value):
        state[name] = value(state[name])
    else:
        state[name] = value


@pytest.mark.pure_python
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("storage/slots", lambda s: s[:-1]),
        ("storage/slots", lambda s: s.astype(np.int32)),
        ("storage/slots", lambda s: s * 0),
        ("storage/slots", lambda s: s + 1),
        ("storage/slots", lambda s: s[:3]),
        ("storage/observation", lambda i: i + 10_000),
        ("storage/observation", lambda i: i - 10_000),
        ("storage/next_observation", lambda i: i[:-1]),
        ("storage/next_observation", lambda i: i * 0),
        ("storage/observations", lambda o: o * np.float32(np.nan)),
        ("storage/observations", lambda o: np.append(o, o[:1], axis=0)),
        ("storage/observations", lambda o: o[:-1]),
        ("storage/observations", KeyError),
        ("storage/rewards", lambda r: r * np.float32(np.inf)),
        ("storage/rewards", lambda r: r.reshape(-1, 1)),
        ("storage/terminated", lambda t: t.astype(np.int8)),
        ("storage/fields/action", lambda a: a * np.float32(np.inf)),
        ("storage/fields/action", lambda a: a[:, :0]),
        ("storage/fields", KeyError),
        ("storage/last", lambda r: r + 10_000),
        ("storage/last", lambda r: np.repeat(r, 2)),
        ("storage/slots_allocated", 3),
        ("storage/slots_allocated", 2**28),
        ("storage/states_allocated", 3),
        ("storage/states_allocated", 10**12),
        ("storage/states_allocated", 1.5),
        ("storage/run", [0, 1]),
        ("storage/run", [-1, 5]),
        ("storage/run", None),
        ("storage/counters/stored", -1),
        ("storage/counters", None),
        ("storage", None),
        ("admission/name", "nobody"),
        ("sampler/name", "nobody"),
        ("admission", {"name": "fac", "state": {"settings": {}, "owner": "everybody"}}),
        ("sampler/state/priorities", lambda p: -p),
        ("sampler/state/priorities", lambda p: p[:-1]),
        ("generator/bit_generator", "MT19937"),
        ("rows", -1),
        ("rows", 10**6),
        ("victims", {}),
        ("extra_fields", 3),
        ("extra_fields", [["discount", [], "float32"]]),
        ("capacity", 0),
        ("dtype", "float8"),
        ("observation_space/kind", "Sphere"),
        ("action_space", KeyError),
    ],
)
def test_inconsistent_states_are_refused(tmp_path: Path, path: str, value: Any) -> None:
    """Even with a correct checksum, nothing that could crash a kernel is taken in."""
    buffer = make("random", sampler=Prioritized())
    feed(buffer, 0, 150)
    for _ in range(5):
        buffer._intake.evict()
    state = buffer.state_dict()
    spoil(state, path, value)
    with pytest.raises(ValueError):
        ReplayBuffer.from_state_dict(state)
    save_state(tmp_path / "b", state, "replay buffer", VERSION)
    with pytest.raises(StateFileError, match=str(tmp_path)):
        ReplayBuffer.load(tmp_path / "b")


@pytest.mark.pure_python
@pytest.mark.parametrize("run", [[60, 3], [-1, 3], [0, 0], [0, 50], [0], [0, 1, 2], [1.5, 2]])
def test_a_run_of_nothing_is_refused(run: list[Any]) -> None:
    buffer = make(eviction="random", capacity=50)
    feed(buffer, 0, 26)
    state = buffer.state_dict()
    assert state["storage"]["run"][1] == 48
    state["storage"]["run"] = run
    with pytest.raises(ValueError):
        ReplayBuffer.from_state_dict(state)
