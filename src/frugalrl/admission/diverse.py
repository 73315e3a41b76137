"""A filter for a buffer of given size: what is common goes first, in runs of neighbours.

FAC turned around: there the partition is given and the buffer grows as it must, here the size is
given and the partition is as fine as the size allows.

The class of a transition is its cell along the important dimensions together with its reward bin.
Every transition is admitted. In a full buffer newcomers overwrite a run of neighbouring slots, one
after another, and then another run: of a few drawn at random, the one whose transitions are least
rare. The newest transitions are left alone: a critic must know best what its policy does now, and
rarity alone would make that go first. None stays for ever: what is drawn again and again is learnt
by heart. Since whole runs go, the states that neighbours share go with them, and a transition takes
hardly more bytes than in a ring.

Of every slot five small numbers are kept: where its transition lies along at most four important
dimensions and in reward, in steps of a 64th of the range of the first transitions. Divided by the
divisor these are its class. The divisor is chosen when the buffer is full, and anew each time as
many transitions have come as it holds, so that there are about four of them to a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from frugalrl.admission.partition import important_dimensions, mix
from frugalrl.admission.protocol import REPLACE, STORE, Decisions
from frugalrl.admission.rows import Offer, as_rows, finite_rows
from frugalrl.checks import integer_from, is_positive, number_from
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import NDArray

    from frugalrl.admission.protocol import Floats, Slots

CLASS_SIZE = 4
"""Transitions that there are to a class, about."""
MOST_DIMENSIONS = 4
"""With more of them nearly every transition would have a class of its own."""
STEPS = 64
"""Steps into which the range of the first transitions is cut."""
EMPTY, LEAST, MOST = -128, -127, 127
"""First number of a slot that holds nothing, and the least and the greatest of all others."""
LEFT_ALONE = 3.0
"""Added to the rarity of runs that are left alone, so that they go only if no other is drawn."""
MOST_AT_EDGE = 0.02
"""Share of transitions with such a number from which on steps are made twice as wide."""

AXIS = np.dtype([("column", "i8"), ("middle", "f8"), ("step", "f8")])
"""A coordinate of classes: a dimension of the observation, or after the last of them the reward."""
STATE = np.dtype(
    [
        ("random", "u8"),
        ("held", "i8"),
        ("limit", "i8"),  # one more than the highest slot ever used
        ("first", "i8"),  # how many of the first transitions have come
        ("due", "i8"),  # newcomers until classes are made anew; 0 before the buffer is full
        ("clock", "i8"),  # transitions written so far
        ("next", "i8"),  # the slot that is overwritten next
        ("left", "i8"),  # and how many slots of its run are left
    ]
)


class _Settings(NamedTuple):
    """What compiled code knows of the arguments."""

    run_length: int
    tries: int
    newest_share: float
    longest_stay: float


class _Known(NamedTuple):
    """What the filter knows; made anew as a whole where an interrupt must not tear it apart."""

    rows: NDArray[np.float64]
    """(first_steps, d + 1) the first transitions' observations and rewards; empty later."""
    slots: NDArray[np.int64]
    """(first_steps,) where they are."""
    axes: NDArray[Any]
    """(k,) of `AXIS`; none while the first transitions come."""
    numbers: NDArray[np.int8]
    """(slots, MOST_DIMENSIONS + 1), zeros behind those of the axes."""
    counts: NDArray[np.int32]
    """(a power of two,) transitions by the hash of their class; empty before the buffer is full."""
    divisor: int
    written: NDArray[np.int64]
    """(runs,) the clock when a run was last written to or chosen."""
    state: NDArray[Any]
    """(1,) of `STATE`."""


_NO_ROWS: dict[str, Any] = {"rows": np.empty((0, 1)), "slots": np.empty(0, dtype=np.int64)}


class DiverseFilter:
    """Keeps rare transitions longer than common ones, in a buffer of given size.

    Args:
        run_length: neighbouring slots that are overwritten one after another. Longer runs share
            more states, shorter ones choose more precisely.
        tries: runs that are drawn, of which the least rare goes; 1 overwrites at random.
        newest_share: of the transitions held, so many of the newest are left alone. With 0 rarity
            alone decides; the nearer to 1, the more the buffer is like a ring.
        longest_stay: a run leaves when so many times more transitions have come since than are
            held, however rare it is.
        first_steps: transitions from which important dimensions and ranges are learnt; fewer where
            the buffer is full before.
        seed: of the draws.
    """

    name: ClassVar[str] = "diverse"

    def __init__(
        self,
        *,
        run_length: int = 50,
        tries: int = 16,
        newest_share: float = 0.5,
        longest_stay: float = 8.0,
        first_steps: int = 1_000,
        seed: int = 0,
    ) -> None:
        self.run_length = integer_from("run_length", run_length, 1)
        self.tries = integer_from("tries", tries, 1)
        self.newest_share = number_from(
            "newest_share", newest_share, "a number from 0 to 1", lambda x: 0 <= x <= 1
        )
        self.longest_stay = number_from(
            "longest_stay", longest_stay, "a number above 0", is_positive
        )
        self.first_steps = integer_from("first_steps", first_steps, 1)
        self.seed = integer_from("seed", seed, 0)
        self._dimensions = 0
        self._offer: Offer | None = None
        self._known = _Known(
            **_NO_ROWS,
            axes=np.empty(0, dtype=AXIS),
            numbers=np.empty((0, MOST_DIMENSIONS + 1), dtype=np.int8),
            counts=np.empty(0, dtype=np.int32),
            divisor=1,
            written=np.empty(0, dtype=np.int64),
            state=np.zeros(1, dtype=STATE),
        )
        self._known.state["random"] = self.seed
        self._settings = _Settings(*(getattr(self, name) for name in _Settings._fields))

    def __repr__(self) -> str:
        return f"DiverseFilter({', '.join(f'{k}={v}' for k, v in self._arguments().items())})"

    def _arguments(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in (*_Settings._fields, "first_steps", "seed")}

    # --- the protocol of a buffer -----------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn how many dimensions observations have."""
        if self._offer is not None or len(self._known.numbers):
            raise ValueError("this filter already decides for a buffer; make a new DiverseFilter")
        if observation_space is not None:
            self._expect(int(np.prod(observation_space.shape)))

    def _expect(self, dimensions: int) -> None:
        """Make room for the first transitions."""
        self._dimensions = dimensions
        self._known = self._known._replace(
            rows=np.zeros((self.first_steps, dimensions + 1)),
            slots=np.zeros(self.first_steps, dtype=np.int64),
        )

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        rows = finite_rows(observations, rewards, self._dimensions)
        if not self._dimensions:
            self._expect(rows.shape[1] - 1)
        offer = self._offer
        if offer is None or not offer.is_same(rows, free):
            offer = self._offer = Offer(rows, free)
        if not offer.progress[0]:
            self._prepare(offer.slots)
            decide(self._known, self._settings, *offer.arrays)
        return offer.decisions()

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a STORE that had no slot; nothing happens if the slot is known already."""
        rows = as_rows(np.asarray(observation)[None], [reward], self._dimensions)
        offer = Offer(rows, np.array([slot], dtype=np.int64))
        self._prepare(offer.slots)
        if self._known.numbers[slot, 0] == EMPTY:
            decide(self._known, self._settings, *offer.arrays)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot; nothing happens if it holds nothing."""
        if slot < len(self._known.numbers):
            clear(self._known, slot)

    def _prepare(self, slots: NDArray[np.int64]) -> None:
        """Before rows are decided about: make room for slots, and classes where they are due."""
        known, state = self._known, self._known.state[0]
        needed = int(slots.max(initial=-1)) + 1
        if needed > len(known.numbers):
            rows = max(needed, len(known.numbers) * 17 // 16)
            numbers = np.zeros((rows, MOST_DIMENSIONS + 1), dtype=np.int8)
            numbers[:, 0] = EMPTY
            numbers[: len(known.numbers)] = known.numbers
            written = np.zeros(-(-rows // self.run_length), dtype=np.int64)
            written[: len(known.written)] = known.written
            known = known._replace(numbers=numbers, written=written)
        is_full = len(slots) == 0 and state["held"] > 0
        if not len(known.axes) and (is_full or state["first"] == self.first_steps):
            known = _with_axes(known)
        if len(known.axes) and is_full and state["due"] == 0:
            known = _with_classes(known)
        self._known = known

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return sum(part.nbytes for part in self._known if isinstance(part, np.ndarray))

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots that hold something, in ascending order."""
        return np.flatnonzero(self._known.numbers[:, 0] != EMPTY)

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        known = self._known
        first = slice(0, int(known.state["first"][0]))
        return {
            "settings": self._arguments(),
            "dimensions": self._dimensions,
            "rows": known.rows[first].copy(),
            "slots": known.slots[first].copy(),
            "axes": {name: known.axes[name].copy() for name in AXIS.names or ()},
            "numbers": known.numbers.copy(),
            "places": len(known.counts),
            "divisor": known.divisor,
            "written": known.written.copy(),
            "state": {name: known.state[name].copy() for name in STATE.names or ()},
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> DiverseFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        made = cls(**state["settings"])
        dimensions = integer_from("dimensions", state["dimensions"], 0)
        if dimensions:
            made._expect(dimensions)
        record, axes = np.zeros(1, dtype=STATE), np.empty(len(state["axes"]["column"]), dtype=AXIS)
        for part, values in ((record, state["state"]), (axes, state["axes"])):
            for name in part.dtype.names or ():
                part[name] = values[name]
        numbers = np.array(state["numbers"], dtype=np.int8)
        rows, slots = np.asarray(state["rows"]), np.asarray(state["slots"])
        places, divisor = int(state["places"]), int(state["divisor"])
        written = np.array(state["written"], dtype=np.int64)
        is_fitted, first = bool(len(axes)), int(record["first"][0])
        _require(numbers.ndim == 2 and numbers.shape[1] == MOST_DIMENSIONS + 1, "numbers")
        is_held = numbers[:, 0] != EMPTY
        record["held"] = np.count_nonzero(is_held)
        is_axis = np.isfinite(axes["middle"]) & np.isfinite(axes["step"]) & (axes["step"] > 0)
        is_axis &= (axes["column"] >= 0) & (axes["column"] <= dimensions)
        _require(len(axes) <= MOST_DIMENSIONS + 1 and bool(is_axis.all()), "axes")
        _require(0 <= first <= (0 if is_fitted else made.first_steps), "state")
        width = 1 if is_fitted else dimensions + 1
        _require(rows.shape == (first, width) and bool(np.isfinite(rows).all()), "rows")
        in_range = (slots >= 0) & (slots < len(numbers))
        _require(slots.shape == (first,) and bool(in_range.all()), "slots")
        _require(places & (places - 1) == 0 and 0 <= places <= 2 * len(numbers), "places")
        _require(1 <= divisor <= MOST + 1, "divisor")
        _require(written.shape == (-(-len(numbers) // made.run_length),), "written")
        limit, rest = record["limit"][0], [record[name][0] for name in ("due", "left", "next")]
        _require(0 <= limit <= len(numbers) and min(rest) >= 0, "state")
        _require(not is_held[limit:].any(), "state")
        known = made._known
        if is_fitted:
            known = known._replace(**_NO_ROWS)
        else:
            known.rows[:first], known.slots[:first] = rows, slots
        counts = _count(numbers, divisor, places)
        made._known = _Known(
            known.rows, known.slots, axes, numbers, counts, divisor, written, record
        )
        return made


def _require(holds: bool, part: str) -> None:
    if not holds:
        raise ValueError(f"the {part} of a DiverseFilter's state do not fit the rest")


def _with_axes(known: _Known) -> _Known:
    """Find the important dimensions and ranges of the first transitions, and their numbers."""
    count = int(known.state["first"][0])
    rows, slots = known.rows[:count], known.slots[:count]
    dimensions = rows.shape[1] - 1
    # Rows of zeros change nothing; there must be as many rows as dimensions.
    padded = np.zeros((max(count, dimensions), dimensions))
    padded[:count] = rows[:, :-1]
    columns = np.append(important_dimensions(padded)[:MOST_DIMENSIONS], dimensions)
    low, high = rows[:, columns].min(axis=0), rows[:, columns].max(axis=0)
    axes = np.empty(len(columns), dtype=AXIS)
    axes["column"] = columns
    axes["middle"] = low / 2 + high / 2
    # Equal values have no range; a step of their own size tells them from others.
    spread = np.where(high > low, high / STEPS - low / STEPS, np.maximum(np.abs(high), 1.0) / STEPS)
    axes["step"] = np.maximum(spread, np.finfo(np.float64).tiny)
    numbers = known.numbers.copy()
    for row, slot in zip(rows, slots.tolist(), strict=True):
        if numbers[slot, 0] != EMPTY:
            write_numbers(axes, row[:-1], row[-1], numbers[slot])
    state = known.state.copy()
    state["first"] = 0
    return known._replace(**_NO_ROWS, axes=axes, numbers=numbers, state=state)


def _with_classes(known: _Known) -> _Known:
    """Widen steps where the transitions held have outgrown them, and choose the divisor anew."""
    axes, numbers, state = known.axes.copy(), known.numbers.copy(), known.state.copy()
    held = np.flatnonzero(numbers[:, 0] != EMPTY)
    for i, axis in enumerate(axes):
        column = numbers[held, i]
        while np.mean((column == LEAST) | (column == MOST)) > MOST_AT_EDGE:
            if not np.isfinite(2 * axis["step"]):
                break
            axis["step"] *= 2
            column = column // 2
        numbers[held, i] = column
    # Fewer classes with every greater divisor, as good as.
    least, most = 1, MOST + 1
    while least < most:
        divisor = (least + most) // 2
        if len(np.unique(class_keys(numbers[held], divisor))) * CLASS_SIZE > len(held):
            least = divisor + 1
        else:
            most = divisor
    state["due"] = len(held)
    counts = _count(numbers, least, 1 << len(held).bit_length() - 1)
    return known._replace(axes=axes, numbers=numbers, counts=counts, divisor=least, state=state)


def _count(numbers: NDArray[np.int8], divisor: int, places: int) -> NDArray[np.int32]:
    """Count transitions by the hash of their class."""
    counts = np.zeros(places, dtype=np.int32)
    if places:
        keys = class_keys(numbers[numbers[:, 0] != EMPTY], divisor)
        np.add.at(counts, (keys & np.uint64(places - 1)).astype(np.int64), 1)
    return counts


# --- compiled -------------------------------------------------------------------------------------


@compiled
def write_numbers(axes: Any, observation: Any, reward: Any, numbers: Any) -> None:
    """Write where a transition lies along the axes."""
    for i in range(len(axes)):
        column = axes[i]["column"]
        value = reward if column == len(observation) else observation[column]
        place = np.floor((value - axes[i]["middle"]) / axes[i]["step"])
        numbers[i] = np.int8(min(max(place, LEAST), MOST))


@compiled
def _class_key(numbers: Any, divisor: Any) -> Any:
    """64 bits that stand for a class."""
    key = np.uint64(0x9E3779B97F4A7C15)
    for number in numbers:
        key = mix(key ^ np.uint64(np.int64(number) // divisor))
    return key


@compiled
def class_keys(numbers: Any, divisor: Any) -> Any:
    """(n,) keys of the classes of (n, 5) numbers."""
    keys = np.empty(len(numbers), dtype=np.uint64)
    for i in range(len(numbers)):
        keys[i] = _class_key(numbers[i], divisor)
    return keys


@compiled
def _place(known: Any, slot: Any) -> Any:
    """Where the class of a slot is counted."""
    key = _class_key(known.numbers[slot], np.int64(known.divisor))
    return np.int64(key & np.uint64(len(known.counts) - 1))


@compiled
def clear(known: Any, slot: Any) -> None:
    """Forget what is in a slot."""
    if known.numbers[slot, 0] != EMPTY:
        if len(known.counts) > 0:
            known.counts[_place(known, slot)] -= 1
        known.numbers[slot, 0] = EMPTY
        known.state[0]["held"] -= 1


@compiled
def _write(known: Any, run_length: Any, slot: Any, observation: Any, reward: Any) -> None:
    """Put a transition into a slot that is empty."""
    state = known.state[0]
    known.numbers[slot, :] = 0
    if len(known.axes) > 0:
        write_numbers(known.axes, observation, reward, known.numbers[slot])
    else:
        known.rows[state["first"], :-1] = observation
        known.rows[state["first"], -1] = reward
        known.slots[state["first"]] = slot
        state["first"] += 1
    state["clock"] += 1
    known.written[slot // run_length] = state["clock"]
    state["held"] += 1
    state["limit"] = max(state["limit"], slot + 1)
    if len(known.counts) > 0:
        known.counts[_place(known, slot)] += 1
    if state["due"] > 0:
        state["due"] -= 1


@compiled
def _draw(state: Any, number: Any) -> Any:
    """Draw one of so many (the generator is SplitMix64)."""
    state["random"] += np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mix(state["random"]) % np.uint64(number))


@compiled
def _rarity(known: Any, first: Any, run_length: Any) -> Any:
    """Mean over the transitions of a run of one over how many have their class; 2 if none is."""
    total, held = 0.0, 0
    for slot in range(first, min(first + run_length, known.state[0]["limit"])):
        if known.numbers[slot, 0] != EMPTY:
            total += 1.0 / known.counts[_place(known, slot)]
            held += 1
    return total / held if held > 0 else 2.0


@compiled
def _next_victim(known: Any, settings: Any) -> Any:
    """Slot that a newcomer overwrites; there must be one that holds something."""
    state, run_length = known.state[0], settings.run_length
    runs = (state["limit"] + run_length - 1) // run_length
    while True:
        while state["left"] > 0:
            slot = np.int64(state["next"])
            state["next"] += 1
            state["left"] -= 1
            if slot < state["limit"] and known.numbers[slot, 0] != EMPTY:
                return slot
        run = _next_run(known, settings, runs)
        known.written[run] = state["clock"]
        state["next"], state["left"] = run * run_length, run_length


@compiled
def _next_run(known: Any, settings: Any, runs: Any) -> Any:
    """Choose the run that goes next: one that stayed too long, or the least rare of those drawn."""
    state = known.state[0]
    oldest = np.argmin(known.written[:runs])
    if state["clock"] - known.written[oldest] > settings.longest_stay * state["held"]:
        return oldest
    old = state["clock"] - np.int64(settings.newest_share * state["held"])
    least, chosen = np.inf, oldest
    for _ in range(settings.tries):
        run = np.int64(_draw(state, runs))
        rarity = _rarity(known, run * settings.run_length, settings.run_length)
        if known.written[run] > old:
            rarity += LEFT_ALONE
        if rarity < least:
            least, chosen = rarity, run
    return chosen


@compiled
def decide(
    known: Any, settings: Any, rows: Any, free: Any, codes: Any, slots: Any, progress: Any
) -> None:
    """Decide about rows, up to where the filter has to make room or classes anew first."""
    state = known.state[0]
    row = taken = 0
    while row < len(rows):
        if len(known.axes) == 0 and state["first"] == len(known.slots):
            break
        if taken < len(free):
            codes[row], slots[row] = STORE, free[taken]
            taken += 1
        elif state["held"] == 0:
            codes[row], slots[row] = STORE, -1
            row += 1
            break
        elif state["due"] == 0:
            break
        else:
            codes[row], slots[row] = REPLACE, _next_victim(known, settings)
            clear(known, slots[row])
        _write(known, settings.run_length, slots[row], rows[row, :-1], rows[row, -1])
        row += 1
    progress[0] = row
