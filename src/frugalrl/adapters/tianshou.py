"""Tianshou: a replay buffer and its vector form.

from frugalrl.adapters.tianshou import FrugalVectorReplayBuffer

buffer = FrugalVectorReplayBuffer(1_000_000, len(training_envs), on_equivalent="replace")
collector = Collector(algorithm, training_envs, buffer)
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters._install import install_hint
from frugalrl.adapters.filters import make_filter
from frugalrl.adapters.ledger import AdmissionLedger
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.checks import integer_from, number_from
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
_LEAST_ROWS = 1024


class _Episode:
    """The steps of one environment's running or latest episode, admitted or not.

    Args:
        longest: most steps that an episode may have.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.clear()

    def clear(self) -> None:
        """Begin a new episode."""
        self.rows: list[Batch] = []
        """Of each step, a batch with one row."""
        self.positions: list[int] = []
        """Where the transition that begins with a step was stored, -1 if nowhere."""
        self.serials: list[int] = []
        """The number of that transition among all, by which a stored one is told from a later."""
        self.reward = 0.0
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
        self.positions.append(-1)
        self.serials.append(-1)
        self.reward += float(row.rew[0])
        self.is_over = bool(row.done[0])

    def transitions(self, n: int, cut: bool = False) -> list[tuple[int, int]]:
        """List the first and the last step of transitions over n steps that are complete by now.

        Args:
            n: steps of a transition; fewer where the episode is over.
            cut: the episode goes no further.
        """
        steps = len(self.rows)
        end = steps if self.is_over or cut else max(steps - n + 1, self.handed_on)
        made = [(first, min(first + n, steps) - 1) for first in range(self.handed_on, end)]
        self.handed_on = end
        return made


class _Lanes:
    """What Tianshou reads to sum the rewards of a transition over n steps.

    Step j of the transition at a position has the index `j * rows + position`.

    Args:
        n: steps of a transition.
        rows: positions.
    """

    def __init__(self, n: int, rows: int) -> None:
        self.rewards = np.zeros((n, rows))
        self.is_last = np.zeros((n, rows), dtype=np.bool_)
        self.terminated = np.zeros((n, rows), dtype=np.bool_)
        self.steps = np.ones(rows, dtype=np.int64)

    def grown(self, rows: int) -> _Lanes:
        """Give the same with more positions."""
        n, old = self.rewards.shape
        made = _Lanes(n, rows)
        for name in ("rewards", "is_last", "terminated"):
            getattr(made, name)[:, :old] = getattr(self, name)
        made.steps[:old] = self.steps
        return made

    def write(
        self, positions: NDArray[np.int64], rewards: Any, steps: Any, terminated: Any
    ) -> None:
        """Write transitions: (m, n) rewards, (m,) numbers of steps, (m,) whether they terminate."""
        self.rewards[:, positions] = rewards.T
        self.is_last[:, positions] = np.arange(len(self.rewards))[:, None] == steps - 1
        self.terminated[:, positions] = terminated
        self.steps[positions] = steps

    def move(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Move transitions to other positions."""
        for lanes in (self.rewards, self.is_last, self.terminated):
            lanes[:, targets] = lanes[:, sources]
        self.steps[targets] = self.steps[sources]


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


class _Admission(ReplayBuffer):
    """What the plain and the vector buffer share: one filter and one pool of positions.

    Tianshou's collector reads every finished episode back from the buffer, to count its steps and
    to hand it to hooks. So the steps of each environment's episode are held apart, admitted or not;
    they have indices of their own, the first of which `add` returns as the episode's start.
    """

    def _prepare(
        self,
        environments: int,
        longest_episode: int,
        random_seed: int,
        observation_space: Box | None,
        n_step: int,
        gamma: float,
        admission: AdmissionFilter | None,
        arguments: dict[str, Any],
    ) -> None:
        """Refuse options that cannot work and set up an empty ledger."""
        for option, plain in _ONE_STEP_OPTIONS.items():
            value = arguments.pop(option, plain)
            if value != plain:
                raise ValueError(f"{option}={value!r} {_NEIGHBOURS}; use {plain!r}")
        self._n_step = integer_from("n_step", n_step, 1)
        self._gamma = number_from("gamma", gamma, "a number from 0 to 1", lambda g: 0 <= g <= 1)
        self._random_state = np.random.RandomState(random_seed)
        self._fresh = make_filter(admission, arguments)
        self._space = observation_space
        self._offered = 0
        longest = integer_from("longest_episode", longest_episode, 1)
        self._episodes = [_Episode(longest) for _ in range(environments)]
        self._start()

    def _start(self) -> None:
        copy = type(self._fresh).from_state_dict(self._fresh.state_dict())
        self._ledger = AdmissionLedger(self.maxsize, copy, self._space)
        self._meta = cast(Any, Batch())
        self._rows = 0  # positions that there is memory for
        self._serial = np.zeros(0, dtype=np.int64)
        self._lanes = _Lanes(self._n_step, 0)
        self._steps_asked = 0
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
    def nbytes(self) -> int:
        """Bytes of the transitions, of the filter and of the episodes that are held apart."""
        lanes = self._lanes
        own = (self._serial, lanes.rewards, lanes.is_last, lanes.terminated, lanes.steps)
        apart = sum(_bytes_of(row) for episode in self._episodes for row in episode.rows)
        return (
            _bytes_of(self._meta) + sum(array.nbytes for array in own) + self._ledger.nbytes + apart
        )

    @property
    def subbuffer_edges(self) -> NDArray[np.int64]:
        """One pool serves every environment."""
        return np.array([0, self.maxsize])

    @property
    def rew(self) -> NDArray[Any]:
        """Rewards by index; over n steps, those of every step."""
        if self._n_step == 1:
            return np.asarray(self.__getattr__("rew"))
        return self._lanes.rewards.reshape(-1)

    @property
    def done(self) -> NDArray[np.bool_]:
        """By index, whether the episode is over; over n steps, whether the transition is."""
        if self._n_step == 1:
            return np.asarray(self.__getattr__("done"))
        return self._lanes.is_last.reshape(-1)

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """By index, whether the episode ended by itself."""
        if self._n_step == 1:
            return np.asarray(self.__getattr__("terminated"))
        return self._lanes.terminated.reshape(-1)

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget every transition and what the filter learnt; keep running episodes if asked."""
        self._start()
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
        if self._n_step == 1:
            positions = self._add_steps(rows, environments)
        else:
            self._add_n_steps(rows, environments)
            positions = np.full(count, -1, dtype=np.int64)
        returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        for row, environment in enumerate(environments):
            episode = self._episodes[environment]
            if episode.is_over:
                returns[row], lengths[row] = episode.reward, len(episode.rows)
        return positions, returns, lengths, (np.array(environments) + 1) * _EPISODES

    def _add_steps(self, rows: Batch, environments: list[int]) -> NDArray[np.int64]:
        """Offer every step as a transition; returns their positions."""
        for row, environment in enumerate(environments):
            self._episodes[environment].add(rows[row : row + 1])
        begun = [(self._episodes[e], len(self._episodes[e].rows) - 1) for e in environments]
        return self._offer(rows, np.asarray(rows.rew), begun)

    def _add_n_steps(self, rows: Batch, environments: list[int]) -> None:
        """Offer the transitions over n steps that these steps complete."""
        for row, environment in enumerate(environments):
            episode, step = self._episodes[environment], rows[row : row + 1]
            if episode.rows and not episode.is_over and not _follows(episode.rows[-1], step):
                self._offer_n_steps(episode, episode.transitions(self._n_step, cut=True))
            episode.add(step)
            self._offer_n_steps(episode, episode.transitions(self._n_step))

    def _offer_n_steps(self, episode: _Episode, made: list[tuple[int, int]]) -> None:
        if not made:
            return
        rows = Batch.cat([episode.rows[first] for first, _ in made])
        last = Batch.cat([episode.rows[last] for _, last in made])
        for key in ("obs_next", "terminated", "truncated", "done"):
            rows.__dict__[key] = last[key]
        rewards = np.zeros((len(made), self._n_step))
        for i, (first, end) in enumerate(made):
            taken = [row.rew[0] for row in episode.rows[first : end + 1]]
            rewards[i, : len(taken)] = taken
        steps = np.array([end - first + 1 for first, end in made])
        returns = rewards @ self._gamma ** np.arange(self._n_step)
        self._offer(rows, returns, [(episode, first) for first, _ in made], rewards, steps)

    def _offer(
        self,
        rows: Batch,
        returns: NDArray[np.floating],
        begun: list[tuple[_Episode, int]],
        rewards: NDArray[np.floating] | None = None,
        steps: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Let the filter decide about transitions, and note where each first step went."""
        count = len(returns)

        def write(chosen: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
            written = rows[chosen]
            self._write(written, positions)
            self._serial[positions] = self._offered + 1 + chosen
            if rewards is not None and steps is not None:
                ended = np.asarray(written.terminated)
                self._lanes.write(positions, rewards[chosen], steps[chosen], ended)

        outcome = self._ledger.offer(
            _flat(rows.obs, count), returns, write, self._move, _finite(rows, count)
        )
        self._size = len(self._ledger)
        for row, (episode, step) in enumerate(begun):
            episode.positions[step] = int(outcome.slots[row])
            episode.serials[step] = self._offered + 1 + row
        self._offered += count
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
            rows = Batch.stack([rows])
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
        self._serial = np.append(self._serial, np.zeros(self._rows - old, dtype=np.int64))
        if self._n_step > 1:
            self._lanes = self._lanes.grown(self._rows)

    def _move(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Close the gaps that the filter's choice has left."""
        if len(sources):
            self._meta[targets] = self._meta[sources]
            self._serial[targets] = self._serial[sources]
            if self._n_step > 1:
                self._lanes.move(sources, targets)
        self._serial[len(self._ledger) :] = 0
        moved = dict(zip(sources.tolist(), targets.tolist(), strict=True))
        for episode in self._episodes:
            episode.positions = [moved.get(position, position) for position in episode.positions]

    def sample_indices(self, batch_size: int | None) -> NDArray[np.int64]:
        """Draw positions uniformly; 0 gives all of them, oldest first."""
        self._steps_asked = 0
        if len(self) == 0:  # no return over n steps is known yet: shorter ones will do
            for episode in self._episodes:
                self._offer_n_steps(episode, episode.transitions(self._n_step, cut=True))
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
        if position < 0 or self._serial[position] != episode.serials[step]:
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
        lane, position = np.divmod(index, self._rows)
        return np.where(lane + 1 < self._lanes.steps[position], index + self._rows, index)

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
        longest_episode: most steps of an episode. Those of running episodes are held apart from the
            stored transitions, because Tianshou's collector reads finished episodes back.
        random_seed: of the buffer's generator.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        n_step: steps of a transition, the algorithm's `n_step_return_horizon`.
        gamma: the algorithm's discount factor; the filter sees the discounted sum of n rewards.
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
        n_step: int = 1,
        gamma: float = 0.99,
        admission: AdmissionFilter | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(size)
        self._prepare(
            1, longest_episode, random_seed, observation_space, n_step, gamma, admission, arguments
        )


class FrugalVectorReplayBuffer(_Admission, VectorReplayBuffer):
    """Tianshou's VectorReplayBuffer with admission: one pool and one filter for all environments.

    Args:
        total_size: number of transitions kept at most, over all environments.
        buffer_num: number of environments.
        longest_episode: most steps of an episode. Those of running episodes are held apart from the
            stored transitions, because Tianshou's collector reads finished episodes back.
        random_seed: of the buffer's generator.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        n_step: steps of a transition, the algorithm's `n_step_return_horizon`.
        gamma: the algorithm's discount factor; the filter sees the discounted sum of n rewards.
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
        n_step: int = 1,
        gamma: float = 0.99,
        admission: AdmissionFilter | None = None,
        **arguments: Any,
    ) -> None:
        VectorReplayBuffer.__init__(self, total_size, buffer_num)
        self.buffers = cast(Any, _NoSubBuffers(buffer_num))
        self._prepare(
            buffer_num,
            longest_episode,
            random_seed,
            observation_space,
            n_step,
            gamma,
            admission,
            arguments,
        )


def _bytes_of(batch: Any) -> int:
    """Count the bytes of the arrays in a batch."""
    values = (batch[key] for key in batch.get_keys())
    return sum(
        _bytes_of(value) if isinstance(value, Batch) else int(getattr(value, "nbytes", 0))
        for value in values
    )


def _follows(before: Batch, after: Batch) -> bool:
    """Tell whether a step goes on where the one before it arrived."""
    return np.array_equal(_flat(before.obs_next, 1), _flat(after.obs, 1))


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
