"""ReplayBuffer: a filter decides, a storage keeps, a sampler draws."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.controls import AdmitAll
from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter
from frugalrl.checks import check_choice, integer_from, refuse_class
from frugalrl.replay.intake import Intake
from frugalrl.replay.persistence import (
    KIND,
    VERSION,
    check_space,
    filter_state,
    restore_filter,
    restore_sampler,
    restore_storage,
    sampler_state,
    storage_state,
)
from frugalrl.replay.reading import all_below, all_finite
from frugalrl.replay.results import REFUSED, Batch, BufferStats, Outcome
from frugalrl.replay.samplers import Sampler, make_sampler
from frugalrl.replay.spaces import describe_space, flat_space, make_layout, restore_space
from frugalrl.replay.staging import Stage
from frugalrl.replay.storage import MOST_TRANSITIONS, Storage
from frugalrl.replay.validation import (
    capacity_from,
    check_dtype,
    slots_from,
)
from frugalrl.state_io import StateFileError, load_state, save_state

EVICTIONS = ("oldest", "random")

__all__ = ["DROP", "REFUSED", "REPLACE", "STORE", "Batch", "BufferStats", "Outcome", "ReplayBuffer"]


class ReplayBuffer:
    """Keeps what its filter admits and draws batches from it.

    A state that two consecutive transitions of an environment have in common is stored once.
    Everything drawn comes from the buffer's own generator.

    Args:
        capacity: most transitions held; the oldest goes when another comes. None: as many as
            `capacity_bytes` allows.
        observation_space: a Box of any shape.
        action_space: a Box, Discrete, MultiDiscrete or MultiBinary space.
        admission: decides what enters; None admits everything.
        sampler: "uniform", "prioritized", "large_batch" or a sampler.
        seed: of the generator.
        capacity_bytes: most bytes that `nbytes` may show, such as "512MB" or "2GiB", the filter's
            and the sampler's included.
        dtype: "float32" or "float16", for observations and float actions. Rewards are float32.
        environments: how many will be added at once; any other number is taken too.
        eviction: which transition goes when the buffer is full: the "oldest", or a "random" one, so
            that ages spread geometrically: mostly recent, with a long tail.

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
    ) -> None:
        check_choice("eviction", eviction, EVICTIONS)
        most, most_bytes = capacity_from(capacity, capacity_bytes)
        stored_as = check_dtype(dtype)
        layout = make_layout(observation_space, action_space, stored_as)
        rows = integer_from("environments", environments, 1)
        generator = np.random.Generator(np.random.PCG64(integer_from("seed", seed, 0)))
        refuse_class("admission", admission)
        decides = AdmitAll() if admission is None else admission
        if not isinstance(decides, AdmissionFilter):
            raise TypeError(f"admission={admission!r} is no filter; see frugalrl.AdmissionFilter")
        victims = None
        if eviction == "random":
            # A stream of its own, so that batches are drawn alike whatever is evicted.
            victims = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
        storage = Storage(layout, most, rows, victims)
        stage = Stage(layout, rows)
        draws = make_sampler(sampler)
        decides.begin(flat_space(observation_space))  # from now on it knows the bytes it will take
        intake = Intake(stage, storage, decides, draws, most_bytes)
        self._assemble(observation_space, action_space, stored_as, intake, most_bytes, generator)

    def _assemble(
        self,
        observation_space: Any,
        action_space: Any,
        dtype: str,
        intake: Intake,
        capacity_bytes: int | None,
        generator: np.random.Generator,
    ) -> None:
        """Put the parts together."""
        self.observation_space = observation_space
        self.action_space = action_space
        self.capacity_bytes = capacity_bytes
        self._dtype = dtype
        self._intake = intake
        self._storage = intake.storage
        self._sampler = intake.sampler
        self._layout = intake.storage.layout
        self._generator = generator

    def __len__(self) -> int:
        return len(self._storage)

    @property
    def capacity(self) -> int | None:
        """Most transitions held; None when only bytes are limited."""
        most = self._storage.capacity
        return None if most == MOST_TRANSITIONS else most

    @property
    def admission(self) -> AdmissionFilter:
        """The filter."""
        return self._intake.admission

    @property
    def sampler(self) -> Sampler:
        """The sampler."""
        return self._sampler

    @property
    def nbytes(self) -> int:
        """Bytes allocated in all: transitions, slack, staging, filter and sampler."""
        return self._intake.nbytes

    @property
    def stats(self) -> BufferStats:
        """Counters since the buffer was made."""
        return self._intake.stats

    def add(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
    ) -> Outcome:
        """Offer one transition of each environment, in order.

        Args:
            observations: (n, *shape), or `shape` for a single transition.
            actions: (n, *action shape).
            rewards: (n,).
            next_observations: (n, *shape), the true ones: never a reset's.
            terminated: (n,) whether the episode ended by itself.
            truncated: (n,) whether the episode was cut off.

        Returns:
            What became of each row. Rows with NaN or infinity are refused, counted in `stats` and
            warned of once.

        Raises:
            ValueError: a shape or a value is wrong; nothing was stored.
            TypeError: a type is wrong; nothing was stored.
        """
        return self._intake.add(
            observations, actions, rewards, next_observations, terminated, truncated
        )

    def sample(self, batch_size: int, batches: int | None = None) -> Batch:
        """Draw a batch, with replacement.

        Args:
            batch_size: B, transitions in a batch; the large_batch sampler draws a multiple of it.
            batches: K, for K batches drawn in one go, as arrays (K, B, ...); None for one batch
                with arrays (B, ...).

        Raises:
            ValueError: the buffer is empty or a number is out of range.
        """
        size = integer_from("batch_size", batch_size, 1) * self._sampler.multiple
        count = 1 if batches is None else integer_from("batches", batches, 1)
        if not len(self._storage):
            raise ValueError("the buffer is empty; add transitions before sampling")
        slots, weights = self._sampler.draw(
            self._storage, self._generator, count, size, self._intake.offered
        )
        if self._sampler.follows:
            self._intake.renumbering.give_out()
        return self._batch(slots, weights, (size,) if batches is None else (count, size))

    def transitions(self) -> Batch:
        """Copy out everything stored, oldest first."""
        slots = self._storage.oldest_first()
        return self._batch(slots, None, (len(slots),))

    def gather(self, slots: Any) -> Batch:
        """Copy out the transitions of (n,) slots that someone else has drawn.

        Without a byte limit the slots in use are 0 to `len(buffer) - 1`.

        Raises:
            TypeError: slots are no integers.
            ValueError: a slot holds nothing, or slots have more than one axis.
        """
        where = slots_from(slots)
        if where.ndim != 1:
            raise ValueError(f"slots has shape {where.shape}; expected (n,)")
        return self._batch(where, None, where.shape)

    def _batch(
        self, slots: NDArray[np.int64], weights: NDArray[np.float32] | None, lead: tuple[int, ...]
    ) -> Batch:
        """Gather slots into arrays with these leading axes."""
        layout = self._layout
        states, next_states, words, rewards, terminated, truncated = self._storage.gather(slots)
        actions = words.view(layout.action_dtype)[:, : layout.actions]
        if weights is None:
            weights = np.ones(len(slots), dtype=np.float32)
        shape = lead + layout.observation_shape
        return Batch(
            observations=states.reshape(shape),
            actions=actions.astype(layout.action_out, copy=False).reshape(
                lead + layout.action_shape
            ),
            rewards=rewards.reshape(lead),
            next_observations=next_states.reshape(shape),
            terminated=terminated.reshape(lead),
            truncated=truncated.reshape(lead),
            slots=slots.reshape(lead),
            weights=weights.reshape(lead),
        )

    def feedback(self, slots: Any, td_errors: Any) -> None:
        """Tell the sampler the temporal-difference errors of drawn transitions.

        Transitions may be added between the draw and this call, also where that numbers all slots
        anew (at the end of a filtered warm-up, or under a byte limit): slots are understood as this
        buffer's last `sample` meant them, and those that are gone are passed over. With several
        draws before this call, slots of the earlier ones are right as long as nothing was
        renumbered between the draws. A loaded buffer knows nothing of draws before it was saved.

        Args:
            slots: as `Batch.slots` gave them, of any shape.
            td_errors: as many errors, finite. Their sign does not matter.

        Raises:
            TypeError: slots are no integers.
            ValueError: shapes differ, a slot is out of range or an error is not finite.
        """
        if not self._sampler.follows:
            return
        where = slots_from(slots).reshape(-1)
        errors = np.ascontiguousarray(td_errors, dtype=np.float64).reshape(-1)
        if where.shape != errors.shape:
            raise ValueError(f"td_errors has {len(errors)} values for {len(where)} slots")
        known = self._intake.renumbering.known(self._storage.limit)
        if not all_below(where, known):
            raise ValueError(f"slots must lie from 0 to {known - 1}")
        if not all_finite(errors):
            raise ValueError("td_errors holds NaN or infinity; the agent has diverged")
        self._sampler.feedback(*self._intake.renumbering.present(where, errors))

    def state_dict(self) -> dict[str, Any]:
        """Give everything as nested dicts of arrays and JSON values."""
        victims = self._storage.victims
        return {
            "capacity": self._storage.capacity,
            "capacity_bytes": self.capacity_bytes,
            "dtype": self._dtype,
            "observation_space": describe_space(self.observation_space),
            "action_space": describe_space(self.action_space),
            "storage": storage_state(self._storage),
            "admission": filter_state(self.admission),
            "sampler": sampler_state(self._sampler),
            "generator": self._generator.bit_generator.state,
            "victims": None if victims is None else victims.bit_generator.state,
            "intake": self._intake.state_dict(),
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
            spaces = restore_space(state["observation_space"]), restore_space(state["action_space"])
            dtype = check_dtype(state["dtype"])
            layout = make_layout(*spaces, dtype)
            most, most_bytes = capacity_from(state["capacity"], state["capacity_bytes"])
            storage = restore_storage(state["storage"], layout, most)
            if state["victims"] is not None:
                storage.victims = np.random.Generator(np.random.PCG64(0))
                storage.victims.bit_generator.state = state["victims"]
            intake = Intake(
                Stage(layout, 1),
                storage,
                restore_filter(state["admission"], admission, storage),
                restore_sampler(state["sampler"], sampler, storage),
                most_bytes,
            )
            intake.load_state_dict(state["intake"])
            generator = np.random.Generator(np.random.PCG64(0))
            generator.bit_generator.state = state["generator"]
        except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            raise ValueError(f"not the state of a replay buffer ({error!r})") from error
        made = cls.__new__(cls)
        made._assemble(*spaces, dtype, intake, most_bytes, generator)
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
