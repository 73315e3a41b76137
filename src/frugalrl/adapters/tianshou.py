"""Tianshou: a replay buffer and its vector form.

from frugalrl.adapters.tianshou import FrugalVectorReplayBuffer

buffer = FrugalVectorReplayBuffer(1_000_000, len(training_envs), on_equivalent="replace")
collector = Collector(algorithm, training_envs, buffer)
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters.filters import install_hint, make_filter
from frugalrl.adapters.ledger import AdmissionLedger, KeepsLedger
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.checks import integer_from, number_from

try:
    from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
    from tianshou.data.batch import alloc_by_keys_diff, create_value
except ImportError as error:
    raise install_hint("tianshou", "Tianshou", error) from error

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
_MOST_STEPS = 1 << 32
_LEAST_ROWS = 1024
_LANES = frozenset({"rew", "done", "terminated"})


class _Episode:
    """The steps of one environment's running or latest episode, admitted or not.

    Args:
        longest: most steps that an episode may have.
        environment: whose steps they are.
        environments: how many there are.
    """

    def __init__(self, longest: int, environment: int, environments: int) -> None:
        self.longest = longest
        self.number = environment
        """No other episode has the same."""
        self.environments = environments
        self.clear()

    def clear(self) -> None:
        """Begin a new episode."""
        self.number += self.environments
        self.rows: list[Batch] = []
        """Of each step, a batch with one row."""
        self.rewards: list[float] = []
        self.positions: list[int] = []
        """Where the transition that begins with a step was stored, -1 if nowhere."""
        self.is_over = False
        self.handed_on = 0
        """How many of the steps have been offered as the beginning of a transition."""

    def add(self, row: Batch) -> None:
        """Take a step, of the next episode if the last one is over."""
        if self.is_over:
            self.clear()
        if len(self.rows) == self.longest:
            raise ValueError(
                f"an episode took more than longest_episode={self.longest} steps; make the buffer "
                "with a larger longest_episode"
            )
        self.rows.append(row)
        self.rewards.append(float(row.rew[0]))
        self.positions.append(-1)
        self.is_over = bool(row.done[0])

    def goes_on_with(self, row: Batch) -> bool:
        """Tell whether a step begins where the one before it arrived, or an episode."""
        if self.is_over or not self.rows:
            return True
        return np.array_equal(_flat(self.rows[-1].obs_next, 1), _flat(row.obs, 1))

    def transitions(self, n: int, cut: bool = False) -> list[_Transition]:
        """List the transitions over n steps that are complete by now.

        Args:
            n: steps of a transition; fewer where the episode is over.
            cut: the episode goes no further.
        """
        steps = len(self.rows)
        end = steps if self.is_over or cut else max(steps - n + 1, self.handed_on)
        made = [
            _Transition(self, first, min(first + n, steps)) for first in range(self.handed_on, end)
        ]
        self.handed_on = end
        return made

    def serial(self, step: int) -> int:
        """Number a step, so that a stored one is told from a later at the same position."""
        return self.number * _MOST_STEPS + step


class _Transition(NamedTuple):
    """The steps of an episode from `first` to before `end`."""

    episode: _Episode
    first: int
    end: int


class _NoSubBuffers:
    """Stands where Tianshou has one buffer for each environment."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> NoReturn:
        raise NotImplementedError(
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
        **arguments: of a FrugalFilter instead. Tianshou's own options `stack_num`,
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
        n_step: int = 1,
        gamma: float = 0.99,
        admission: AdmissionFilter | None = None,
        **arguments: Any,
    ) -> None:
        for option, plain in _ONE_STEP_OPTIONS.items():
            value = arguments.pop(option, plain)
            if value != plain:
                raise ValueError(f"{option}={value!r} {_NEIGHBOURS}; use {plain!r}")
        ReplayBuffer.__init__(self, size, random_seed=random_seed)
        self._n_step = integer_from("n_step", n_step, 1)
        self._gamma = number_from("gamma", gamma, "a number from 0 to 1", lambda g: 0 <= g <= 1)
        longest, count = integer_from("longest_episode", longest_episode, 1), self._environments
        self._episodes = [_Episode(longest, environment, count) for environment in range(count)]
        made = make_filter(admission, arguments)
        self._ledger = AdmissionLedger(self.maxsize, made, observation_space)
        self._start()

    @property
    def _environments(self) -> int:
        return 1

    def _start(self) -> None:
        """Hold nothing."""
        self._meta = cast(Any, Batch())
        self._rows = 0  # positions that there is memory for
        # (lanes, positions) each; over several steps also what Tianshou sums rewards up from, where
        # step j of a transition has the index j * rows + position.
        self._lanes: dict[str, NDArray[Any]] = {"serial": np.zeros((1, 0), dtype=np.int64)}
        if self._n_step > 1:
            for key in _LANES:
                kind = float if key == "rew" else bool
                self._lanes[key] = np.zeros((self._n_step, 0), dtype=kind)
        self._steps_asked = 0
        self._size = 0

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def nbytes(self) -> int:
        """Bytes of the transitions, of the filter and of the episodes that are held apart."""
        apart = (row for episode in self._episodes for row in episode.rows)
        batches = sum(_bytes_of(batch) for batch in (self._meta, *apart))
        return batches + sum(lanes.nbytes for lanes in self._lanes.values()) + self._ledger.nbytes

    @property
    def subbuffer_edges(self) -> NDArray[np.int64]:
        """One pool serves every environment."""
        return np.array([0, self.maxsize])

    def __getattr__(self, key: str) -> Any:
        # Over n steps: rewards of every step, and where the transition, not the episode, is over.
        if key in _LANES and self._n_step > 1:
            return self._lanes[key].reshape(-1)
        return super().__getattr__(key)

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget every transition and what the filter learnt; keep running episodes if asked."""
        self._start()
        self._ledger.clear()
        for episode in self._episodes:
            if keep_statistics:
                episode.positions = [-1] * len(episode.rows)
                episode.handed_on = len(episode.rows)
            else:
                episode.clear()

    def add(
        self, batch: Any, buffer_ids: NDArray[np.int64] | list[int] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Offer transitions, one of each environment in `buffer_ids`.

        Returns:
            For each: the position (-1 when it is not stored, or not yet, for n steps); the reward
            and the length of its episode if that is over, else 0; and the index of its episode's
            first step.
        """
        rows, environments = self._as_rows(batch, buffer_ids)
        count = len(environments)
        rewards = np.asarray(rows.rew)
        if rewards.shape != (count,):
            raise ValueError(
                f"rew has shape {rewards.shape}; one reward for each of {count} transitions is "
                "needed"
            )
        made: list[_Transition] = []
        for row, environment in enumerate(environments):
            episode, step = self._episodes[environment], rows if count == 1 else rows[row : row + 1]
            if self._n_step > 1 and not episode.goes_on_with(step):
                made += episode.transitions(self._n_step, cut=True)
            episode.add(step)
            made += episode.transitions(self._n_step)
        if self._n_step == 1:
            positions = self._offer(rows, made)
        else:
            self._offer_n_steps(made)
            positions = np.full(count, -1, dtype=np.int64)
        returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        for row, environment in enumerate(environments):
            episode = self._episodes[environment]
            if episode.is_over:
                returns[row], lengths[row] = sum(episode.rewards), len(episode.rows)
        return positions, returns, lengths, (np.array(environments) + 1) * _EPISODES

    def _offer_n_steps(self, made: list[_Transition]) -> None:
        if made:
            rows = _joined([episode.rows[first] for episode, first, _ in made])
            last = _joined([episode.rows[end - 1] for episode, _, end in made])
            for key in ("obs_next", "terminated", "truncated", "done"):
                rows.__dict__[key] = last[key]
            self._offer(rows, made)

    def _offer(self, rows: Batch, made: list[_Transition]) -> NDArray[np.int64]:
        """Let the filter decide about transitions, and note where each first step went."""
        count = len(made)
        rewards = np.zeros((count, self._n_step))
        for row, (episode, first, end) in enumerate(made):
            rewards[row, : end - first] = episode.rewards[first:end]
        last = np.array([end - first - 1 for _, first, end in made])
        serials = np.array([episode.serial(first) for episode, first, _ in made])

        def write(chosen: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
            written = rows if len(chosen) == count else rows[chosen]
            self._write(written, positions)
            self._lanes["serial"][:, positions] = serials[chosen]
            if self._n_step > 1:
                steps = np.arange(self._n_step)[:, None]
                self._lanes["rew"][:, positions] = rewards[chosen].T
                self._lanes["done"][:, positions] = steps == last[chosen]
                self._lanes["terminated"][:, positions] = np.asarray(written.terminated)

        returns = rewards @ self._gamma ** np.arange(self._n_step)
        observations = _flat(rows.obs, count)
        outcome = self._ledger.offer(observations, returns, write, self._move, _finite(rows, count))
        self._size = len(self._ledger)
        for (episode, first, _), position in zip(made, outcome.slots.tolist(), strict=True):
            episode.positions[first] = position
        return outcome.slots

    def _as_rows(
        self, batch: Any, buffer_ids: NDArray[np.int64] | list[int] | None
    ) -> tuple[Batch, list[int]]:
        """Copy the input into a batch with one row for each transition, and say whose they are."""
        rows = Batch()
        for key in batch.get_keys():
            rows.__dict__[key] = batch[key]
        missing = _NEEDED_KEYS - set(rows.get_keys())
        if missing:
            raise ValueError(f"the batch has no {', '.join(sorted(missing))}")
        if buffer_ids is None and len(self._episodes) == 1 and np.ndim(rows.rew) == 0:
            rows = _one_row(rows)
        ids = range(len(self._episodes)) if buffer_ids is None else buffer_ids
        rows.__dict__["done"] = np.logical_or(rows.terminated, rows.truncated)
        return rows, [int(environment) for environment in ids]

    def _write(self, rows: Batch, positions: NDArray[np.int64]) -> None:
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
        rows.rew = np.asarray(rows.rew).astype(float)
        for key in ("done", "terminated", "truncated"):
            rows[key] = np.asarray(rows[key]).astype(bool)
        form = self._meta[:1] if old else rows
        grown = cast(Any, create_value(form, self._rows, stack=False))
        if old:
            grown[np.arange(old)] = self._meta
        self._meta = grown
        for key, lanes in self._lanes.items():
            self._lanes[key] = np.pad(lanes, ((0, 0), (0, self._rows - old)))

    def _move(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Close the gaps that the filter's choice has left."""
        if len(sources):
            self._meta[targets] = self._meta[sources]
            for lanes in self._lanes.values():
                lanes[:, targets] = lanes[:, sources]
        self._lanes["serial"][:, len(self._ledger) :] = 0
        moved = dict(zip(sources.tolist(), targets.tolist(), strict=True))
        for episode in self._episodes:
            episode.positions = [moved.get(position, position) for position in episode.positions]

    def sample_indices(self, batch_size: int | None) -> NDArray[np.int64]:
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

    def unfinished_index(self) -> NDArray[np.int64]:
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
        latest = []
        for episode in self._episodes:
            if episode.rows and not episode.is_over:
                latest += [self._where_stored(episode, len(episode.rows) - 1)]
        return np.array([position for position in latest if position >= 0], dtype=np.int64)

    def _where_stored(self, episode: _Episode, step: int) -> int:
        """Give the position of a step that was stored and not overwritten since, else -1."""
        position = episode.positions[step]
        if position < 0 or self._lanes["serial"][0, position] != episode.serial(step):
            return -1
        return position

    def get_buffer_indices(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the indices of every step of the episode that begins at `start`."""
        if start < _EPISODES:
            return np.asarray(super().get_buffer_indices(start, stop))
        return start + np.arange(len(self._episodes[start // _EPISODES - 1].rows))

    def __getitem__(self, index: Any) -> Any:
        episode = self._episode_of(index)
        if episode is not None:
            return Batch.cat([episode.rows[step] for step in (index % _EPISODES).tolist()])
        if self._n_step == 1:
            return super().__getitem__(index)
        if isinstance(index, np.ndarray) and self._rows:
            index = index % self._rows
        batch = super().__getitem__(index)
        batch.done = np.logical_or(batch.terminated, batch.truncated)
        return batch

    def _episode_of(self, index: Any) -> _Episode | None:
        """Tell whose steps an index names, None for positions."""
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
        episode = self._episode_of(index)
        if episode is not None:
            steps = (index % _EPISODES).tolist()
            where = np.array([self._where_stored(episode, step) for step in steps], np.int64)
            seq, index = np.asarray(seq)[where >= 0], where[where >= 0]
        super().set_array_at_key(seq, key, index, default_value)

    def prev(self, index: Any) -> Any:
        """Refuse: the step before may not be stored."""
        raise NotImplementedError(f"the step before a transition {_NEIGHBOURS}")

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

    def update(self, buffer: ReplayBuffer) -> Any:
        """Refuse: the filter decides about transitions that are added, in order."""
        raise NotImplementedError("add transitions one after the other, so that the filter decides")

    def set_batch(self, batch: Any) -> None:
        """Refuse, as `update` does."""
        self.update(self)

    def dropnull(self) -> None:
        """Refuse: there are none, transitions with NaN are never stored."""
        raise NotImplementedError("transitions with NaN are refused when they are added")


class FrugalVectorReplayBuffer(FrugalReplayBuffer, VectorReplayBuffer):
    """Tianshou's VectorReplayBuffer with admission: one pool and one filter for all environments.

    Args:
        total_size: number of transitions kept at most, over all environments.
        buffer_num: number of environments.
        **arguments: as for FrugalReplayBuffer.
    """

    def __init__(self, total_size: int, buffer_num: int, **arguments: Any) -> None:
        VectorReplayBuffer.__init__(self, total_size, buffer_num)
        self.buffers = cast(Any, _NoSubBuffers(buffer_num))
        FrugalReplayBuffer.__init__(self, self.maxsize, **arguments)

    @property
    def _environments(self) -> int:
        return self.buffer_num


def _one_row(value: Any) -> Any:
    """Copy a step into a batch with one row; many times faster than `Batch.stack([step])`."""
    if isinstance(value, Batch):
        one = Batch()
        one.__dict__.update({key: _one_row(value[key]) for key in value.get_keys()})
        return one
    if hasattr(value, "clone"):  # a tensor
        return value.clone()[None]
    row = np.array(value)[None]
    return row.astype(object) if row.dtype.kind in "US" else row  # strings of any length


def _joined(rows: list[Batch]) -> Batch:
    """Give batches with one row each as one that is free to be changed."""
    if len(rows) > 1:
        return Batch.cat(rows)
    one = Batch()
    one.__dict__.update(rows[0].__dict__)  # many times faster than cat
    return one


def _bytes_of(batch: Any) -> int:
    """Count the bytes of the arrays in a batch."""
    values = (batch[key] for key in batch.get_keys())
    return sum(
        _bytes_of(value) if isinstance(value, Batch) else int(getattr(value, "nbytes", 0))
        for value in values
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
