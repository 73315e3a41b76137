"""Where transitions are kept: slots in order of age, every state once, eviction.

A storage is three arrays of integers, which compiled functions take in this order:

- `slots` (n, columns) int32: one row per transition, whose columns are named below; from `REWARD`
  on they are the bytes of the reward, the action and extra fields. A free slot has -1 for its state
  and, as `NEWER`, the slot that is used after it.
- `states` (m, 1 + words) int32: in the first column how many transitions hold the state, and in its
  higher bits one more than the environment whose last one it is; for a free state the next free
  one, coded as `-2 - next`. Then the bytes of the state: copying and comparing bits keeps every
  value, and -0.0, exactly.
- `control` (n,) int64: list heads and counters, named below; from `LAST` on, for each environment,
  the next state of the transition that it stored last, -1 when it is gone.

A compiled call is not interrupted, so what one of them does happens as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, REPLACE, SLOT_TYPE, STORE, Slots
from frugalrl.checks import check_choice, integer_from
from frugalrl.compiling import compiled
from frugalrl.replay.results import Batch, BufferStats
from frugalrl.replay.spaces import ACTION, WORD

if TYPE_CHECKING:
    from frugalrl.replay.intake import StagedRows
    from frugalrl.replay.spaces import Layout

MOST_TRANSITIONS = 2**28
"""Two states per transition, and two flags beside a state's id, fill 31 bits."""
RUN_LENGTH = 50
"""Transitions that random eviction takes in the order of their age, so that the states which they
share leave with them."""

# Columns of a slot. A state's id in `NEXT` stands above the flags of the transition.
STATE, NEXT, OLDER, NEWER, REWARD = range(5)
TERMINATED, TRUNCATED, FLAG_BITS = 1, 2, 2
COUNT, COUNT_BITS = 3, 2
"""Of a state's first column: the transition that ends in it holds it, and the one that begins."""

# Columns of a row that is to be written. From the last on its state, its next state and, like a
# slot's, reward, action and extra fields.
ENVIRONMENT, IS_TERMINATED, IS_TRUNCATED, ROW_STATES = range(4)

# Places in `control`: the list of ages, of free slots and of free states, and how many of each were
# ever used; random eviction's next transition, -1 to draw one, and how many are left of its run, it
# included; rows so far, and what became of them; most transitions, and the length of a run.
HELD, OLDEST, YOUNGEST, FREE_SLOT, SLOTS_USED = range(5)
STATES_HELD, FREE_STATE, STATES_USED, RUN_NEXT, RUN_LEFT = range(5, 10)
OFFERED, REJECTED, STORED, REPLACED, DROPPED, EVICTED = range(10, 16)
CAPACITY, RUN, LAST = range(16, 19)
COUNTERS = {
    "stored": STORED,
    "replaced": REPLACED,
    "dropped": DROPPED,
    "evicted": EVICTED,
    "refused": REJECTED,
}

_MOST_SLACK, _SLACK_OF_ANY = 16, 2**24
"""A loaded storage may allocate so many times what is in it, and so many bytes beside that."""

# What `list_free` answers where memory must grow first, so that all rows can be written.
FEW_SLOTS, FEW_STATES = -1, -2
# What `write_rows` answers.
WRITTEN, NO_MEMORY, BAD_CODE, BAD_STORE, BAD_REPLACE = range(5)
_FAULTS = {
    NO_MEMORY: "comes without memory for it",
    BAD_CODE: "is not DROP, STORE or REPLACE",
    BAD_STORE: "does not take the next free slot",
    BAD_REPLACE: "replaces a slot that holds nothing",
}


def grown(rows: int) -> int:
    """Rows after growing: by a thirty-second, since reallocating moves no bytes on large arrays.

    Small steps are what keeps the slack, and so the bytes per transition, small.
    """
    return rows + max(64, rows >> 5)


def make_victims(eviction: str, seed: int = 0) -> np.random.Generator | None:
    """Make the generator that draws what random eviction takes; None evicts the oldest.

    Raises:
        ValueError: there is no such eviction.
    """
    check_choice("eviction", eviction, ("oldest", "random"))
    if eviction == "oldest":
        return None
    # A stream of its own, so that batches are drawn alike whatever is evicted.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))


class Storage:
    """Keeps transitions in slots that never change their number.

    Args:
        layout: of a transition.
        capacity: most transitions held.
        environments: how many are expected; more are taken as they come.
        victims: draws the transitions that are evicted; None evicts the oldest.
    """

    def __init__(
        self, layout: Layout, capacity: int, environments: int, victims: np.random.Generator | None
    ) -> None:
        self.layout, self.capacity, self.victims = layout, capacity, victims
        self.slots = np.empty((0, REWARD + 1 + layout.payload_words), dtype=np.int32)
        self.states = np.empty((0, 1 + layout.state_words), dtype=np.int32)
        self.slot_bytes, self.state_bytes = WORD * self.slots.shape[1], WORD * self.states.shape[1]
        self.control = np.zeros(LAST + environments, dtype=np.int64)
        self.control[[OLDEST, YOUNGEST, FREE_SLOT, FREE_STATE, RUN_NEXT]] = -1
        self.control[[CAPACITY, RUN]] = capacity, 1 if victims is None else RUN_LENGTH
        self.control[LAST:] = -1

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays that pickle hands over may be read-only, and cannot grow.
        arrays = {name: state[name].copy() for name in ("slots", "states", "control")}
        self.__dict__.update(state, **arrays)

    @property
    def parts(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """What compiled functions take."""
        return self.slots, self.states, self.control

    @property
    def last(self) -> NDArray[np.int64]:
        """(environments,) the state each arrived at last, -1 when it is gone."""
        return self.control[LAST:]

    def __len__(self) -> int:
        return self.control.item(HELD)

    @property
    def nbytes(self) -> int:
        """Bytes allocated, used or not."""
        return sum(array.nbytes for array in self.parts)

    @property
    def limit(self) -> int:
        """One more than the highest slot ever occupied."""
        return self.control.item(SLOTS_USED)

    @property
    def dense(self) -> bool:
        """Whether every slot below `limit` is occupied."""
        return self.control.item(HELD) == self.control.item(SLOTS_USED)

    @property
    def free_states(self) -> int:
        """States that can be written before memory must grow."""
        return len(self.states) - self.control.item(STATES_HELD)

    @property
    def free_slots(self) -> int:
        """Slots that can be written before memory must grow or something must go."""
        return len(self.slots) - self.control.item(HELD)

    @property
    def offered(self) -> int:
        """All rows so far."""
        return self.control.item(OFFERED)

    @property
    def counters(self) -> dict[str, int]:
        """What became of all rows so far."""
        return {name: self.control.item(place) for name, place in COUNTERS.items()}

    @property
    def stats(self) -> BufferStats:
        """The same, as a buffer shows it."""
        counters = self.counters
        return BufferStats(self.offered, rejected_nonfinite=counters.pop("refused"), **counters)

    def resize_slots(self, rows: int) -> None:
        """Allocate a number of slots up to the capacity; those that are used must be among them."""
        # refcheck is off because compiled code keeps no references, and no views are handed out.
        self.slots.resize((rows, self.slots.shape[1]), refcheck=False)

    def resize_states(self, rows: int) -> None:
        """Allocate a number of states; those that are held must find room."""
        if rows < self.control[STATES_USED]:
            compact_states(*self.parts)
        self.states.resize((rows, self.states.shape[1]), refcheck=False)

    def trim(self) -> None:
        """Give back the memory of free states, and of slots where nothing is held."""
        self.resize_states(self.control.item(STATES_HELD))
        if not len(self):
            self.control[[FREE_SLOT, SLOTS_USED]] = -1, 0  # all count as never used
            self.resize_slots(0)

    def give_back(self) -> None:
        """Give back what rows might have needed and did not, beyond what growing leaves."""
        states = grown(self.control.item(STATES_HELD))
        if states < len(self.states):
            self.resize_states(states)
        self.resize_slots(min(len(self.slots), grown(self.limit)))

    def expect_environments(self, environments: int) -> None:
        """Remember the last state of at least so many environments."""
        missing = max(0, environments - len(self.last))
        self.control = np.append(self.control, np.full(missing, -1))

    def refuse(self, rows: int) -> None:
        """Count rows that are not finite."""
        self.control[OFFERED : REJECTED + 1] += rows  # both at once, whatever interrupts

    def next_slots(self, rows: int) -> Slots:
        """Give the slots that the next rows take, in order, growing until all can be written.

        They are fewer where the capacity is reached.
        """
        free = np.empty(rows, SLOT_TYPE)
        while (found := list_free(self.slots, self.states, self.control, free)) < 0:
            if found == FEW_SLOTS:
                self.resize_slots(min(grown(len(self.slots)), self.capacity))
            else:
                self.resize_states(grown(len(self.states)))
        return free if found == rows else free[:found]

    def write(self, rows: StagedRows, end: int) -> None:
        """Carry out what is decided about rows up to an end, going on where a call stopped.

        Raises:
            RuntimeError: a decision is impossible; those before it have been carried out.
        """
        codes, slots = rows.decided
        fault = write_rows(
            self.slots, self.states, self.control, rows.columns, codes, slots, rows.start, end
        )
        if fault != WRITTEN:
            row = self.offered - rows.start
            raise RuntimeError(
                f"the filter's decision {codes[row]} with slot {slots[row]} "
                f"{_FAULTS[fault]}; frugalrl.check_filter finds out more"
            )

    def next_victim(self) -> int:
        """Choose the transition that goes next: the oldest, or a random one.

        Random ones go in runs: after the one that was drawn those that are next in age, up to
        `RUN_LENGTH` in all, unless the next is gone or there is none.
        """
        if self.victims is None:
            return self.control.item(OLDEST)
        slot = self.control.item(RUN_NEXT)
        while slot < 0 or self.slots[slot, STATE] < 0:
            slot = int(self.victims.random() * self.limit)
        return slot

    def evict(self, slot: int) -> None:
        """Free a slot; nothing happens if it is free."""
        evict_slot(self.slots, self.states, self.control, slot)

    def release(self, slots: Slots) -> None:
        """Free slots that the filter has given up; free ones stay free.

        Raises:
            RuntimeError: there is no such slot.
        """
        if not len(self):  # all are free, as after an interrupt
            return
        if len(slots) and not (slots.min() >= 0 and slots.max() < self.limit):
            raise RuntimeError(
                f"the filter gives up slots from {slots.min()} to {slots.max()}, but there are "
                f"{self.limit}; frugalrl.check_filter finds out more"
            )
        release_slots(*self.parts, slots)

    def occupied(self, slots: Slots) -> NDArray[np.bool_]:
        """Tell which of the slots, all below `limit`, hold a transition."""
        return np.asarray(self.slots[slots, STATE] >= 0)

    def oldest_first(self) -> Slots:
        """List the occupied slots, oldest first."""
        slots: Slots = follow_list(self.slots, self.control[OLDEST], len(self))
        return slots

    def gather(
        self, slots: Slots, lead: tuple[int, ...], weights: NDArray[np.float32] | None = None
    ) -> Batch:
        """Copy transitions out into fresh arrays with these leading axes.

        Raises:
            ValueError: a slot holds nothing.
        """
        count, layout = len(slots), self.layout
        states = np.empty((2, count, layout.state_words), dtype=np.int32)
        payload = np.empty((count, layout.payload_words), dtype=np.int32)
        rewards = np.empty(count, dtype=np.float32)
        flags = np.empty((2, count), dtype=np.bool_)
        wrong = copy_out(*self.parts, slots, states, rewards.view(np.int32), payload, flags)
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} holds no transition")
        floats = layout.as_floats(states).astype(np.float32, copy=False)
        fields = layout.as_fields(payload)
        actions = np.ascontiguousarray(fields[ACTION], dtype=layout.action_out)
        shape = lead + layout.observation_shape
        if weights is None:
            weights = np.ones(count, dtype=np.float32)
        return Batch(
            observations=floats[0].reshape(shape),
            actions=actions.reshape(lead + actions.shape[1:]),
            rewards=rewards.reshape(lead),
            next_observations=floats[1].reshape(shape),
            terminated=flags[0].reshape(lead),
            truncated=flags[1].reshape(lead),
            slots=slots.reshape(lead),
            weights=weights.reshape(lead),
            extra={
                name: fields[name].copy().reshape(lead + form) for name, form, _ in layout.extra
            },
        )

    def state_dict(self) -> dict[str, Any]:
        """Give the contents and their order, without slack but with how much of it there is."""
        held, layout = self.oldest_first(), self.layout
        records = self.slots[held]
        both = np.concatenate([records[:, STATE], records[:, NEXT] >> FLAG_BITS])
        # (states,) their ids in the order in which transitions name them, whatever the ids are.
        ids, first = np.unique(both, return_index=True)
        ids = ids[np.argsort(first)]
        place = np.full(len(self.states) + 1, -1, dtype=np.int32)
        place[ids] = np.arange(len(ids))
        fields = layout.as_fields(records[:, REWARD + 1 :])
        free = follow_list(self.slots, self.control[FREE_SLOT], self.limit - len(self))
        return {
            # Every slot once: those of the transitions, oldest first, then the free ones in the
            # order in which they will be used.
            "slots": np.concatenate([held, free]),
            "observations": np.array(layout.as_floats(self.states[ids, 1:])),
            "observation": place[both[: len(held)]],
            "next_observation": place[both[len(held) :]],
            "rewards": records[:, REWARD].copy().view(np.float32),
            "terminated": (records[:, NEXT] & TERMINATED) != 0,
            "truncated": (records[:, NEXT] & TRUNCATED) != 0,
            "fields": {name: np.array(fields[name]) for name in layout.payload.names or ()},
            "last": place[self.last],  # -1 stays -1: the extra entry is the last
            # The next growth, and with a byte limit the next eviction, depends on these.
            "slots_allocated": len(self.slots),
            "states_allocated": len(self.states),
            "run": [self.control.item(RUN_NEXT), self.control.item(RUN_LEFT)],
            "counters": self.counters,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; this storage must be empty.

        Raises:
            ValueError: the contents contradict each other or are not finite.
        """
        layout, control = self.layout, self.control
        order = _array(state, "slots", np.int64, (None,))
        observations = _array(state, "observations", layout.float_dtype, (None, layout.width))
        rewards = _array(state, "rewards", np.float32, (None,))
        count, limit, states = len(rewards), len(order), len(observations)
        starts = _array(state, "observation", np.int32, (count,))
        ends = _array(state, "next_observation", np.int32, (count,))
        terminated = _array(state, "terminated", np.bool_, (count,))
        truncated = _array(state, "truncated", np.bool_, (count,))
        last = _array(state, "last", np.int32, (None,))
        environments = np.flatnonzero(last >= 0)
        ids = np.concatenate([starts, ends])
        holders = np.bincount(ids[(ids >= 0) & (ids < states)], minlength=states)
        if not (
            count <= limit <= self.capacity
            and np.array_equal(np.sort(order), np.arange(limit))
            and holders.sum() == len(ids)
            and ((holders > 0) & (holders <= COUNT)).all()
            and len(last) > 0
            and ((last >= -1) & (last < states)).all()
            and len(np.unique(last[environments])) == len(environments)
        ):
            raise ValueError("the slots and states do not fit together")
        held, free = order[:count], order[count:]
        run = [integer_from("run", number, -1) for number in state["run"]]
        if run != [-1, 0] and not (len(run) == 2 and run[0] in held and 0 < run[1] < control[RUN]):
            raise ValueError(f"run={run} is none of what is held")
        records = np.zeros((count, self.slots.shape[1]), dtype=np.int32)
        fields = layout.as_fields(records[:, REWARD + 1 :])
        for name in layout.payload.names or ():
            kind = layout.payload[name]
            fields[name] = _array(state["fields"], name, kind.base, (count, *kind.shape))
        slot_room = integer_from("slots_allocated", state["slots_allocated"], limit)
        state_room = integer_from("states_allocated", state["states_allocated"], states)
        given = sum(a.nbytes for a in (order, observations, records, last))
        wanted = slot_room * self.slot_bytes + state_room * self.state_bytes
        if slot_room > self.capacity or wanted > _MOST_SLACK * given + _SLACK_OF_ANY:
            raise ValueError(
                f"slots_allocated={slot_room} and states_allocated={state_room} are more than "
                f"capacity={self.capacity} allows, or far more than the contents take"
            )
        self.resize_slots(slot_room)
        self.resize_states(state_room)
        records[:, STATE] = starts
        records[:, NEXT] = (ends << FLAG_BITS) | (TERMINATED * terminated) | (TRUNCATED * truncated)
        records[:, OLDER] = np.concatenate([[-1], held])[:count]
        records[:, NEWER] = np.append(held, -1)[1:]
        records[:, REWARD] = rewards.view(np.int32)
        self.slots[held] = records
        self.slots[free, STATE] = -1
        self.slots[free, NEWER] = np.append(free, -1)[1:]
        layout.as_floats(self.states[:, 1:])[:states] = observations
        self.states[:states, 0] = holders
        self.states[last[environments], 0] |= (environments + 1 << COUNT_BITS).astype(np.int32)
        control[[HELD, SLOTS_USED, STATES_HELD, STATES_USED]] = count, limit, states, states
        control[[RUN_NEXT, RUN_LEFT]] = run
        if count:
            control[[OLDEST, YOUNGEST]] = held[[0, -1]]
        if len(free):
            control[FREE_SLOT] = free[0]
        for name, place in COUNTERS.items():
            control[place] = integer_from(name, state["counters"][name], 0)
        control[OFFERED] = control[REJECTED] + control[STORED : DROPPED + 1].sum()
        self.control = np.append(control[:LAST], last)


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
    return np.asarray(array, order="C")


@compiled
def _link_youngest(slots: Any, control: Any, slot: int) -> None:
    """Put a slot at the young end of the list of ages."""
    youngest = control[YOUNGEST]
    slots[slot, OLDER] = youngest
    slots[slot, NEWER] = -1
    if youngest >= 0:
        slots[youngest, NEWER] = slot
    else:
        control[OLDEST] = slot
    control[YOUNGEST] = slot


@compiled
def _unlink(slots: Any, control: Any, slot: int) -> None:
    """Take a slot out of the list of ages."""
    older, newer = slots[slot, OLDER], slots[slot, NEWER]
    if older >= 0:
        slots[older, NEWER] = newer
    else:
        control[OLDEST] = newer
    if newer >= 0:
        slots[newer, OLDER] = older
    else:
        control[YOUNGEST] = older
    if slot == control[RUN_NEXT]:
        control[RUN_NEXT] = -1
        control[RUN_LEFT] = 0


@compiled
def _take_state(states: Any, control: Any, words: Any) -> int:
    """Copy a state into a free place; the caller has made sure that there is one."""
    state: int = control[FREE_STATE]
    if state >= 0:
        control[FREE_STATE] = -2 - states[state, 0]
    else:
        state = control[STATES_USED]
        control[STATES_USED] = state + 1
    control[STATES_HELD] += 1
    states[state, 0] = 1
    for j in range(1, states.shape[1]):
        states[state, j] = words[j - 1]
    return state


@compiled
def _release_state(states: Any, control: Any, state: int) -> None:
    """Drop one hold on a state, freeing it after the last."""
    states[state, 0] -= 1
    if states[state, 0] & COUNT == 0:
        environment = states[state, 0] >> COUNT_BITS
        if environment > 0:
            control[LAST + environment - 1] = -1
        states[state, 0] = -2 - control[FREE_STATE]
        control[FREE_STATE] = state
        control[STATES_HELD] -= 1


@compiled
def _free(slots: Any, states: Any, control: Any, slot: int) -> None:
    """Make an occupied slot the next free one, and drop its hold on its two states."""
    _unlink(slots, control, slot)
    _release_state(states, control, slots[slot, STATE])
    _release_state(states, control, slots[slot, NEXT] >> FLAG_BITS)
    slots[slot, STATE] = -1
    slots[slot, NEWER] = control[FREE_SLOT]
    control[FREE_SLOT] = slot
    control[HELD] -= 1


@compiled
def list_free(slots: Any, states: Any, control: Any, free: Any) -> int:
    """Fill `free` with the slots that the next rows take, and give how many, or what is missing."""
    wanted: int = min(len(free), control[CAPACITY] - control[HELD])
    if len(slots) - control[HELD] < wanted:
        return FEW_SLOTS
    if len(states) - control[STATES_HELD] < 2 * len(free):
        return FEW_STATES
    slot, fresh = control[FREE_SLOT], control[SLOTS_USED]
    for i in range(wanted):
        if slot >= 0:
            free[i] = slot
            slot = np.int64(slots[slot, NEWER])
        else:
            free[i] = fresh
            fresh += 1
    return wanted


@compiled
def write_rows(
    slots: Any, states: Any, control: Any, rows: Any, codes: Any, chosen: Any, start: int, end: int
) -> int:
    """Carry out decisions about rows up to an end, of which the first is number `start` of all.

    Returns:
        `WRITTEN`, or why the next one cannot be.
    """
    while control[OFFERED] - start < end:
        i = control[OFFERED] - start
        code, slot = codes[i], chosen[i]
        upcoming = control[FREE_SLOT] if control[FREE_SLOT] >= 0 else control[SLOTS_USED]
        if code == DROP:
            slot = np.int64(-1)
            control[DROPPED] += 1
        elif len(states) - control[STATES_HELD] < 2:
            return NO_MEMORY
        elif code == REPLACE:
            if slot < 0 or slot >= control[SLOTS_USED] or slots[slot, STATE] < 0:
                return BAD_REPLACE
            _free(slots, states, control, slot)
            control[REPLACED] += 1
        elif code != STORE:
            return BAD_CODE
        elif slot != upcoming or slot >= len(slots):
            return BAD_STORE
        else:
            control[STORED] += 1
        if code != DROP:
            if control[FREE_SLOT] >= 0:
                control[FREE_SLOT] = slots[slot, NEWER]
            else:
                control[SLOTS_USED] += 1
            control[HELD] += 1
            _link_youngest(slots, control, slot)
            _fill(slots, states, control, slot, rows[i])
        chosen[i] = slot
        control[OFFERED] += 1
    return WRITTEN


@compiled
def _fill(slots: Any, states: Any, control: Any, slot: int, row: Any) -> None:
    """Write a row into a slot, sharing the state with the environment's last transition.

    The state is shared when its bits are those of the last stored next state. Comparing contents
    makes resets and true terminal observations safe without any knowledge of episodes.
    """
    words, environment = states.shape[1] - 1, row[ENVIRONMENT]
    state = control[LAST + environment]
    is_shared = state >= 0
    if is_shared:
        for j in range(words):
            if states[state, 1 + j] != row[ROW_STATES + j]:
                is_shared = False
                break
        states[state, 0] &= COUNT
    if is_shared:
        states[state, 0] += 1
    else:
        state = _take_state(states, control, row[ROW_STATES:])
    next_state = _take_state(states, control, row[ROW_STATES + words :])
    states[next_state, 0] |= (environment + 1) << COUNT_BITS
    control[LAST + environment] = next_state
    slots[slot, STATE] = state
    flags = TERMINATED * row[IS_TERMINATED] + TRUNCATED * row[IS_TRUNCATED]
    slots[slot, NEXT] = (next_state << FLAG_BITS) | flags
    for j in range(REWARD, slots.shape[1]):
        slots[slot, j] = row[ROW_STATES + 2 * words + j - REWARD]


@compiled
def evict_slot(slots: Any, states: Any, control: Any, slot: int) -> None:
    """Free a slot, unless it is free, as the next one of its run or the first of another."""
    if slot >= control[SLOTS_USED] or slots[slot, STATE] < 0:
        return
    newer = slots[slot, NEWER]
    left = control[RUN_LEFT] if slot == control[RUN_NEXT] else control[RUN]
    _free(slots, states, control, slot)
    control[EVICTED] += 1
    if left > 1 and newer >= 0:
        control[RUN_NEXT] = newer
        control[RUN_LEFT] = left - 1


@compiled
def release_slots(slots: Any, states: Any, control: Any, released: Any) -> None:
    """Free those of the slots that are occupied, as if they had never been stored."""
    # Backwards, so that the first one named is the first one used.
    for i in range(len(released) - 1, -1, -1):
        if slots[released[i], STATE] >= 0:
            _free(slots, states, control, released[i])
            control[STORED] -= 1
            control[DROPPED] += 1


@compiled
def compact_states(slots: Any, states: Any, control: Any) -> None:
    """Move the last of the held states into the places of free ones, until none lies between."""
    moved = np.arange(control[STATES_USED])
    place, end = 0, len(moved)
    while place < end:
        if states[place, 0] > 0:
            place += 1
        else:
            end -= 1
            if states[end, 0] > 0:
                for j in range(states.shape[1]):
                    states[place, j] = states[end, j]
                moved[end] = place
    for slot in range(control[SLOTS_USED]):
        if slots[slot, STATE] >= 0:
            slots[slot, STATE] = moved[slots[slot, STATE]]
            flags = slots[slot, NEXT] & (TERMINATED | TRUNCATED)
            slots[slot, NEXT] = moved[slots[slot, NEXT] >> FLAG_BITS] << FLAG_BITS | flags
    for i in range(LAST, len(control)):
        if control[i] >= 0:
            control[i] = moved[control[i]]
    control[STATES_USED] = end
    control[FREE_STATE] = -1


@compiled
def follow_list(slots: Any, first: int, count: int) -> Any:
    """List slots of the list of ages, or of the free ones, from its head on."""
    found = np.empty(count, dtype=np.int64)
    slot: Any = first
    for i in range(count):
        found[i] = slot
        slot = np.int64(slots[slot, NEWER])
    return found


@compiled
def copy_out(
    slots: Any, states: Any, control: Any, chosen: Any, out_states: Any, rewards: Any,
    payload: Any, flags: Any,
) -> int:  # fmt: skip
    """Copy the transitions of (n,) slots into fresh arrays.

    Two passes, so that the processor has many independent reads under way: first the records,
    then the states they name.

    Returns:
        -1, or the first position whose slot holds nothing (then the arrays are not filled).
    """
    ids = np.empty((2, len(chosen)), dtype=np.int64)
    for i in range(len(chosen)):
        slot = chosen[i]
        if slot < 0 or slot >= control[SLOTS_USED] or slots[slot, STATE] < 0:
            return i
        following = slots[slot, NEXT]
        ids[0, i] = slots[slot, STATE]
        ids[1, i] = following >> FLAG_BITS
        flags[0, i] = (following & TERMINATED) != 0
        flags[1, i] = (following & TRUNCATED) != 0
        rewards[i] = slots[slot, REWARD]
        for j in range(payload.shape[1]):
            payload[i, j] = slots[slot, REWARD + 1 + j]
    for i in range(len(chosen)):
        state, next_state = ids[0, i], ids[1, i]
        for j in range(out_states.shape[2]):
            out_states[0, i, j] = states[state, 1 + j]
        for j in range(out_states.shape[2]):
            out_states[1, i, j] = states[next_state, 1 + j]
    return -1
