"""Tianshou: a replay buffer and its vector form.

from frugalrl.adapters.tianshou import FrugalVectorReplayBuffer

buffer = FrugalVectorReplayBuffer(1_000_000, len(training_envs), on_equivalent="replace")
collector = Collector(algorithm, training_envs, buffer)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters.filters import make_filter, needs, refused
from frugalrl.adapters.ledger import AdmissionLedger, KeepsLedger, RowNumbers
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.checks import integer_from, number_from

with needs("Tianshou", "tianshou"):
    from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
    from tianshou.data.batch import alloc_by_keys_diff, create_value

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
_LEAST_ROWS = 1024
_LANES = {"rew": float, "done": bool, "terminated": bool}


@dataclass
class _Episode:
    """The steps of one environment's running or latest episode, admitted or not."""

    serial: int
    """Of the first step, the others follow: tells a stored step from a later at its position."""
    rows: list[Batch] = field(default_factory=list)
    """Of each step, a batch with one row."""
    positions: list[int] = field(default_factory=list)
    """Where the transition that begins with a step was stored, -1 if nowhere."""
    handed_on: int = 0
    """How many of the steps have been offered as the beginning of a transition."""

    @property
    def is_over(self) -> bool:
        """Whether the next step begins another episode."""
        return bool(self.rows and self.rows[-1].done[0])

    def transitions(self, n: int, cut: bool = False) -> list[_Transition]:
        """List the transitions over n steps that are complete by now.

        Args:
            n: steps of a transition; fewer where the episode is over.
            cut: the episode goes no further.
        """
        steps = len(self.rows)
        end = steps if self.is_over or cut else max(steps - n + 1, self.handed_on)
        made = [(self, first, min(first + n, steps)) for first in range(self.handed_on, end)]
        self.handed_on = end
        return made


_Transition = tuple[_Episode, int, int]
"""An episode, the first step of a transition, and the step after its last."""


class _NoSubBuffers:
    """Stands where Tianshou has one buffer for each environment."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    __getitem__ = refused(
        "all environments share one pool, so there is no buffer for each of them; read the "
        "FrugalVectorReplayBuffer itself, buffer[:] for everything"
    )


class FrugalReplayBuffer(KeepsLedger, ReplayBuffer):
    """Tianshou's ReplayBuffer with admission, for one environment.

    Tianshou's collector reads every finished episode back from the buffer, to count its steps and
    to hand it to hooks. So the steps of each environment's episode are held apart, admitted or not;
    they have indices of their own, the first of which `add` returns as the episode's start.

    Args:
        size: number of transitions kept at most.
        longest_episode: most steps of an episode.
        random_seed: of the buffer's generator.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        n_step: steps of a transition, the algorithm's `n_step_return_horizon`.
        gamma: the algorithm's discount factor; the filter sees the discounted sum of n rewards.
        admission: any filter (it is copied); None keeps everything.
        eviction: what leaves a full buffer, "oldest" or "random", as for `frugalrl.ReplayBuffer`.
        **arguments: of a FrugalFilter instead. Tianshou's own options `stack_num`,
            `ignore_obs_next`, `save_only_last_obs` and `sample_avail` are refused: they need
            neighbouring transitions.
    """

    _environments = 1

    def __init__(
        self,
        size: int,
        *,
        longest_episode: int = 10_000,
        random_seed: int = 42,
        observation_space: Box | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        admission: AdmissionFilter | None = None,
        eviction: str = "oldest",
        **arguments: Any,
    ) -> None:
        for option, plain in _ONE_STEP_OPTIONS.items():
            value = arguments.pop(option, plain)
            if value != plain:
                raise ValueError(f"{option}={value!r} {_NEIGHBOURS}; use {plain!r}")
        ReplayBuffer.__init__(self, 0, random_seed=random_seed)  # it would number all positions
        self.maxsize = integer_from("size", size, 1)
        self._n_step = integer_from("n_step", n_step, 1)
        discount = number_from("gamma", gamma, "a number from 0 to 1", lambda g: 0 <= g <= 1)
        self._discounts = discount ** np.arange(self._n_step)  # of the rewards of a transition
        self._longest = integer_from("longest_episode", longest_episode, 1)
        made = make_filter(admission, arguments, type(self))
        self._ledger = AdmissionLedger(self.maxsize, made, observation_space, eviction)
        self._begun = 0
        self._episodes = [self._new_episode() for _ in range(self._environments)]
        self._start()

    def _new_episode(self) -> _Episode:
        self._begun += 1
        return _Episode(self._begun * self._longest)

    def _start(self) -> None:
        """Hold nothing."""
        self._meta = cast(Any, Batch())
        self._rows = 0  # positions that there is memory for
        # (lanes, positions) each; over several steps also what Tianshou sums rewards up from, where
        # step j of a transition has the index j * rows + position.
        self._lanes: dict[str, NDArray[Any]] = {"serial": np.zeros((1, 0), dtype=np.int64)}
        if self._n_step > 1:
            self._lanes |= {key: np.zeros((self._n_step, 0), kind) for key, kind in _LANES.items()}
        self._steps_asked = 0

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def nbytes(self) -> int:
        """Bytes of the transitions, of the filter and of the episodes that are held apart."""
        apart = (row for episode in self._episodes for row in episode.rows)
        batches = sum(_bytes_of(batch) for batch in (self._meta, *apart))
        return batches + sum(lanes.nbytes for lanes in self._lanes.values()) + self._ledger.nbytes

    def __getattr__(self, key: str) -> Any:
        # Over n steps: rewards of every step, and where the transition, not the episode, is over.
        if key in _LANES and self._n_step > 1:
            return self._lanes[key].reshape(-1)
        return super().__getattr__(key)

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget every transition and what the filter learnt; keep running episodes if asked."""
        self._start()
        self._ledger.clear()
        if not keep_statistics:
            self._episodes = [self._new_episode() for _ in self._episodes]
        for episode in self._episodes:
            episode.positions = [-1] * len(episode.rows)
            episode.handed_on = len(episode.rows)

    def add(
        self, batch: Any, buffer_ids: NDArray[Any] | list[int] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Offer transitions, one of each environment in `buffer_ids`.

        Returns:
            For each: the position (-1 when it is not stored, or not yet, for n steps); the reward
            and the length of its episode if that is over, else 0; and the index of its episode's
            first step.
        """
        rows, environments = self._as_rows(batch, buffer_ids)
        count = len(environments)
        made: list[_Transition] = []
        for row, environment in enumerate(environments):
            made += self._take(environment, rows if count == 1 else rows[row : row + 1])
        if self._n_step == 1:
            positions = self._offer(rows, made)
        else:
            self._offer_n_steps(made)
            positions = np.full(count, -1, dtype=np.int64)
        returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        for row, environment in enumerate(environments):
            episode = self._episodes[environment]
            if episode.is_over:
                returns[row] = sum(float(step.rew[0]) for step in episode.rows)
                lengths[row] = len(episode.rows)
        return positions, returns, lengths, (np.array(environments) + 1) * _EPISODES

    def _as_rows(self, batch: Any, buffer_ids: Any) -> tuple[Batch, list[int]]:
        """Give the input as a batch with one row for each transition, and say whose they are."""
        missing = _NEEDED_KEYS - batch.get_keys()
        if missing:
            raise ValueError(f"the batch has no {', '.join(sorted(missing))}")
        is_step = buffer_ids is None and self._environments == 1 and np.ndim(batch.rew) == 0
        rows = _own(batch, as_row=is_step)
        ids = range(self._environments) if buffer_ids is None else buffer_ids
        environments = [int(environment) for environment in ids]
        if np.shape(rows.rew) != (len(environments),):
            raise ValueError(
                f"rew has shape {np.shape(rows.rew)}; one reward for each of {len(environments)} "
                "transitions is needed"
            )
        rows.__dict__["done"] = np.logical_or(rows.terminated, rows.truncated)
        return rows, environments

    def _take(self, environment: int, row: Batch) -> list[_Transition]:
        """Take a step of an environment and list the transitions that are complete with it."""
        if self._episodes[environment].is_over:
            self._episodes[environment] = self._new_episode()
        episode, made = self._episodes[environment], []
        if len(episode.rows) == self._longest:
            raise ValueError(
                f"an episode took more than longest_episode={self._longest} steps; make the buffer "
                "with a larger longest_episode"
            )
        if self._n_step > 1 and episode.rows:
            arrived, begins = episode.rows[-1].obs_next, row.obs
            if not np.array_equal(_flat(arrived, 1), _flat(begins, 1)):  # it was reset in between
                made = episode.transitions(self._n_step, cut=True)
        episode.rows.append(row)
        episode.positions.append(-1)
        return made + episode.transitions(self._n_step)

    def _offer_n_steps(self, made: list[_Transition]) -> None:
        if made:
            rows = _joined([episode.rows[first] for episode, first, _ in made])
            last = _joined([episode.rows[end - 1] for episode, _, end in made])
            for key in ("obs_next", "terminated", "truncated", "done"):
                rows.__dict__[key] = last[key]
            self._offer(rows, made)

    def _offer(self, rows: Batch, made: list[_Transition]) -> RowNumbers:
        """Let the filter decide about transitions, and note where each first step went."""
        count = len(made)
        rewards = np.zeros((count, self._n_step))
        for row, (episode, first, end) in enumerate(made):
            rewards[row, : end - first] = [step.rew[0] for step in episode.rows[first:end]]
        lanes = {"serial": np.array([[episode.serial + first for episode, first, _ in made]])}
        if self._n_step > 1:
            last = [end - first - 1 for _, first, end in made]
            lanes["rew"] = rewards.T
            lanes["done"] = np.arange(self._n_step)[:, None] == last
            lanes["terminated"] = np.tile(rows.terminated, (self._n_step, 1))

        def write(chosen: RowNumbers, positions: RowNumbers) -> None:
            self._write(rows if len(chosen) == count else rows[chosen], positions)
            for key, values in lanes.items():
                self._lanes[key][:, positions] = values[:, chosen]

        others = np.concatenate([_flat(rows.act, count), _flat(rows.obs_next, count)], axis=1)
        finite = np.isfinite(others).all(axis=1)
        outcome = self._ledger.offer(
            _flat(rows.obs, count), rewards @ self._discounts, write, self._move, finite
        )
        for (episode, first, _), position in zip(made, outcome.slots.tolist(), strict=True):
            episode.positions[first] = position
        return outcome.slots

    def _write(self, rows: Batch, positions: RowNumbers) -> None:
        """Write into Tianshou's storage, which takes its form from the first rows."""
        if int(positions.max()) >= self._rows:
            self._grow(rows, int(positions.max()) + 1)
        try:
            self._meta[positions] = rows
        except ValueError:  # a key that was not there before
            alloc_by_keys_diff(self._meta, rows, self._rows, False)
            self._meta[positions] = rows

    def _grow(self, rows: Batch, least: int) -> None:
        """Make memory for more positions: half as many again, so that copying stays rare."""
        old, self._rows = self._rows, min(max(_LEAST_ROWS, least, 3 * least // 2), self.maxsize)
        for key, kind in {**_LANES, "truncated": bool}.items():
            rows[key] = np.asarray(rows[key]).astype(kind)
        form = self._meta[:1] if old else rows
        grown = cast(Any, create_value(form, self._rows, stack=False))
        if old:
            grown[np.arange(old)] = self._meta
        self._meta = grown
        for key, lanes in self._lanes.items():
            self._lanes[key] = np.pad(lanes, ((0, 0), (0, self._rows - old)))

    def _move(self, sources: RowNumbers, targets: RowNumbers) -> None:
        """Close the gaps that the filter's choice has left."""
        if len(sources):
            self._meta[targets] = self._meta[sources]
            for lanes in self._lanes.values():
                lanes[:, targets] = lanes[:, sources]
        self._lanes["serial"][:, len(self._ledger) :] = 0
        moved = dict(zip(sources.tolist(), targets.tolist(), strict=True))
        for episode in self._episodes:
            episode.positions = [moved.get(position, position) for position in episode.positions]

    def sample_indices(self, batch_size: int | None) -> RowNumbers:
        """Draw positions uniformly; 0 gives all of them, oldest first."""
        self._steps_asked = 0
        if len(self) == 0:  # no return over n steps is known yet: shorter ones will do
            for episode in self._episodes:
                self._offer_n_steps(episode.transitions(self._n_step, cut=True))
        if batch_size is None:
            batch_size = len(self)
        if batch_size > 0:
            return np.asarray(self._random_state.choice(len(self), batch_size))
        return self._ledger.oldest_first() if batch_size == 0 else np.array([], dtype=np.int64)

    def unfinished_index(self) -> RowNumbers:
        """Return the positions of the latest steps of running episodes, where they are stored.

        Over n steps nothing is unfinished: transitions are stored when they are complete.
        """
        if self._n_step > 1:
            if self._steps_asked != self._n_step - 1:
                raise ValueError(
                    f"this buffer holds transitions over n_step={self._n_step} steps, but the "
                    f"algorithm asks for {self._steps_asked + 1}; use "
                    f"n_step_return_horizon={self._n_step}"
                )
            return np.array([], dtype=np.int64)
        running = [episode for episode in self._episodes if episode.rows and not episode.is_over]
        latest = [self._where_stored(episode, len(episode.rows) - 1) for episode in running]
        return np.array([position for position in latest if position >= 0], dtype=np.int64)

    def _where_stored(self, episode: _Episode, step: int) -> int:
        """Give the position of a step that was stored and not overwritten since, else -1."""
        position = episode.positions[step]
        is_stored = position >= 0 and self._lanes["serial"][0, position] == episode.serial + step
        return position if is_stored else -1

    def get_buffer_indices(self, start: int, stop: int) -> RowNumbers:
        """Return the indices of every step of the episode that begins at `start`."""
        if start < _EPISODES:
            return np.asarray(super().get_buffer_indices(start, stop))
        return start + np.arange(len(self._episodes[start // _EPISODES - 1].rows))

    def __getitem__(self, index: Any) -> Any:
        episode = self._episode_of(index)
        if episode is not None:
            return _joined([episode.rows[step] for step in (index % _EPISODES).tolist()])
        if isinstance(index, slice):  # all of them oldest first, as in Tianshou
            index = self.sample_indices(0) if index == slice(None) else np.arange(len(self))[index]
        if self._n_step == 1:
            return super().__getitem__(index)
        if isinstance(index, np.ndarray) and self._rows:
            index = index % self._rows  # of whatever step of a transition
        batch = super().__getitem__(index)
        batch.done = np.logical_or(batch.terminated, batch.truncated)
        return batch

    def _episode_of(self, index: Any) -> _Episode | None:
        """Tell whose steps an index names, None for positions."""
        if isinstance(index, np.ndarray) and index.size and index.flat[0] >= _EPISODES:
            return self._episodes[int(index.flat[0]) // _EPISODES - 1]
        return None

    def set_array_at_key(
        self, seq: NDArray[Any], key: str, index: Any = None, default_value: float | None = None
    ) -> None:
        """Write values that a hook computed; for an episode, to its steps that are still stored."""
        episode = self._episode_of(index)
        if episode is not None:
            steps = (index % _EPISODES).tolist()
            where = np.array([self._where_stored(episode, step) for step in steps], np.int64)
            seq, index = np.asarray(seq)[where >= 0], where[where >= 0]
        super().set_array_at_key(seq, key, index, default_value)

    def next(self, index: Any) -> Any:
        """Give the index of the next step of each transition over n steps, or its last."""
        if self._n_step == 1:
            raise NotImplementedError(
                f"an n-step return {_NEIGHBOURS}; make the buffer with n_step= as in "
                "n_step_return_horizon, and the returns are computed before admission"
            )
        self._steps_asked += 1
        index = np.asarray(index)
        return np.where(self.done[index], index, index + self._rows)

    prev = refused(f"the step before a transition {_NEIGHBOURS}")
    update = refused("add transitions one after the other, so that the filter decides")
    set_batch = update
    dropnull = refused("transitions with NaN are refused when they are added")


class FrugalVectorReplayBuffer(FrugalReplayBuffer, VectorReplayBuffer):
    """Tianshou's VectorReplayBuffer with admission: one pool and one filter for all environments.

    Args:
        total_size: number of transitions kept at most, over all environments.
        buffer_num: number of environments.
        **arguments: as for FrugalReplayBuffer.
    """

    def __init__(self, total_size: int, buffer_num: int, **arguments: Any) -> None:
        VectorReplayBuffer.__init__(self, buffer_num, buffer_num)  # likewise
        size = -(-total_size // buffer_num) * buffer_num
        self.buffers = cast(Any, _NoSubBuffers(buffer_num))
        self._extend_offset = np.array([0, size])  # one pool serves every environment
        self._environments = buffer_num
        FrugalReplayBuffer.__init__(self, size, **arguments)


def _joined(rows: list[Batch]) -> Batch:
    """Give batches with one row each as a new one, with zeros for keys that some of them lack."""
    if len(rows) > 1:
        return Batch.stack(rows)[:, 0]  # `Batch.cat` refuses such keys, and takes far longer
    joined = Batch()
    joined.__dict__.update(rows[0].__dict__)  # many times faster than `Batch(rows[0])`
    return joined


def _own(value: Any, as_row: bool) -> Any:
    """Copy a batch with its arrays: episodes keep rows for longer than the caller may.

    As a row it gets a leading axis, many times faster than by `Batch.stack([step])`.
    """
    if isinstance(value, Batch):
        own = Batch()
        own.__dict__.update({key: _own(value[key], as_row) for key in value.get_keys()})
        return own
    if hasattr(value, "clone"):  # a tensor
        return value.clone()[None] if as_row else value.clone()
    if not as_row:
        return copy.copy(value)
    row = np.array(value)[None]
    return row.astype(object) if row.dtype.kind in "US" else row  # strings of any length


def _bytes_of(batch: Any) -> int:
    """Count the bytes of the arrays in a batch."""
    return sum(
        _bytes_of(value) if isinstance(value, Batch) else int(getattr(value, "nbytes", 0))
        for value in batch.values()
    )


def _flat(values: Any, rows: int) -> NDArray[Any]:
    """Give observations as (rows, numbers); the entries of a dict are joined by key."""
    if isinstance(values, Batch):
        parts = [_flat(values[key], rows) for key in sorted(values.get_keys())]
        return np.concatenate(parts, axis=1)
    array = np.asarray(values).reshape(rows, -1)
    return array if array.dtype.kind == "f" else array.astype(np.float64)
