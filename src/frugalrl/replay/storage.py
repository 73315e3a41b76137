"""Where transitions are kept: slots in order of age, every state once, eviction.

Compiled functions take all arrays of a storage as one plain tuple, `Kept` to them:

- `slots` (n,) of `SLOT`: one record per transition. A free slot has -1 for its state and, as
  `newer`, the slot that is used after it.
- `payload` (n, words) uint32: the bytes of the action and of extra fields.
- `states` (m, words) uint32: the bytes of the states. Copying and comparing bits keeps every value,
  and -0.0, exactly.
- `holders` (m,) int32: how many transitions hold the state, and in the higher bits one more than
  the environment whose last one it is; for a free state the next free one, coded as `-2 - next`.
- `last` (environments,) int32: the next state of the transition each environment stored last, -1
  when it is gone.
- `control` (1,) of `CONTROL`: list heads, counters, and how far the staged rows are dealt with.

A compiled call is not interrupted, so what one of them does happens as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, REPLACE, STORE
from frugalrl.checks import integer_from
from frugalrl.compiling import compiled
from frugalrl.replay.results import REFUSED

if TYPE_CHECKING:
    from frugalrl.replay.spaces import Layout
    from frugalrl.replay.staging import Stage

MOST_TRANSITIONS = 2**28
"""Two states per transition, and two flags beside a state's id, fill 31 bits."""

SLOT = np.dtype(
    [
        ("state", np.int32),
        ("next_and_flags", np.int32),
        ("older", np.int32),
        ("newer", np.int32),
        ("reward", np.float32),
    ]
)
TERMINATED, TRUNCATED, FLAG_BITS = 1, 2, 2
COUNT, COUNT_BITS = 3, 2
"""Of `holders`: a state is held by the transition that ends in it and the one that begins."""

COUNTERS = ("stored", "replaced", "dropped", "evicted", "refused")
CONTROL = np.dtype(
    [
        (name, np.int64)
        for name in (
            # The list of ages, the list of free slots, and how many slots were ever used.
            "held", "oldest", "youngest", "free_slot", "slots_used",
            "states_held", "free_state", "states_used",
            # Random eviction: the transition that goes next, -1 to draw one, and how many of this
            # run are left, it included.
            "run_next", "run_left",
            *COUNTERS,
            # Whether something is under way: rows that are staged, how many of them are decided
            # and written; one more than the slot that was evicted last, until all know of it.
            "unfinished", "staged", "decided", "victim",
        )
    ]
)  # fmt: skip

RUN_LENGTH = 50
"""Transitions that random eviction takes in the order of their age, so that the states which they
share leave with them."""
_LEAST_GROWTH = 64
_GROWTH_SHIFT = 5
_JUST_RELEASED = -2
_MOST_SLACK, _SLACK_OF_ANY = 16, 2**24
"""A loaded storage may allocate so many times what is in it, and so many bytes beside that."""

# What `write_rows` answers; also a slot or -1, see there. The last three are a filter's faults.
DONE, NO_ROOM, BAD_CODE, BAD_STORE, BAD_REPLACE = range(-2, -7, -1)
_FAULTS = {
    BAD_CODE: "is not DROP, STORE or REPLACE",
    BAD_STORE: "does not take the next free slot",
    BAD_REPLACE: "replaces a slot that holds nothing",
}

Slots = NDArray[np.int64]


class Kept(NamedTuple):
    """The arrays of a storage, as this file's first lines describe them."""

    slots: Any
    payload: Any
    states: Any
    holders: Any
    last: Any
    control: Any


class Staged(NamedTuple):
    """Rows that wait to be written; see `staging`."""

    states: Any
    """(2, n, words) uint32, states and next states."""
    payload: Any
    """(n, words) uint32."""
    rewards: Any
    """(n,) float32."""
    rows: Any
    """(n,) of `ROW`."""


class Drawn(NamedTuple):
    """Copies of some transitions, one row each."""

    states: NDArray[np.float32]
    next_states: NDArray[np.float32]
    payload: NDArray[Any]
    """(n,) of the layout's payload."""
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


def grown(rows: int) -> int:
    """Rows after growing: by a thirty-second, since reallocating moves no bytes on large arrays.

    Small steps are what keeps the slack, and so the bytes per transition, small.
    """
    return rows + max(_LEAST_GROWTH, rows >> _GROWTH_SHIFT)


class Storage:
    """Keeps transitions in slots that never change their number.

    Args:
        layout: of a transition.
        capacity: most transitions held.
        environments: how many are expected; more are taken as they come.
        victims: draws the transitions that are evicted; None evicts the oldest.
    """

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        environments: int,
        victims: np.random.Generator | None = None,
    ) -> None:
        self.layout = layout
        self.capacity = capacity
        self.victims = victims
        self._given = 0
        self.slots = np.empty(0, dtype=SLOT)
        self.payload = np.empty((0, layout.payload_words), dtype=np.uint32)
        self.states = np.empty((0, layout.state_words), dtype=np.uint32)
        self.holders = np.empty(0, dtype=np.int32)
        self.control = np.zeros(1, dtype=CONTROL)
        for name in ("oldest", "youngest", "free_slot", "free_state", "run_next"):
            self.control[name] = -1
        # Arrays are resized in place, so these stay theirs.
        self._set_last(np.full(environments, -1, dtype=np.int32))
        self.unfinished, self.staged, self.decided, self.victim = (
            self.control[name] for name in ("unfinished", "staged", "decided", "victim")
        )

    def _set_last(self, last: NDArray[np.int32]) -> None:
        """Keep the last states of environments in this array from now on."""
        self.parts = (self.slots, self.payload, self.states, self.holders, last, self.control)

    @property
    def last(self) -> NDArray[np.int32]:
        """(environments,) the state each arrived at last, -1 when it is gone."""
        return self.parts[4]

    def _number(self, name: str) -> int:
        return int(self.control[name][0])

    def __len__(self) -> int:
        return self._number("held")

    @property
    def nbytes(self) -> int:
        """Bytes allocated, used or not."""
        return sum(array.nbytes for array in self.parts)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return SLOT.itemsize + 4 * self.payload.shape[1]

    @property
    def state_bytes(self) -> int:
        """Bytes of one state."""
        return 4 * int(self.states.shape[1]) + self.holders.itemsize

    @property
    def limit(self) -> int:
        """One more than the highest slot ever occupied."""
        return self._number("slots_used")

    @property
    def dense(self) -> bool:
        """Whether every slot below `limit` is occupied."""
        return len(self) == self.limit

    @property
    def allocated_slots(self) -> int:
        """Slots there is memory for; an interrupt may have left one array longer than the other."""
        return min(len(self.slots), len(self.payload))

    @property
    def allocated_states(self) -> int:
        """States there is memory for."""
        return min(len(self.states), len(self.holders))

    @property
    def free_states(self) -> int:
        """States that can be written before memory must grow."""
        return self.allocated_states - self._number("states_held")

    @property
    def free_slots(self) -> int:
        """Slots that can be written before memory must grow or something must go."""
        return min(self.allocated_slots, self.capacity) - len(self)

    @property
    def counters(self) -> dict[str, int]:
        """What became of all rows so far."""
        return {name: self._number(name) for name in COUNTERS}

    @property
    def offered(self) -> int:
        """All rows so far."""
        return sum(self._number(name) for name in COUNTERS if name != "evicted")

    def resize_slots(self, rows: int) -> None:
        """Allocate a number of slots; those that are used must be among them."""
        # refcheck is off because compiled code keeps no references, and no views are handed out.
        self.slots.resize(rows, refcheck=False)
        self.payload.resize((rows, self.payload.shape[1]), refcheck=False)

    def resize_states(self, rows: int) -> None:
        """Allocate a number of states, moving those that lie beyond it."""
        if rows < self._number("states_used"):
            move_states_below(self.parts, rows)
        self.states.resize((rows, self.states.shape[1]), refcheck=False)
        self.holders.resize(rows, refcheck=False)

    def reserve(self, rows: int) -> None:
        """Grow until a number of rows can be written without growing."""
        wanted = min(rows, self.capacity - len(self))
        while self.free_slots < wanted:
            self.resize_slots(min(grown(self.allocated_slots), self.capacity))
        while self.free_states < 2 * rows:
            self.resize_states(grown(self.allocated_states))

    def trim(self) -> None:
        """Give back the memory of free states, and of slots where nothing is held."""
        self.resize_states(self._number("states_held"))
        forget_slots(self.parts)
        if not len(self):
            self.resize_slots(0)

    def expect_environments(self, environments: int) -> None:
        """Remember the last state of at least so many environments."""
        missing = environments - len(self.last)
        if missing > 0:
            self._set_last(np.append(self.last, np.full(missing, -1, dtype=np.int32)))

    def next_slots(self, rows: int) -> Slots:
        """Give the slots that the next rows take, in order; fewer where there are no more."""
        free = np.empty(rows, dtype=np.int64)
        return free[: list_free(self.parts, self.capacity, free)]

    def write(self, stage: Stage, first: int, codes: NDArray[np.int8], slots: Slots) -> int | None:
        """Carry out decisions about staged rows, going on where an earlier call stopped.

        Args:
            stage: holds the rows.
            first: the row that the first decision is about.
            codes: (k,) of the decisions.
            slots: (k,) of the decisions.

        Returns:
            None, or where the last row is to be stored and was given no slot, the next free one; -1
            if there is none.

        Raises:
            RuntimeError: a decision is impossible; those before it have been carried out.
        """
        result = write_rows(self.parts, stage.parts, first, codes, slots, self.capacity)
        while result == NO_ROOM:
            self.reserve(len(codes))
            result = write_rows(self.parts, stage.parts, first, codes, slots, self.capacity)
        if result == DONE:
            return None
        if result in _FAULTS:
            row = int(self.decided[0]) - first
            raise RuntimeError(
                f"the filter's decision {int(codes[row])} with slot {int(slots[row])} "
                f"{_FAULTS[result]}; frugalrl.check_filter finds out more"
            )
        return result

    def evict(self, slot: int | None = None) -> int:
        """Free a slot, this one or that of the oldest or of a random transition; gives which.

        Random ones go in runs: after the one that was drawn those that are next in age, up to
        `RUN_LENGTH` in all, unless the next is gone or there is none. The slot stays noted as
        `victim` (plus 1) until the caller sets that to 0.
        """
        run = 1
        if slot is None and self.victims is None:
            slot = self._number("oldest")
        elif slot is None:
            slot, run = self._number("run_next"), self._number("run_left")
            if slot < 0:
                slot, run = self._random_slot(), RUN_LENGTH
        evict_slot(self.parts, slot, run)
        return slot

    def _random_slot(self) -> int:
        """Draw an occupied slot."""
        assert self.victims is not None
        states, limit = self.slots["state"], self.limit
        slot = int(self.victims.random() * limit)
        while states[slot] < 0:
            slot = int(self.victims.random() * limit)
        return slot

    def release(self, stage: Stage, slots: Slots) -> None:
        """Free slots that the filter has given up; free ones stay free.

        Raises:
            RuntimeError: there is no such slot.
        """
        if len(slots) and not (slots.min() >= 0 and slots.max() < self.limit):
            raise RuntimeError(
                f"the filter gives up slots from {slots.min()} to {slots.max()}, but there are "
                f"{self.limit}; frugalrl.check_filter finds out more"
            )
        release_slots(self.parts, stage.parts, slots)

    def occupied(self, slots: Slots) -> NDArray[np.bool_]:
        """Tell which of the slots, all below `limit`, hold a transition."""
        return np.asarray(self.slots["state"][slots] >= 0)

    def oldest_first(self) -> Slots:
        """List the occupied slots, oldest first."""
        slots: Slots = follow_list(self.slots, self._number("oldest"), len(self))
        return slots

    def gather(self, slots: Slots) -> Drawn:
        """Copy transitions out.

        Raises:
            ValueError: a slot holds nothing.
        """
        count, layout = len(slots), self.layout
        states = np.empty((2, count, self.states.shape[1]), dtype=np.uint32)
        payload = np.empty((count, self.payload.shape[1]), dtype=np.uint32)
        rewards = np.empty(count, dtype=np.float32)
        flags = np.empty((2, count), dtype=np.bool_)
        wrong = copy_out(self.parts, slots, states, payload, rewards, flags)
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} holds no transition")
        floats = layout.as_floats(states).astype(np.float32, copy=False)
        return Drawn(floats[0], floats[1], layout.as_fields(payload), rewards, flags[0], flags[1])

    def state_dict(self) -> dict[str, Any]:
        """Give the contents and their order, without slack but with how much of it there is."""
        held, layout = self.oldest_first(), self.layout
        records = self.slots[held]
        both = np.concatenate([records["state"], records["next_and_flags"] >> FLAG_BITS])
        # (states,) their ids in the order in which transitions name them, whatever the ids are.
        ids, first = np.unique(both, return_index=True)
        ids = ids[np.argsort(first)]
        place = np.full(self.allocated_states + 1, -1, dtype=np.int32)
        place[ids] = np.arange(len(ids))
        free = follow_list(self.slots, self._number("free_slot"), self.limit - len(self))
        fields = layout.as_fields(self.payload[held])
        return {
            # Every slot once: those of the transitions, oldest first, then the free ones in the
            # order in which they will be used.
            "slots": np.concatenate([held, free]),
            "observations": np.array(layout.as_floats(self.states[ids])),
            "observation": place[both[: len(held)]],
            "next_observation": place[both[len(held) :]],
            "rewards": np.array(records["reward"]),
            "terminated": (records["next_and_flags"] & TERMINATED) != 0,
            "truncated": (records["next_and_flags"] & TRUNCATED) != 0,
            "fields": {name: np.array(fields[name]) for name in layout.payload.names or ()},
            "last": place[self.last],  # -1 stays -1: the extra entry is the last
            # The next growth, and with a byte limit the next eviction, depends on these.
            "slots_allocated": self.allocated_slots,
            "states_allocated": self.allocated_states,
            "run": [self._number("run_next"), self._number("run_left")],
            "counters": self.counters,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; this storage must be empty.

        Raises:
            ValueError: the contents contradict each other or are not finite.
        """
        layout = self.layout
        order = _array(state, "slots", np.int64, (None,))
        observations = _array(state, "observations", layout.float_dtype, (None, layout.width))
        rewards = _array(state, "rewards", np.float32, (None,))
        count, limit, states = len(rewards), len(order), len(observations)
        ids = [
            _array(state, name, np.int32, (count,)) for name in ("observation", "next_observation")
        ]
        flags = [_array(state, name, np.bool_, (count,)) for name in ("terminated", "truncated")]
        last = _array(state, "last", np.int32, (None,))
        fields = np.zeros(count, dtype=layout.payload)
        for name in layout.payload.names or ():
            kind, shape = layout.payload[name].base, layout.payload[name].shape
            fields[name] = _array(state["fields"], name, kind, (count, *shape))
        holders = np.bincount(np.concatenate(ids), minlength=states) if count else np.zeros(states)
        if not (
            count <= limit <= self.capacity
            and np.array_equal(np.sort(order), np.arange(limit))
            and len(holders) == states
            and (holders > 0).all()
            and (last >= -1).all()
            and (last < states).all()
            and len(np.unique(last[last >= 0])) == np.count_nonzero(last >= 0)
            and (holders <= COUNT).all()
        ):
            raise ValueError("the slots and states do not fit together")
        allocated = integer_from("slots_allocated", state["slots_allocated"], limit)
        allocated_states = integer_from("states_allocated", state["states_allocated"], states)
        if allocated > self.capacity:
            raise ValueError(f"slots_allocated={allocated} is above capacity={self.capacity}")
        self._given = sum(array.nbytes for array in (order, observations, fields, rewards, last))
        self.check_claim(allocated * self.slot_bytes, "slots_allocated", allocated)
        self.check_claim(allocated_states * self.state_bytes, "states_allocated", allocated_states)
        self.resize_slots(allocated)
        self.resize_states(allocated_states)
        held, free = order[:count], order[count:]
        records = np.zeros(count, dtype=SLOT)
        records["state"] = ids[0]
        records["next_and_flags"] = (
            (ids[1] << FLAG_BITS) | (TERMINATED * flags[0]) | (TRUNCATED * flags[1])
        )
        records["older"] = np.concatenate([[-1], held])[:count]
        records["newer"] = np.append(held, -1)[1:]
        records["reward"] = rewards
        self.slots[held] = records
        self.slots["state"][free] = -1
        self.slots["newer"][free] = np.append(free, -1)[1:]
        layout.as_fields(self.payload)[held] = fields
        layout.as_floats(self.states)[:states] = observations
        self.holders[:states] = holders
        self._set_last(last.copy())
        environments = np.flatnonzero(last >= 0)
        self.holders[last[environments]] |= ((environments + 1) << COUNT_BITS).astype(np.int32)
        heads = {
            "held": count, "slots_used": limit, "states_held": states, "states_used": states,
            "oldest": held[0] if count else -1, "youngest": held[-1] if count else -1,
            "free_slot": free[0] if len(free) else -1,
        }  # fmt: skip
        run_next, run_left = (integer_from("run", number, -1) for number in state["run"])
        if (run_next, run_left) != (-1, 0) and not (
            run_next in held and 0 < run_left < RUN_LENGTH and self.victims is not None
        ):
            raise ValueError(f"run={state['run']} is none of what is held")
        run = {"run_next": run_next, "run_left": run_left}
        counters = {name: integer_from(name, state["counters"][name], 0) for name in COUNTERS}
        for name, value in {**heads, **run, **counters}.items():
            self.control[name] = value

    def check_claim(self, nbytes: int, name: str, value: int) -> None:
        """Refuse to allocate far more bytes than what was loaded has."""
        if nbytes > _MOST_SLACK * self._given + _SLACK_OF_ANY:
            raise ValueError(f"{name}={value} asks for far more memory than the contents take")


def _array(
    state: dict[str, Any], name: str, dtype: Any, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """Give an array of the state if it has this type and shape and is finite."""
    array = state[name]
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape)
    if not fits or any(w not in (None, got) for w, got in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} is not an array of {np.dtype(dtype)} with shape {shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return np.ascontiguousarray(array).reshape(array.shape)


@compiled
def _link_youngest(kept: Kept, slot: int) -> None:
    """Put a slot at the young end of the list of ages."""
    control = kept.control[0]
    youngest = control["youngest"]
    kept.slots[slot]["older"] = youngest
    kept.slots[slot]["newer"] = -1
    if youngest >= 0:
        kept.slots[youngest]["newer"] = slot
    else:
        control["oldest"] = slot
    control["youngest"] = slot


@compiled
def _unlink(kept: Kept, slot: int) -> None:
    """Take a slot out of the list of ages."""
    control = kept.control[0]
    if slot == control["run_next"]:
        control["run_next"] = -1
        control["run_left"] = 0
    older, newer = kept.slots[slot]["older"], kept.slots[slot]["newer"]
    if older >= 0:
        kept.slots[older]["newer"] = newer
    else:
        control["oldest"] = newer
    if newer >= 0:
        kept.slots[newer]["older"] = older
    else:
        control["youngest"] = older


@compiled
def _take_state(kept: Kept, words: Any) -> int:
    """Copy a state into a free place; the caller has made sure that there is one."""
    control = kept.control[0]
    state: int = control["free_state"]
    if state >= 0:
        control["free_state"] = -2 - kept.holders[state]
    else:
        state = control["states_used"]
        control["states_used"] = state + 1
    control["states_held"] += 1
    kept.holders[state] = 1
    for j in range(len(words)):
        kept.states[state, j] = words[j]
    return state


@compiled
def _release_state(kept: Kept, state: int) -> None:
    """Drop one hold on a state, freeing it after the last."""
    kept.holders[state] -= 1
    if kept.holders[state] & COUNT == 0:
        control = kept.control[0]
        environment = kept.holders[state] >> COUNT_BITS
        if environment > 0:
            kept.last[environment - 1] = -1
        kept.holders[state] = -2 - control["free_state"]
        control["free_state"] = state
        control["states_held"] -= 1


@compiled
def _release_states_of(kept: Kept, slot: int) -> None:
    """Drop a transition's hold on its two states."""
    _release_state(kept, kept.slots[slot]["state"])
    _release_state(kept, kept.slots[slot]["next_and_flags"] >> FLAG_BITS)


@compiled
def _free(kept: Kept, slot: int) -> None:
    """Make an occupied slot the next free one."""
    control = kept.control[0]
    _unlink(kept, slot)
    _release_states_of(kept, slot)
    kept.slots[slot]["state"] = -1
    kept.slots[slot]["newer"] = control["free_slot"]
    control["free_slot"] = slot
    control["held"] -= 1


@compiled
def _next_free(kept: Kept, capacity: int) -> int:
    """Give the slot that the next stored transition takes, -1 when there is none."""
    control = kept.control[0]
    if control["free_slot"] >= 0:
        return control["free_slot"]  # type: ignore[no-any-return]
    allocated = min(len(kept.slots), len(kept.payload))
    if control["slots_used"] < min(capacity, allocated):
        return control["slots_used"]  # type: ignore[no-any-return]
    return -1


@compiled
def _take_slot(kept: Kept, slot: int) -> None:
    """Occupy the slot that `_next_free` gave."""
    control = kept.control[0]
    if control["free_slot"] >= 0:
        control["free_slot"] = kept.slots[slot]["newer"]
    else:
        control["slots_used"] += 1
    control["held"] += 1
    _link_youngest(kept, slot)


@compiled
def _states_are_short(kept: Kept, states: int) -> bool:
    """Tell whether there is no room for so many states."""
    allocated = min(len(kept.states), len(kept.holders))
    return bool(allocated - kept.control[0]["states_held"] < states)


@compiled
def _list_free(kept: Kept, capacity: int, free: Any) -> int:
    control = kept.control[0]
    allocated = min(len(kept.slots), len(kept.payload), capacity)
    wanted: int = min(len(free), allocated - control["held"])
    slot, fresh = control["free_slot"], control["slots_used"]
    for i in range(wanted):
        if slot >= 0:
            free[i] = slot
            slot = np.int64(kept.slots[slot]["newer"])
        else:
            free[i] = fresh
            fresh += 1
    return wanted


@compiled
def list_free(parts: Any, capacity: int, free: Any) -> int:
    """Fill `free` with the slots that the next stored transitions take, and give how many."""
    return _list_free(Kept(*parts), capacity, free)


@compiled
def stage_rows(
    given: Any, offered: Any, staged_parts: Any, parts: Any, free: Any, capacity: int, actions: int
) -> tuple[int, int]:
    """Cast rows to what will be stored, refuse those that are not finite, and commit to the rest.

    Args:
        given: (n * (2 * d + a + 3),) observations, next observations, actions, rewards, terminated
            and truncated, one block after the other.
        offered: (2, n, d) float32, filled with the states of the rows that are not refused.
        staged_parts: filled likewise; rows that are refused already say so.
        parts: of the storage.
        free: (n,) filled with the slots that the rows may take; (0,) where the caller sees to it.
        capacity: of the storage.
        actions: how many of an action's numbers go into the payload as float32.

    Returns:
        How many rows are staged, and how many slots are free for them; -1 and nothing is staged
        where memory must grow first.
    """
    kept, staged = Kept(*parts), Staged(*staged_parts)
    count, width = offered.shape[1], offered.shape[2]
    control = kept.control[0]
    wanted = min(len(free), capacity - control["held"])
    found = _list_free(kept, capacity, free)
    if found < wanted or _states_are_short(kept, 2 * len(free)):
        return 0, -1
    per_action = len(given) // max(count, 1) - 2 * width - 3
    action_block = 2 * count * width
    reward_block = action_block + count * per_action
    number = 0
    for i in range(count):
        row = staged.rows[i]
        is_finite = row["code"] != REFUSED
        if i != number:
            for j in range(staged.payload.shape[1]):
                staged.payload[number, j] = staged.payload[i, j]
            for j in range(staged.states.shape[2]):
                staged.states[0, number, j] = staged.states[0, i, j]
                staged.states[1, number, j] = staged.states[1, i, j]
        for j in range(width):
            state = np.float32(given[i * width + j])
            next_state = np.float32(given[(count + i) * width + j])
            is_finite &= np.isfinite(state) & np.isfinite(next_state)
            offered[0, number, j] = state
            offered[1, number, j] = next_state
        action_words = staged.payload.view(np.float32)
        for j in range(per_action):
            action = np.float32(given[action_block + i * per_action + j])
            is_finite &= np.isfinite(action)
            if j < actions:
                action_words[number, j] = action
        reward = np.float32(given[reward_block + i])
        is_finite &= np.isfinite(reward)
        row["slot"] = -1
        if not is_finite:
            row["code"] = REFUSED
            continue
        staged.rewards[number] = reward
        row["flags"] = TERMINATED * (given[reward_block + count + i] != 0.0) + TRUNCATED * (
            given[reward_block + 2 * count + i] != 0.0
        )
        staged.rows[number]["position"] = i
        number += 1
    control["refused"] += count - number
    control["decided"] = 0
    control["staged"] = number
    control["unfinished"] = 1
    return number, found


@compiled
def write_rows(
    parts: Any, staged_parts: Any, first: int, codes: Any, slots: Any, capacity: int
) -> int:
    """Carry out decisions about staged rows.

    Returns:
        `DONE`; or why the next one cannot be; or for a row to be stored that has no slot, the next
        free one, -1 if there is none.
    """
    kept, staged = Kept(*parts), Staged(*staged_parts)
    control = kept.control[0]
    while control["decided"] < first + len(codes):
        number = control["decided"]
        code, slot = codes[number - first], slots[number - first]
        row = staged.rows[staged.rows[number]["position"]]
        if code == DROP:
            control["dropped"] += 1
            slot = np.int64(-1)
        elif _states_are_short(kept, 2):
            return NO_ROOM
        elif code == STORE:
            following = _next_free(kept, capacity)
            if slot == -1:
                return following
            if slot != following:
                return BAD_STORE
            _take_slot(kept, slot)
            control["stored"] += 1
        elif code == REPLACE:
            if slot < 0 or slot >= control["slots_used"] or kept.slots[slot]["state"] < 0:
                return BAD_REPLACE
            _release_states_of(kept, slot)
            _unlink(kept, slot)
            _link_youngest(kept, slot)
            control["replaced"] += 1
        else:
            return BAD_CODE
        if code != DROP:
            _fill(kept, staged, number, row["environment"], row["flags"], slot)
        row["code"] = code
        row["slot"] = slot
        control["decided"] = number + 1
    return DONE


@compiled
def _fill(kept: Kept, staged: Staged, number: int, environment: int, flags: int, slot: int) -> None:
    """Write a staged row into a slot, sharing the state with the environment's last transition.

    The state is shared when its bits are those of the last stored next state. Comparing contents
    makes resets and true terminal observations safe without any knowledge of episodes.
    """
    words = staged.states[0, number]
    state: Any = np.int64(kept.last[environment])
    is_shared = state >= 0
    if is_shared:
        for j in range(len(words)):
            if kept.states[state, j] != words[j]:
                is_shared = False
                break
        kept.holders[state] &= COUNT
    if is_shared:
        kept.holders[state] += 1
    else:
        state = _take_state(kept, words)
    next_state = _take_state(kept, staged.states[1, number])
    kept.holders[next_state] |= (environment + 1) << COUNT_BITS
    kept.last[environment] = next_state
    record = kept.slots[slot]
    record["state"] = state
    record["next_and_flags"] = (next_state << FLAG_BITS) | flags
    record["reward"] = staged.rewards[number]
    for j in range(staged.payload.shape[1]):
        kept.payload[slot, j] = staged.payload[number, j]


@compiled
def evict_slot(parts: Any, slot: int, run: int) -> None:
    """Free an occupied slot, the first of a run of so many, and note it as the victim."""
    kept = Kept(*parts)
    control = kept.control[0]
    newer = kept.slots[slot]["newer"]
    _free(kept, slot)
    if run > 1 and newer >= 0:
        control["run_next"] = newer
        control["run_left"] = run - 1
    control["evicted"] += 1
    control["victim"] = slot + 1
    control["unfinished"] = 1


@compiled
def release_slots(parts: Any, staged_parts: Any, released: Any) -> None:
    """Free the slots that are occupied; staged rows that were written there are dropped."""
    kept, staged = Kept(*parts), Staged(*staged_parts)
    control = kept.control[0]
    # Backwards, so that the first one named is the first one used.
    for i in range(len(released) - 1, -1, -1):
        slot = released[i]
        if kept.slots[slot]["state"] >= 0:
            _free(kept, slot)
            kept.slots[slot]["older"] = _JUST_RELEASED
            control["stored"] -= 1
            control["dropped"] += 1
    for number in range(control["decided"]):
        row = staged.rows[staged.rows[number]["position"]]
        slot = row["slot"]
        if slot >= 0 and kept.slots[slot]["older"] == _JUST_RELEASED:
            row["code"] = DROP
            row["slot"] = -1
    for slot in released:
        kept.slots[slot]["older"] = -1


@compiled
def move_states_below(parts: Any, limit: int) -> None:
    """Move every held state to an id below the limit, which must leave room for all of them."""
    kept = Kept(*parts)
    control = kept.control[0]
    used = control["states_used"]
    moved = np.full(max(used - limit, 0), -1, dtype=np.int64)
    target = 0
    for state in range(limit, used):
        if kept.holders[state] > 0:
            while kept.holders[target] > 0:
                target += 1
            kept.holders[target] = kept.holders[state]
            for j in range(kept.states.shape[1]):
                kept.states[target, j] = kept.states[state, j]
            moved[state - limit] = target
    for slot in range(control["slots_used"]):
        record = kept.slots[slot]
        if record["state"] >= 0:
            if record["state"] >= limit:
                record["state"] = moved[record["state"] - limit]
            following = record["next_and_flags"]
            if following >> FLAG_BITS >= limit:
                new = moved[(following >> FLAG_BITS) - limit]
                record["next_and_flags"] = (new << FLAG_BITS) | (
                    following & (TERMINATED | TRUNCATED)
                )
    for i in range(len(kept.last)):
        if kept.last[i] >= limit:
            kept.last[i] = moved[kept.last[i] - limit]
    control["states_used"] = min(used, limit)
    control["free_state"] = -1
    for state in range(min(used, limit) - 1, -1, -1):
        if kept.holders[state] <= 0:
            kept.holders[state] = -2 - control["free_state"]
            control["free_state"] = state


@compiled
def forget_slots(parts: Any) -> None:
    """Where nothing is held, see all slots as never used."""
    control = Kept(*parts).control[0]
    if control["held"] == 0:
        control["free_slot"] = -1
        control["slots_used"] = 0


@compiled
def follow_list(slots: Any, first: int, count: int) -> Any:
    """List slots of the list of ages, or of the free ones, from its head on."""
    found = np.empty(count, dtype=np.int64)
    slot: Any = first
    for i in range(count):
        found[i] = slot
        slot = np.int64(slots[slot]["newer"])
    return found


@compiled
def copy_out(parts: Any, slots: Any, states: Any, payload: Any, rewards: Any, flags: Any) -> int:
    """Copy the transitions of (n,) slots into fresh arrays.

    Two passes, so that the processor has many independent reads under way: first the records,
    then the states they name.

    Returns:
        -1, or the first position whose slot holds nothing (then the arrays are not filled).
    """
    kept = Kept(*parts)
    count, used = len(slots), kept.control[0]["slots_used"]
    ids = np.empty((2, count), dtype=np.int64)
    for i in range(count):
        slot = slots[i]
        if slot < 0 or slot >= used or kept.slots[slot]["state"] < 0:
            return i
        record = kept.slots[slot]
        following = record["next_and_flags"]
        ids[0, i] = record["state"]
        ids[1, i] = following >> FLAG_BITS
        flags[0, i] = (following & TERMINATED) != 0
        flags[1, i] = (following & TRUNCATED) != 0
        rewards[i] = record["reward"]
        for j in range(payload.shape[1]):
            payload[i, j] = kept.payload[slot, j]
    for i in range(count):
        state, next_state = ids[0, i], ids[1, i]
        for j in range(states.shape[2]):
            states[0, i, j] = kept.states[state, j]
        for j in range(states.shape[2]):
            states[1, i, j] = kept.states[next_state, j]
    return -1
