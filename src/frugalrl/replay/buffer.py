"""ReplayBuffer: rows come in, a filter decides, a storage keeps, a sampler draws.

The way of a transition: `add` -> rows checked and staged (`intake`) -> `admission.offer` ->
`Storage.write` -> the sampler is told. It is the same for every filter and sampler. What an
interrupt leaves half done, the next use of the buffer finishes first.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

import numpy as np
from gymnasium.spaces.utils import flatten_space
from numpy.typing import NDArray

from frugalrl.admission.controls import AdmitAll, RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.admission.released import ReleasedFilter
from frugalrl.checks import check_choice, integer_from, refuse_class, warn_caller
from frugalrl.replay.budget import ByteBudget
from frugalrl.replay.intake import Intake, Stage, in_order, in_rows
from frugalrl.replay.results import REFUSED, Batch, BufferStats, Outcome
from frugalrl.replay.samplers import SAMPLERS, Sampler, make_sampler
from frugalrl.replay.spaces import (
    check_space,
    describe_space,
    fields_from,
    make_layout,
    restore_space,
)
from frugalrl.replay.storage import MOST_TRANSITIONS, Storage, make_victims
from frugalrl.state_io import StateFileError, load_state, save_state

KIND = "replay buffer"
VERSION = 3

_ROWS_AT_ONCE = 1024
"""Rows that `extend` stages at once."""
_FILTERS: tuple[Any, ...] = AdmitAll, RandomAdmit, FrugalFilter, ReleasedFilter
_UNITS = {"": 1, **{f"{p}b": 1000**i for i, p in enumerate(("", "k", "m", "g", "t"))}}
_UNITS |= {f"{p}ib": 1024**i for i, p in enumerate(("k", "m", "g", "t"), start=1)}


class ReplayBuffer:
    """Keeps what its filter admits and draws batches from it.

    A state that two consecutive transitions of an environment have in common is stored once.
    Everything drawn comes from the buffer's own generator. A copy (`copy.deepcopy`, `pickle`) goes
    on exactly as the original would. One thread at a time may use a buffer.

    Args:
        capacity: most transitions held. None: as many as `capacity_bytes` allows.
        observation_space: a Box of any shape.
        action_space: a Box, Discrete, MultiDiscrete or MultiBinary space.
        admission: decides what enters; None admits everything.
        sampler: "uniform", "prioritized", "large_batch" or a sampler.
        seed: of the generator.
        capacity_bytes: most bytes that `nbytes` may show, such as "512MB" or "2GiB", the filter's
            and the sampler's included.
        dtype: "float32" or "float16", for observations and float actions. Rewards are float32.
        environments: how many will be added at once; any other number is taken too.
        eviction: which transition goes when the buffer is full: the "oldest", or a "random" one
            and after it the 49 next in age, so that ages spread geometrically: mostly recent, with
            a long tail.
        extra_fields: (name, shape, dtype) of what every transition has besides, such as
            `("discount", (), "float32")`: keyword arguments of `add`, entries of `Batch.extra`.

    Raises:
        TypeError: a space or an argument is of the wrong kind.
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        observation_space: Any,
        action_space: Any,
        admission: AdmissionFilter | None = None,
        sampler: str | Sampler = "uniform",
        seed: int = 0,
        capacity_bytes: int | str | None = None,
        dtype: str = "float32",
        environments: int = 1,
        eviction: str = "oldest",
        extra_fields: Iterable[tuple[str, tuple[int, ...], Any]] = (),
    ) -> None:
        if capacity is None and capacity_bytes is None:
            raise ValueError("capacity is None and so is capacity_bytes; give at least one of them")
        most = MOST_TRANSITIONS if capacity is None else integer_from("capacity", capacity, 1)
        if most > MOST_TRANSITIONS:
            raise ValueError(f"capacity={most} is out of range; use at most {MOST_TRANSITIONS}")
        most_bytes = None if capacity_bytes is None else _bytes_from(capacity_bytes)
        type_name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
        check_choice("dtype", type_name, ("float32", "float16"))
        layout = make_layout(observation_space, action_space, type_name, fields_from(extra_fields))
        rows = integer_from("environments", environments, 1)
        number = integer_from("seed", seed, 0)
        victims = make_victims(eviction, number)
        refuse_class("admission", admission)
        if admission is None:
            admission = AdmitAll()
        if not isinstance(admission, AdmissionFilter):
            raise TypeError(f"admission={admission!r} is no filter; see frugalrl.AdmissionFilter")
        drawn_by = make_sampler(sampler)
        flat: Any = flatten_space(observation_space)
        admission.begin(flat)  # from now on it knows its bytes
        self.observation_space, self.action_space = observation_space, action_space
        self.capacity_bytes = most_bytes
        self._generator = np.random.Generator(np.random.PCG64(number))
        self._storage = Storage(layout, most, rows, victims)
        self._intake = Intake(self._storage, admission, drawn_by)
        self._intake.stage = self._stage = Stage(layout, rows)
        if most_bytes is not None:
            self._intake.budget = ByteBudget(most_bytes, self._intake)
        self._turn = _Turn(self._intake)
        drawn_by.begin()  # last, so that a sampler is free again if the limit was refused

    # --- looking at it -------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._turn:
            return len(self._storage)

    def __repr__(self) -> str:
        size = f"{len(self):,}"
        if self.capacity is not None:
            size += f" of {self.capacity:,}"
        limit = "" if self.capacity_bytes is None else f" of {self.capacity_bytes / 1e6:,.1f}"
        return (
            f"ReplayBuffer({size} transitions, {self.nbytes / 1e6:,.1f}{limit} MB, "
            f"admission={type(self.admission).__name__}, sampler={self.sampler.name!r}, "
            f"eviction={self.eviction!r})"
        )

    @property
    def capacity(self) -> int | None:
        """Most transitions held; None when only bytes are limited."""
        most = self._storage.capacity
        return None if most == MOST_TRANSITIONS else most

    @property
    def eviction(self) -> str:
        """Which transition goes when the buffer is full."""
        return "oldest" if self._storage.victims is None else "random"

    @property
    def extra_fields(self) -> tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]:
        """What every transition has besides."""
        return self._storage.layout.extra

    @property
    def admission(self) -> AdmissionFilter:
        """The filter."""
        return self._intake.admission

    @property
    def sampler(self) -> Sampler:
        """The sampler."""
        return self._intake.sampler

    @property
    def nbytes(self) -> int:
        """Bytes allocated in all: transitions, slack, staging, filter and sampler."""
        with self._turn:
            return self._intake.nbytes

    @property
    def stats(self) -> BufferStats:
        """Counters since the buffer was made."""
        with self._turn:
            return self._storage.stats

    # --- transitions in ------------------------------------------------------------------------

    def add(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
        **extra: Any,
    ) -> Outcome:
        """Offer one transition of each environment, in order.

        Args:
            observations: (n, *shape), or `shape` for a single transition.
            actions: (n, *action shape).
            rewards: (n,).
            next_observations: (n, *shape), the true ones: never a reset's.
            terminated: (n,) whether the episode ended by itself.
            truncated: (n,) whether the episode was cut off.
            **extra: (n, *field shape), the buffer's `extra_fields`.

        Returns:
            What became of each row. Rows with NaN or infinity are refused, counted in `stats` and
            warned of once.

        Raises:
            ValueError: a shape or a value is wrong; nothing was stored.
            TypeError: a type is wrong; nothing was stored.
        """
        given = (observations, actions, rewards, next_observations, terminated, truncated)
        with self._turn:
            layout, stage = self._storage.layout, self._stage
            if extra or layout.extra:
                given = (*given, *in_order(layout, extra))
            if getattr(observations, "shape", None) != stage.shape:
                given = in_rows(layout, given)
                if (rows := len(given[0])) != stage.rows:
                    made = Stage(layout, rows)
                    if self._intake.budget is not None:
                        more = 8 * max(0, rows - len(self._storage.last))
                        self._intake.budget.check(made.nbytes - stage.nbytes + more)
                    self._storage.expect_environments(rows)
                    stage = self._stage = self._intake.stage = made
            return self._add_rows(stage, given)

    def extend(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
        **extra: Any,
    ) -> Outcome:
        """Offer many transitions of one environment, in order, of one or more episodes.

        Everything is as for `add`, with n rows that follow each other in time. Decisions, and
        states that neighbours share, are those of adding them one by one. Rows are taken in blocks
        of 1,024: where one is wrong, or an interrupt comes, those before it are stored.
        """
        given = (observations, actions, rewards, next_observations, terminated, truncated)
        with self._turn:
            storage = self._storage
            columns = [np.asarray(v) for v in (*given, *in_order(storage.layout, extra))]
            shapes = [values.shape for values in columns]
            if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
                raise ValueError(
                    f"extend wants as many rows of everything, but the shapes are {shapes}"
                )
            outcomes = [Outcome(np.empty(0, dtype=np.int8), np.empty(0, dtype=np.int64))]
            for first in range(0, len(columns[0]), _ROWS_AT_ONCE):
                block = [values[first : first + _ROWS_AT_ONCE] for values in columns]
                stage = Stage(storage.layout, len(block[0]), is_sequence=True)
                outcomes.append(self._add_rows(stage, block))
            if self.capacity_bytes is None:
                storage.give_back()
        codes, slots = zip(*outcomes, strict=True)
        return Outcome(np.concatenate(codes), np.concatenate(slots))

    def _add_rows(self, stage: Stage, given: Iterable[Any]) -> Outcome:
        """Deal with rows, which count as added once they are staged."""
        rows = stage.take(given)
        outcome = self._intake.add(rows)
        if rows.refused and self._storage.counters["refused"] == rows.refused:
            first, kind = outcome.codes.tolist().index(REFUSED), self._storage.layout.float_dtype
            warn_caller(  # comes last, since it may be raised as an error
                f"refused {rows.refused} transition(s) with NaN, infinity or a number beyond "
                f"{np.finfo(kind).max:g}, the most that {kind} holds (first in row {first}); "
                "further ones are only counted in stats.rejected_nonfinite"
            )
        return outcome

    def clear(self) -> None:
        """Remove every transition.

        What is removed counts as evicted. The filter forgets the transitions, but not what it knows
        of the environment; memory is given back.
        """
        with self._turn:
            for slot in self._storage.oldest_first().tolist():
                self._intake.remove(slot)
            self._storage.trim()
            self.sampler.resize(len(self._storage.slots))

    # --- transitions out -----------------------------------------------------------------------

    def sample(self, batch_size: int, batches: int | None = None) -> Batch:
        """Draw a batch, with replacement.

        Args:
            batch_size: B, transitions in a batch; the large_batch sampler draws a multiple of it.
            batches: K, for K batches drawn in one go, as arrays (K, B, ...); None for one batch
                with arrays (B, ...).

        Raises:
            ValueError: the buffer is empty or a number is out of range.
        """
        size = integer_from("batch_size", batch_size, 1) * self.sampler.multiple
        count = 1 if batches is None else integer_from("batches", batches, 1)
        with self._turn:
            storage = self._storage
            if not len(storage):
                raise ValueError("the buffer is empty; add transitions before sampling")
            slots, weights = self.sampler.draw(
                storage, self._generator, count, size, storage.offered
            )
            return storage.gather(slots, (size,) if batches is None else (count, size), weights)

    def transitions(self) -> Batch:
        """Copy out everything stored, oldest first."""
        with self._turn:
            slots = self._storage.oldest_first()
            return self._storage.gather(slots, slots.shape)

    def gather(self, slots: Any) -> Batch:
        """Copy out the transitions of (n,) slots that someone else has drawn.

        Raises:
            TypeError: slots are no integers.
            ValueError: a slot holds nothing, or slots have more than one axis.
        """
        where = _slots_from(slots)
        if where.ndim != 1:
            raise ValueError(f"slots has shape {where.shape}; expected (n,)")
        with self._turn:
            return self._storage.gather(where, where.shape)

    @property
    def has_gaps(self) -> bool:
        """Whether the slots that hold a transition are others than 0 to `len(buffer) - 1`.

        A byte limit and the end of a filtered warm-up leave gaps, which later transitions fill.
        """
        with self._turn:
            return not self._storage.dense

    def slots(self) -> NDArray[np.int64]:
        """List the slots that hold a transition, in ascending order."""
        with self._turn:
            every = np.arange(self._storage.limit)
            return every[self._storage.occupied(every)]

    def feedback(self, slots: Any, td_errors: Any) -> None:
        """Tell the sampler the temporal-difference errors of drawn transitions.

        Transitions may be added between the draw and this call; slots that are free by now are
        passed over.

        Args:
            slots: as `Batch.slots` gave them, of any shape.
            td_errors: as many errors, finite. Their sign does not matter.

        Raises:
            TypeError: slots are no integers.
            ValueError: shapes differ, a slot is out of range or an error is not finite.
        """
        if not self.sampler.follows:
            return
        where = _slots_from(slots).reshape(-1)
        errors = np.ascontiguousarray(td_errors, dtype=np.float64).reshape(-1)
        if where.shape != errors.shape:
            raise ValueError(f"td_errors has {len(errors)} values for {len(where)} slots")
        if not np.isfinite(errors).all():
            raise ValueError("td_errors holds NaN or infinity; the agent has diverged")
        with self._turn:
            if not ((where >= 0) & (where < self._storage.capacity)).all():
                raise ValueError(f"slots must lie from 0 to {self._storage.capacity - 1}")
            is_there = where < self._storage.limit  # not after `clear`
            self.sampler.feedback(where[is_there], errors[is_there])

    # --- copies and files ----------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = type(self.admission), type(self.sampler)
        return type(self).from_state_dict, (self.state_dict(), *kinds)

    def state_dict(self) -> dict[str, Any]:
        """Give everything as nested dicts of arrays and JSON values."""
        with self._turn:
            victims = self._storage.victims
            if self.sampler.follows:
                self.sampler.resize(len(self._storage.slots))  # which an add may have grown
            return {
                "capacity": self._storage.capacity,
                "capacity_bytes": self.capacity_bytes,
                "dtype": self._storage.layout.float_dtype.name,
                "extra_fields": [
                    [name, list(shape), dtype.name] for name, shape, dtype in self.extra_fields
                ],
                "observation_space": describe_space(self.observation_space),
                "action_space": describe_space(self.action_space),
                "storage": self._storage.state_dict(),
                "rows": self._stage.rows,  # counts in `nbytes`
                "admission": {
                    "name": self.admission.name,
                    "state": self.admission.state_dict(),
                },
                "sampler": {"name": self.sampler.name, "state": self.sampler.state_dict()},
                "generator": self._generator.bit_generator.state,
                "victims": None if victims is None else victims.bit_generator.state,
            }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], admission: Any = None, sampler: Any = None
    ) -> ReplayBuffer:
        """Make the buffer that `state_dict` described; decisions and draws go on identically.

        Args:
            state: as `state_dict` gave it.
            admission: class of the filter if it is not one of this library's, or a function that
                makes it from its state.
            sampler: class of the sampler if it is not one of this library's.

        Raises:
            ValueError: the state is not that of a buffer.
        """
        try:
            made = cls.__new__(cls)
            ReplayBuffer.__init__(
                made,
                state["capacity"],
                observation_space=restore_space(state["observation_space"]),
                action_space=restore_space(state["action_space"]),
                capacity_bytes=state["capacity_bytes"],
                dtype=state["dtype"],
                eviction="oldest" if state["victims"] is None else "random",
                extra_fields=state["extra_fields"],
            )
            storage = made._storage
            storage.load_state_dict(state["storage"])
            rows = integer_from("rows", state["rows"], 0)
            if rows > len(storage.last):
                raise ValueError(f"rows={rows} are more than there are environments")
            intake = made._intake
            intake.stage = made._stage = Stage(storage.layout, rows)
            intake.admission = _part_from("admission", state["admission"], admission, _FILTERS)
            if not isinstance(intake.admission, AdmissionFilter):
                raise TypeError(f"admission={admission!r} does not make a filter")
            intake.sampler = _part_from("sampler", state["sampler"], sampler, SAMPLERS.values())
            if not intake.sampler.fits(storage.oldest_first(), len(storage.slots)):
                raise ValueError("the sampler's state does not fit what is stored")
            intake.sampler.begin()
            made._generator.bit_generator.state = state["generator"]
            if storage.victims is not None:
                storage.victims.bit_generator.state = state["victims"]
        except ValueError:
            raise
        except Exception as error:  # whatever a file that anyone can write leads to
            raise ValueError(f"not the state of a replay buffer ({error!r})") from error
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the buffer to a file, atomically. The file holds no slack and no code."""
        save_state(path, self.state_dict(), KIND, VERSION)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        observation_space: Any = None,
        action_space: Any = None,
        admission: Any = None,
        sampler: Any = None,
    ) -> ReplayBuffer:
        """Read a buffer that `save` wrote; decisions and draws go on identically.

        Args:
            path: the file.
            observation_space: what the file's must equal, if given.
            action_space: what the file's must equal, if given.
            admission: as for `from_state_dict`.
            sampler: as for `from_state_dict`.

        Raises:
            StateFileError: the file is missing, damaged, of another kind, version or space.
        """
        state = load_state(path, KIND, VERSION)
        try:
            made = cls.from_state_dict(state, admission, sampler)
            check_space("observation_space", observation_space, made.observation_space)
            check_space("action_space", action_space, made.action_space)
        except ValueError as error:
            raise StateFileError(f"{os.fspath(path)}: {error}") from error
        return made


class _Turn:
    """Lets one thread at a time use a buffer, and first finishes what was interrupted.

    Re-entrant, so that a thread whose interrupt came before it could give its turn up can go on.
    """

    def __init__(self, intake: Intake) -> None:
        self._lock = threading.RLock()
        self._intake = intake
        self._user: Any = None  # the call whose turn it is

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise RuntimeError(
                "this buffer is in use by another thread; use it from one thread at a time, for "
                "instance under a threading.Lock"
            )
        user = sys._getframe(1)
        frame: FrameType | None = user
        while self._user is not None and frame is not None:
            if frame is self._user:
                self._lock.release()
                raise RuntimeError(
                    "this buffer is in the middle of a call, which a signal handler or a filter "
                    "has come in between; use it when that call has returned"
                )
            frame = frame.f_back
        self._user = user
        if self._intake.is_interrupted:
            try:
                self._intake.carry_out()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        self._user = None
        self._lock.release()


def _bytes_from(value: Any) -> int:
    """Read a number of bytes, such as 1000000, "512MB" or "2GiB"."""
    if isinstance(value, str):
        parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([a-zA-Z]*)\s*", value)
        unit = _UNITS.get(parts[2].lower()) if parts else None
        if parts is None or unit is None:
            raise ValueError(
                f"capacity_bytes={value!r} is no size; write it as 512MB, 1.5GB, 2GiB or a number"
            )
        value = int(float(parts[1]) * unit)
    return integer_from("capacity_bytes", value, 1)


def _slots_from(value: Any) -> NDArray[np.int64]:
    """Give slots as a contiguous array; a single one as an array of one."""
    slots = np.asarray(value)
    # An empty list has no type of its own and counts as float.
    if slots.size and slots.dtype.kind not in "iu":
        raise TypeError(f"slots has dtype {slots.dtype}; expected integers")
    return np.array(slots, dtype=np.int64, order="C", ndmin=1)


def _part_from(argument: str, saved: dict[str, Any], made_by: Any, known: Any) -> Any:
    """Make a filter or a sampler from its name and state.

    By the class, or function of its state, that was given; by one of the known if None was.
    """
    name, what = saved["name"], "filter" if argument == "admission" else argument
    made_by = made_by or next((it for it in known if it.name == name), None)
    if made_by is None:
        raise ValueError(
            f"the {what} {name!r} is not one of this library's; give its class as {argument}="
        )
    known_as = getattr(made_by, "name", name)
    if isinstance(known_as, str) and known_as != name:
        before = next((it.__name__ for it in known if it.name == name), name)
        given = getattr(made_by, "__name__", known_as)
        raise ValueError(f"the saved {what} is {before}, not {given}; use one of that kind")
    return getattr(made_by, "from_state_dict", made_by)(saved["state"])
