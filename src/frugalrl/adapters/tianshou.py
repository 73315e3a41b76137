"""Tianshou: a replay buffer and its vector form.

from frugalrl.adapters.tianshou import FrugalVectorReplayBuffer

buffer = FrugalVectorReplayBuffer(1_000_000, len(training_envs), on_equivalent="replace")
collector = Collector(algorithm, training_envs, buffer)
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters._filters import make_filter
from frugalrl.adapters._install import install_hint
from frugalrl.adapters._ledger import Ledger
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.replay.results import BufferStats

try:
    from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
    from tianshou.data.batch import alloc_by_keys_diff, create_value
except ImportError as error:
    raise install_hint("frugalrl.adapters.tianshou", "Tianshou", "tianshou", error) from error

_NEIGHBOURS = "needs the neighbours of a transition in time, which admission may have dropped"
_ONE_STEP_OPTIONS = {
    "stack_num": 1,
    "ignore_obs_next": False,
    "save_only_last_obs": False,
    "sample_avail": False,
}
_NEEDED_KEYS = frozenset({"obs", "act", "rew", "terminated", "truncated", "obs_next"})
_EPISODES = 1 << 40
"""Indices from here on are steps of episodes: (environment + 1) * _EPISODES + step."""


class _Episodes:
    """The latest steps of one environment, admitted or not, and the slots they went to.

    Args:
        steps: how many are held.
    """

    def __init__(self, steps: int) -> None:
        self.buffer = ReplayBuffer(steps)
        self.slots = np.full(steps, -1, dtype=np.int64)
        self.serials = np.zeros(steps, dtype=np.int64)

    def add(self, step: Batch, slot: int, serial: int) -> tuple[float, int, int]:
        """Take a step of shape (1, ...); return its episode's reward, length and first index."""
        index, reward, length, start = self.buffer.add(step, [0])
        self.slots[index], self.serials[index] = slot, serial
        if length[0] > len(self.slots):
            raise ValueError(
                f"an episode took {length[0]} steps, more than longest_episode={len(self.slots)}; "
                f"make the buffer with longest_episode={length[0]} or more"
            )
        return float(reward[0]), int(length[0]), int(start[0])


class _Admission(ReplayBuffer):
    """What the plain and the vector buffer share: one filter and one pool of slots.

    Tianshou's collector reads every finished episode back from the buffer, to count its steps and
    to hand it to hooks. So the latest steps of each environment are held apart, admitted or not;
    they have indices of their own, one of which `add` returns as the episode's start.
    """

    def _prepare(
        self,
        environments: int,
        longest_episode: int,
        random_seed: int,
        observation_space: Box | None,
        admission: AdmissionFilter | None,
        arguments: dict[str, Any],
    ) -> None:
        """Refuse options that cannot work and set up an empty ledger."""
        for option, plain in _ONE_STEP_OPTIONS.items():
            value = arguments.pop(option, plain)
            if value != plain:
                raise ValueError(f"{option}={value!r} {_NEIGHBOURS}; use {plain!r}")
        self._random_state = np.random.RandomState(random_seed)
        self._fresh = make_filter(admission, arguments)
        self._space = observation_space
        self._offered = 0
        self._episodes = [_Episodes(longest_episode) for _ in range(environments)]
        self._start()

    def _start(self) -> None:
        copy = type(self._fresh).from_state_dict(self._fresh.state_dict())
        self._ledger = Ledger(self.maxsize, copy, self._space)
        self._serial = np.zeros(self.maxsize, dtype=np.int64)
        self._size = 0

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def admission(self) -> AdmissionFilter:
        """The filter in use."""
        return self._ledger.admission

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return self._ledger.stats

    @property
    def subbuffer_edges(self) -> NDArray[np.int64]:
        """One pool of slots serves every environment."""
        return np.array([0, self.maxsize])

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget every transition and what the filter learnt; keep running episodes if asked."""
        self._start()
        for episodes in self._episodes:
            episodes.buffer.reset(keep_statistics)

    def add(
        self, batch: Any, buffer_ids: NDArray[np.int64] | list[int] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Offer transitions, one of each environment in `buffer_ids`.

        Returns:
            For each: the slot (-1 when it is not stored); the reward and the length of its episode
            if that is over, else 0; and the index of its episode's first step.
        """
        rows, environments = self._as_rows(batch, buffer_ids)
        count = len(environments)
        rewards = np.asarray(rows.rew)
        if rewards.shape != (count,):
            raise ValueError(
                f"rew has shape {rewards.shape}; one reward for each of {count} transitions is "
                "needed"
            )

        def write(chosen: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
            self._write(rows[chosen], slots)
            self._serial[slots] = self._offered + 1 + chosen

        outcome = self._ledger.offer(
            _flat(rows.obs, count), rewards, write, self._keep_only, _finite(rows, count)
        )
        self._size = len(self._ledger)
        returns = np.zeros(count)
        lengths, starts = np.zeros((2, count), dtype=np.int64)
        for row, environment in enumerate(environments):
            returns[row], lengths[row], starts[row] = self._episodes[environment].add(
                rows[row : row + 1], int(outcome.slots[row]), self._offered + 1 + row
            )
        self._offered += count
        return outcome.slots, returns, lengths, starts + (np.array(environments) + 1) * _EPISODES

    def _as_rows(
        self, batch: Any, buffer_ids: NDArray[np.int64] | list[int] | None
    ) -> tuple[Batch, list[int]]:
        """Copy the input into a batch with one row a transition, and say whose they are."""
        rows = Batch()
        for key in batch.get_keys():
            rows.__dict__[key] = batch[key]
        missing = _NEEDED_KEYS - set(rows.get_keys())
        if missing:
            raise ValueError(f"the batch has no {', '.join(sorted(missing))}")
        if buffer_ids is None and len(self._episodes) == 1 and np.ndim(rows.rew) == 0:
            rows = Batch.stack([rows])
        ids = range(len(self._episodes)) if buffer_ids is None else buffer_ids
        rows.__dict__["done"] = np.logical_or(rows.terminated, rows.truncated)
        return rows, [int(environment) for environment in ids]

    def _write(self, rows: Batch, slots: NDArray[np.int64]) -> None:
        """Write into Tianshou's storage, which takes its form from the first rows."""
        try:
            self._meta[slots] = rows
        except ValueError:
            rows.rew = rows.rew.astype(float)
            for key in ("done", "terminated", "truncated"):
                rows[key] = rows[key].astype(bool)
            if len(self._meta.get_keys()) == 0:
                self._meta = cast(Any, create_value(rows, self.maxsize, stack=False))
            else:  # a key that was not there before
                alloc_by_keys_diff(self._meta, rows, self.maxsize, False)
            self._meta[slots] = rows

    def _keep_only(self, keep: NDArray[np.int64]) -> None:
        """Move the slots to keep to the front."""
        front = np.arange(len(keep))
        self._meta[front] = self._meta[keep]
        self._serial[front] = self._serial[keep]
        self._serial[len(keep) :] = 0
        moved = np.full(self.maxsize + 1, -1, dtype=np.int64)
        moved[keep] = front
        for episodes in self._episodes:
            episodes.slots = moved[episodes.slots]  # -1 stays -1: the extra entry is the last

    def sample_indices(self, batch_size: int | None) -> NDArray[np.int64]:
        """Draw slots uniformly; 0 gives all of them, oldest first."""
        if batch_size is None:
            batch_size = len(self)
        if batch_size > 0:
            return np.asarray(self._random_state.choice(len(self), batch_size))
        return self._ledger.oldest_first() if batch_size == 0 else np.array([], dtype=np.int64)

    def unfinished_index(self) -> NDArray[np.int64]:
        """Return the slots of the latest steps of running episodes, where they are stored."""
        latest = [
            episodes.slots[self._still_stored(episodes, episodes.buffer.unfinished_index())]
            for episodes in self._episodes
            if len(episodes.buffer)
        ]
        return np.concatenate([np.array([], dtype=np.int64), *latest])

    def _still_stored(self, episodes: _Episodes, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give those of the steps that were stored and have not been overwritten since."""
        slots = episodes.slots[steps]
        there = (slots >= 0) & (self._serial[slots] == episodes.serials[steps])
        return np.asarray(steps[there])

    def get_buffer_indices(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the indices of every step of the finished episode that begins at `start`."""
        if start < _EPISODES:
            return np.asarray(super().get_buffer_indices(start, stop))
        buffer = self._episodes[start // _EPISODES - 1].buffer
        steps = buffer.get_buffer_indices(start % _EPISODES, int(buffer.last_index[0]) + 1)
        return start - start % _EPISODES + steps

    def __getitem__(self, index: Any) -> Any:
        episodes = self._episodes_of(index)
        if episodes is not None:
            return episodes.buffer[index % _EPISODES]
        return super().__getitem__(index)

    def _episodes_of(self, index: Any) -> _Episodes | None:
        """Tell whose steps an index names, None for slots."""
        if isinstance(index, np.ndarray) and index.size and index.flat[0] >= _EPISODES:
            return self._episodes[int(index.flat[0]) // _EPISODES - 1]
        return None

    def set_array_at_key(
        self,
        seq: NDArray[Any],
        key: str,
        index: Any = None,
        default_value: float | None = None,
    ) -> None:
        """Write values that a hook computed; for an episode, to its steps that are still stored."""
        episodes = self._episodes_of(index)
        if episodes is not None:
            steps = index % _EPISODES
            stored = self._still_stored(episodes, steps)
            seq = np.asarray(seq)[np.isin(steps, stored)]
            index = episodes.slots[stored]
        super().set_array_at_key(seq, key, index, default_value)

    def prev(self, index: Any) -> Any:
        """Refuse: the step before may not be stored."""
        raise NotImplementedError(f"the step before a transition {_NEIGHBOURS}")

    def next(self, index: Any) -> Any:
        """Refuse: the step after may not be stored."""
        raise NotImplementedError(f"an n-step return {_NEIGHBOURS}; use n_step_return_horizon=1")

    def update(self, buffer: ReplayBuffer) -> Any:
        """Refuse: the filter decides about transitions that are added, in order."""
        raise NotImplementedError("add transitions one after the other, so that the filter decides")

    def set_batch(self, batch: Any) -> None:
        """Refuse, as `update` does."""
        self.update(self)

    def dropnull(self) -> None:
        """Refuse: there are none, transitions with NaN are never stored."""
        raise NotImplementedError("transitions with NaN are refused when they are added")


class FrugalReplayBuffer(_Admission):
    """Tianshou's ReplayBuffer with admission, for one environment.

    Args:
        size: number of transitions kept at most.
        longest_episode: steps of each environment that are held apart from the stored transitions,
            because Tianshou's collector reads finished episodes back.
        random_seed: of the buffer's generator.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        admission: any filter (it is copied); None for a FrugalFilter.
        **arguments: FrugalFilter's arguments. Tianshou's own options `stack_num`,
            `ignore_obs_next`, `save_only_last_obs` and `sample_avail` are refused: they need
            neighbouring transitions.
    """

    def __init__(
        self,
        size: int,
        *,
        longest_episode: int = 10_000,
        random_seed: int = 42,
        observation_space: Box | None = None,
        admission: AdmissionFilter | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(size)
        self._prepare(1, longest_episode, random_seed, observation_space, admission, arguments)


class FrugalVectorReplayBuffer(_Admission, VectorReplayBuffer):
    """Tianshou's VectorReplayBuffer with admission: one pool and one filter for all environments.

    Args:
        total_size: number of transitions kept at most, over all environments.
        buffer_num: number of environments.
        longest_episode: steps of each environment that are held apart from the stored transitions,
            because Tianshou's collector reads finished episodes back.
        random_seed: of the buffer's generator.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        admission: any filter (it is copied); None for a FrugalFilter.
        **arguments: as for FrugalReplayBuffer.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        longest_episode: int = 10_000,
        random_seed: int = 42,
        observation_space: Box | None = None,
        admission: AdmissionFilter | None = None,
        **arguments: Any,
    ) -> None:
        VectorReplayBuffer.__init__(self, total_size, buffer_num)
        self._prepare(
            buffer_num, longest_episode, random_seed, observation_space, admission, arguments
        )


def _flat(values: Any, rows: int) -> NDArray[Any]:
    """Give observations as (rows, numbers); the entries of a dict are joined by key."""
    if isinstance(values, Batch):
        parts = [_flat(values[key], rows) for key in sorted(values.get_keys())]
        return np.concatenate(parts, axis=1)
    array = np.asarray(values).reshape(rows, -1)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _finite(rows: Batch, count: int) -> NDArray[np.bool_]:
    """Tell which rows hold a finite action and a finite next observation."""
    fine = np.isfinite(_flat(rows.act, count)).all(axis=1)
    return np.asarray(fine & np.isfinite(_flat(rows.obs_next, count)).all(axis=1))
