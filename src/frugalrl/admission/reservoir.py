"""A filter for a buffer of given size: the newest transitions, and a sample of all before them.

A ring of the newest forgets what its policy no longer meets, and rare transitions alone are no
picture of what it does meet. Here a share of the places is a ring, and the rest an even sample of
everything that has left the ring, which is what a buffer that keeps everything would hold::

    newcomers -> ring of the newest -> sample of all that left it    (Vitter's algorithm R, 1985)

Both consist of runs of neighbouring slots. Newcomers overwrite a run one slot after another, then
the next: the run that has just left the ring, or the one of the sample that it takes the place of.
Since whole runs go, the states that neighbours share go with them. Longer runs share more of them,
shorter ones come from more episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.partition import mix
from frugalrl.admission.protocol import REPLACE, STORE, Decisions, Floats, Slots
from frugalrl.admission.rows import Offer, finite_rows
from frugalrl.checks import integer_from, number_from
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box

NONE, UNUSED = -1, -2
"""Instead of the run that follows in the ring: there is none; nothing was ever written to this."""

STATE = np.dtype(
    [
        ("random", "u8"),
        ("held", "i8"),  # transitions
        ("runs", "i8"),  # that were ever written to
        ("oldest", "i8"),  # run of the ring
        ("newest", "i8"),
        ("sampled", "i8"),  # runs of the sample
        ("passed", "i8"),  # runs that ever left the ring
        ("next", "i8"),  # the slot that is overwritten next
        ("left", "i8"),  # and how many slots of its run are left
    ]
)


class _Known(NamedTuple):
    """What the filter knows, as compiled functions pass it on."""

    is_held: NDArray[np.bool_]
    """By slot."""
    following: NDArray[np.int32]
    """By run, the one that comes after it in the ring, `NONE` or `UNUSED`."""
    sample: NDArray[np.int32]
    """Runs of the sample, then anything."""
    state: NDArray[Any]
    """(1,) of `STATE`."""


class ReservoirFilter:
    """Keeps the newest transitions and an even sample of all older ones, in a buffer of given size.

    Args:
        newest_share: of the places for the newest transitions; the others hold the sample. With 1
            the buffer is a ring.
        run_length: neighbouring slots that are overwritten one after another.
        seed: of the draws.
    """

    name: ClassVar[str] = "reservoir"

    def __init__(self, *, newest_share: float = 0.75, run_length: int = 10, seed: int = 0) -> None:
        self.newest_share = number_from(
            "newest_share", newest_share, "a number from 0 to 1", lambda x: 0 <= x <= 1
        )
        self.run_length = integer_from("run_length", run_length, 1)
        self.seed = integer_from("seed", seed, 0)
        self._dimensions = 0
        self._offer: Offer | None = None
        self._known = _empty(0, 0)
        self._known.state["random"] = self.seed

    def __repr__(self) -> str:
        return f"ReservoirFilter({', '.join(f'{k}={v}' for k, v in self._arguments().items())})"

    def _arguments(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("newest_share", "run_length", "seed")}

    # --- the protocol of a buffer -----------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn how many dimensions observations have."""
        if self._offer is not None or len(self._known.is_held):
            raise ValueError("this filter already decides for a buffer; make a new ReservoirFilter")
        if observation_space is not None:
            self._dimensions = int(np.prod(observation_space.shape))

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        rows = finite_rows(observations, rewards, self._dimensions)
        self._dimensions = rows.shape[1] - 1
        offer = self._offer
        if offer is None or not offer.is_same(rows, free):
            offer = self._offer = Offer(rows, free)
        if not offer.progress[0]:
            self._make_room(int(offer.slots.max(initial=-1)))
            decide(self._known, self.newest_share, self.run_length, *offer.arrays)
        return offer.decisions()

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a STORE that had no slot; nothing happens if the slot is known already."""
        self._make_room(slot)
        write(self._known, self.run_length, slot)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot; nothing happens if it holds nothing."""
        if slot < len(self._known.is_held):
            clear(self._known, slot)

    def _make_room(self, slot: int) -> None:
        """Let the arrays grow until they have this slot."""
        known = self._known
        if slot >= len(known.is_held):
            slots = max(slot + 1, len(known.is_held) * 17 // 16)
            grown = _empty(slots, -(-slots // self.run_length))
            for old, new in zip(known, grown, strict=True):
                new[: len(old)] = old
            self._known = grown

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return sum(part.nbytes for part in self._known)

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots that hold something, in ascending order."""
        return np.flatnonzero(self._known.is_held)

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        known, state = self._known, self._known.state[0]
        return {
            "settings": self._arguments(),
            "dimensions": self._dimensions,
            "is_held": known.is_held.copy(),
            "ring": _ring(known),
            "sample": known.sample[: state["sampled"]].copy(),
            "passed": int(state["passed"]),
            "random": np.array([state["random"]]),
            "overwriting": [int(state["next"]), int(state["left"])],
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> ReservoirFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions.

        Raises:
            ValueError: it is not the state of such a filter.
        """
        made = cls(**state["settings"])
        made._dimensions = integer_from("dimensions", state["dimensions"], 0)
        is_held = np.array(state["is_held"], dtype=bool)
        ring, sample = (np.array(state[name], dtype=np.int32) for name in ("ring", "sample"))
        runs = np.append(ring, sample)
        known = made._known = _empty(len(is_held), -(-len(is_held) // made.run_length))
        at, left = (integer_from("overwriting", n, 0) for n in state["overwriting"])
        if not (
            is_held.ndim == ring.ndim == sample.ndim == 1
            and ((runs >= 0) & (runs < len(known.sample))).all()
            and len(np.unique(runs)) == len(runs)
            and np.isin(np.flatnonzero(is_held) // made.run_length, runs).all()
            and len(sample) <= max(len(runs) - _in_ring(made.newest_share, len(runs)), 0)
            and at <= len(known.sample) * made.run_length
            and left <= made.run_length
        ):
            raise ValueError("the runs and slots of a ReservoirFilter's state do not fit")
        known.is_held[:] = is_held
        known.following[sample] = known.following[ring[-1:]] = NONE
        known.following[ring[:-1]] = ring[1:]
        known.sample[: len(sample)] = sample
        record = known.state[0]
        record["random"] = np.asarray(state["random"], dtype=np.uint64)[0]
        record["held"], record["runs"] = np.count_nonzero(is_held), len(runs)
        record["oldest"], record["newest"] = (ring[0], ring[-1]) if len(ring) else (NONE, NONE)
        record["sampled"] = len(sample)
        record["passed"] = integer_from("passed", state["passed"], len(sample))
        record["next"], record["left"] = at, left
        return made


def _empty(slots: int, runs: int) -> _Known:
    """Make the arrays for so many slots and runs that hold nothing."""
    state = np.zeros(1, dtype=STATE)
    state["oldest"] = state["newest"] = NONE
    return _Known(
        np.zeros(slots, dtype=bool),
        np.full(runs, UNUSED, dtype=np.int32),
        np.zeros(runs, dtype=np.int32),
        state,
    )


def _ring(known: _Known) -> NDArray[np.int32]:
    """Give the runs of the ring, oldest first."""
    ring, run = [], int(known.state["oldest"][0])
    while run != NONE:
        ring.append(run)
        run = int(known.following[run])
    return np.array(ring, dtype=np.int32)


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _draw(state: Any, number: Any) -> Any:
    """Draw one of so many (the generator is SplitMix64)."""
    state["random"] += np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mix(state["random"]) % np.uint64(number))


@compiled
def _join_ring(known: Any, run: Any) -> None:
    """Make a run the newest of the ring."""
    state = known.state[0]
    known.following[run] = NONE
    if state["newest"] == NONE:
        state["oldest"] = run
    else:
        known.following[state["newest"]] = run
    state["newest"] = run


@compiled
def _leave_ring(known: Any) -> Any:
    """Take the oldest run out of the ring."""
    state = known.state[0]
    run = np.int64(state["oldest"])
    state["oldest"] = known.following[run]
    if state["oldest"] == NONE:
        state["newest"] = NONE
    known.following[run] = NONE
    state["passed"] += 1
    return run


@compiled
def _in_ring(newest_share: Any, runs: Any) -> Any:
    """Runs that the ring is to have, of so many."""
    return max(np.int64(np.round(newest_share * runs)), 1)


@compiled
def _next_run(known: Any, newest_share: Any) -> Any:
    """Choose the run that is overwritten next, and make it the newest of the ring."""
    state, sample = known.state[0], known.sample
    run, in_ring = _leave_ring(known), _in_ring(newest_share, state["runs"])
    while state["sampled"] < state["runs"] - in_ring:  # the ring is longer than it should be
        sample[state["sampled"]] = run
        state["sampled"] += 1
        run = _leave_ring(known)
    place = _draw(state, state["passed"])
    if place < state["sampled"]:
        run, sample[place] = np.int64(sample[place]), run
    _join_ring(known, run)
    return run


@compiled
def _next_victim(known: Any, newest_share: Any, run_length: Any) -> Any:
    """Slot that a newcomer overwrites; there must be one that holds something."""
    state = known.state[0]
    while True:
        while state["left"] > 0:
            slot = np.int64(state["next"])
            state["next"] += 1
            state["left"] -= 1
            if slot < len(known.is_held) and known.is_held[slot]:
                return slot
        run = _next_run(known, newest_share)
        state["next"], state["left"] = run * run_length, run_length


@compiled
def clear(known: Any, slot: Any) -> None:
    """Forget what is in a slot."""
    if known.is_held[slot]:
        known.is_held[slot] = False
        known.state[0]["held"] -= 1


@compiled
def write(known: Any, run_length: Any, slot: Any) -> None:
    """Note that a slot holds something now."""
    run = slot // run_length
    if known.following[run] == UNUSED:
        known.state[0]["runs"] += 1
        _join_ring(known, run)
    if not known.is_held[slot]:
        known.is_held[slot] = True
        known.state[0]["held"] += 1


@compiled
def decide(
    known: Any, newest_share: Any, run_length: Any,
    rows: Any, free: Any, codes: Any, slots: Any, progress: Any,
) -> None:  # fmt: skip
    """Decide about rows in order, until there is no slot to give."""
    row = 0
    while row < len(rows):
        if row < len(free):
            codes[row], slots[row] = STORE, free[row]
        elif known.state[0]["held"] == 0:
            codes[row], slots[row] = STORE, NONE
            row += 1
            break
        else:
            codes[row], slots[row] = REPLACE, _next_victim(known, newest_share, run_length)
        write(known, run_length, slots[row])
        row += 1
    progress[0] = row
