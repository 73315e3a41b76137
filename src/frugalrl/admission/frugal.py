"""The admission filter of Frugal Actor-Critic: its settings, its warm-up and itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frugalrl.admission.density_kernels import KERNELS
from frugalrl.admission.offer import NO_SLOTS, Offer, Rows, are_finite, as_rows
from frugalrl.admission.partition import (
    AXIS,
    Range,
    cell_keys,
    checked_partition,
    important_dimensions,
    known_bounds,
    make_partition,
)
from frugalrl.admission.phi import DONE, NO_ROOM, NOT_FINITE, SLOT_TAKEN, Phi, longer
from frugalrl.admission.protocol import DROP, REPLACE, STORE, Decisions, Floats, Slots
from frugalrl.checks import check_choice, integer_from, is_positive, number_from, warn_caller
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box

Bounds = tuple[tuple[float, ...], tuple[float, ...]]

_CHOICES = {
    "kernel": KERNELS,
    "outside": ("clip", "extend"),
    "on_equivalent": ("replace", "discard"),
    "warmup": ("keep", "filter", "observe"),
}
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "dimension_threshold": ("0 < dimension_threshold <= 1", lambda it: 0.0 < it <= 1.0),
    "min_dimension_fraction": ("0 to 1", lambda it: 0.0 <= it <= 1.0),
    "bandwidth": ("a number above 0 and below 1e300", lambda it: 0.0 < it < 1e300),
    "half_width": ("a number above 0 and below 1e300", lambda it: 0.0 < it < 1e300),
    "density_threshold": ("0 (only empty cells admit) or more", lambda it: 0.0 <= it < math.inf),
    "decay": ("a number above 0 (infinity: no decay)", lambda it: it > 0.0),
    "reward_scale": ('a number above 0 or "auto"', is_positive),
}
"""The settings that are real numbers, what would work in words, and a test of it."""
_LEAST_SPREAD = 1e-12
"""Standard deviation, relative to the largest reward, below which rewards count as equal."""


@dataclass(frozen=True, kw_only=True)
class FrugalSettings:
    """All arguments of `FrugalFilter`, in the paper's symbols where it has them."""

    warmup_steps: int
    dimension_threshold: float
    min_dimension_fraction: float
    bins: int | tuple[int, ...]
    kernel: str
    bandwidth: float
    half_width: float
    density_threshold: float
    decay: float
    bounds: Literal["auto"] | Bounds
    outside: str
    on_equivalent: str
    warmup: str
    reward_scale: float | Literal["auto"]

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name; numbers become plain ones, which JSON can hold."""
        if isinstance(self.warmup, int):
            raise ValueError(
                f"warmup={self.warmup!r} is unknown (known: {', '.join(_CHOICES['warmup'])}); its "
                f"length is warmup_steps={self.warmup!r}"
            )
        checked: dict[str, Any] = {
            "warmup_steps": integer_from("warmup_steps", self.warmup_steps, 1),
            "bins": _checked_bins(self.bins),
            "bounds": _checked_bounds(self.bounds),
        }
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (use, accepts) in _NUMBERS.items():
            value = getattr(self, name)
            if name == "reward_scale" and isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                checked[name] = number_from(name, value, use, accepts)
        self.__dict__.update(checked)  # the one change; afterwards all stay as they are

    def bins_of(self, dimensions: int) -> NDArray[np.int64]:
        """Give the bins of each of so many dimensions."""
        return np.broadcast_to(np.asarray(self.bins, dtype=np.int64), dimensions)

    def bounds_before_warmup(self, dimensions: int, space: Box | None) -> Range:
        """Give the bounds of each dimension, infinite where the warm-up is to tell.

        Raises:
            ValueError: the settings do not fit so many dimensions (0: how many is not known yet).
        """
        if not dimensions:
            return np.empty(0), np.empty(0)
        if self.warmup_steps < dimensions:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} is fewer than the observation's "
                f"{dimensions} dimensions; use at least {dimensions}"
            )
        if isinstance(self.bins, tuple) and len(self.bins) != dimensions:
            raise ValueError(
                f"bins has {len(self.bins)} numbers, but the observation has {dimensions} "
                "dimensions; use one number for all, or one for each"
            )
        if self.bounds == "auto":
            return known_bounds(space, dimensions)
        low, high = np.array(self.bounds)
        if len(low) != dimensions:
            raise ValueError(
                f"bounds has {len(low)} dimensions, but the observation has {dimensions}"
            )
        return low, high


def _checked_bins(bins: Any) -> int | tuple[int, ...]:
    """Turn a number of bins, or one for each dimension, into plain integers from 1 on."""
    if not isinstance(bins, list | tuple | np.ndarray):
        return integer_from("bins", bins, 1)
    if len(bins) == 0:
        raise ValueError(f"bins={bins!r} is empty; use a number, or one for each dimension")
    return tuple(integer_from(f"bins[{i}]", number, 1) for i, number in enumerate(bins))


def _checked_bounds(bounds: Any) -> Literal["auto"] | Bounds:
    """Turn "auto" or (low, high) into plain numbers, refusing what makes no range."""
    if isinstance(bounds, str):
        check_choice("bounds", bounds, ("auto",))
        return "auto"
    try:
        low, high = (np.asarray(end, dtype=np.float64).reshape(-1) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f'bounds={bounds!r} is neither "auto" nor a pair (low, high) of arrays'
        ) from error
    if low.shape != high.shape or low.size == 0 or not (low <= high).all():
        raise ValueError(
            f"bounds: low {low.tolist()} and high {high.tolist()} must have one shape, hold a "
            "number for each dimension, and low must nowhere exceed high"
        )
    return tuple(low.tolist()), tuple(high.tolist())


class WarmUp:
    """The first transitions, in order, and which of them each slot holds.

    Args:
        settings: of the filter.
        dimensions: of an observation; 0 while that is not known.
    """

    cells = 0
    scale_was_found = True

    def __init__(self, settings: FrugalSettings, dimensions: int) -> None:
        self._settings = settings
        self._states, self._rewards = np.zeros((0, dimensions)), np.zeros(0)
        # By slot, counted from 1; 0 where it holds none.
        self._row_in = np.zeros(0, dtype=np.int64)
        self._count = np.zeros(1, dtype=np.int64)  # of rows

    @property
    def seen(self) -> int:
        """Transitions so far."""
        return self._count.item()

    @property
    def is_complete(self) -> bool:
        """Whether no transition is to come."""
        return self.seen == self._settings.warmup_steps

    @property
    def nbytes(self) -> int:
        """Bytes of the whole warm-up: an observation, a reward and a slot per step."""
        dimensions = self._states.shape[1]
        return 8 * self._settings.warmup_steps * (dimensions + 2) if dimensions else 0

    def slots_held(self) -> NDArray[np.int64]:
        """Slots in use, in ascending order."""
        return np.flatnonzero(self._row_in)

    def decide(self, offer: Offer, rows: Rows) -> int:
        """Take rows, unless that has been done; gives what that comes to."""
        most, stores = self._settings.warmup_steps, self._settings.warmup != "observe"
        while True:
            warm_up = self._states, self._rewards, self._row_in, self._count
            status = _take_rows(warm_up, most, stores, rows, offer.answer)
            if status != NO_ROOM:
                return status
            self._make_room(len(offer.codes), int(offer.slots.max(initial=-1)))

    def _make_room(self, rows: int, slot: int) -> None:
        """Let arrays grow for so many more rows, and for a slot."""
        wanted = min(self.seen + rows, self._settings.warmup_steps)
        if wanted > len(self._rewards):
            length = min(max(wanted, 2 * self.seen), self._settings.warmup_steps)
            self._states = longer(self._states, length)
            self._rewards = longer(self._rewards, length)  # last: by this the length is told
        if slot >= len(self._row_in):
            self._row_in = longer(self._row_in, max(slot + 1, 2 * len(self._row_in)))

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Give the last row, which this is, its slot."""
        if slot >= len(self._row_in):
            self._make_room(0, slot)
        self._row_in[slot] = self.seen

    def forget(self, slot: int) -> None:
        """Note that a slot was evicted."""
        if slot < len(self._row_in):
            self._row_in[slot] = 0

    def fit(self, bounds: Range, offer: Offer | None) -> Phi:
        """End the warm-up: find kappa and alpha, fill phi.

        With `warmup="filter"` the offer that ended it tells what has become of the rows: slots are
        released, and its last row, should it have found no slot, may take one of these or go.
        """
        settings, states, rewards = self._settings, self._states, self._rewards
        important = important_dimensions(
            states, settings.dimension_threshold, settings.min_dimension_fraction
        )
        bins = settings.bins_of(states.shape[1])
        partition = make_partition(important, states, bounds, bins, settings.outside)
        given = settings.reward_scale
        scale = _deviation(rewards) if given == "auto" else given
        slots = self._slots()
        left = np.flatnonzero(slots >= 0)
        if settings.warmup == "filter":
            last = self.seen - 1
            asked = np.union1d(left, last)  # and not yet stored, perhaps
            left = self._passing(asked, Phi(settings, partition, scale))
            released = slots[np.setdiff1d(asked, left)]
            released = released[released >= 0]
            if slots[last] < 0:
                code = STORE if last in left else DROP
                if code == STORE and len(released):
                    code, slots[last], released = REPLACE, released[0], released[1:]
                left = left[slots[left] >= 0]
                if offer is not None:
                    end = offer.progress.item(0) - 1
                    offer.codes[end], offer.places[end] = code, slots[last]
            if offer is not None and len(released):
                offer.released = released
        fitted = Phi(settings, partition, scale)
        fitted.fill((states[left], rewards[left]), slots[left])
        return fitted

    def _passing(self, asked: NDArray[np.int64], empty: Phi) -> NDArray[np.int64]:
        """Give the rows that are left when these pass through admission, in order."""
        rows = self._states[asked], self._rewards[asked]
        trial = Offer(rows, np.arange(len(asked)))
        empty.decide(trial, rows)
        row_in_place = dict(zip(trial.places.tolist(), asked.tolist(), strict=True))
        row_in_place.pop(-1, None)
        return np.array(sorted(row_in_place.values()), dtype=np.int64)

    def _slots(self) -> NDArray[np.int64]:
        """Give the slot of each row, -1 where it is not stored, or not yet."""
        slots, held = np.full(self.seen, -1), np.flatnonzero(self._row_in)
        slots[self._row_in[held] - 1] = held
        return slots

    def state_dict(self) -> dict[str, Any]:
        """Copies of what was seen so far."""
        return {
            "observations": self._states[: self.seen].copy(),
            "rewards": self._rewards[: self.seen].copy(),
            "slots": self._slots(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        slots = np.asarray(state["slots"])
        rows = as_rows(state["observations"], state["rewards"], self._states.shape[1])
        count, is_held = len(rows[1]), slots >= 0
        if not (
            slots.shape == (count,)
            and slots.dtype == np.int64
            and count <= self._settings.warmup_steps
            and slots.max(initial=0) <= 2**24 + 64 * count
            and len(np.unique(slots[is_held])) == np.count_nonzero(is_held)
            and are_finite(*rows)
        ):
            raise ValueError("the warm-up does not fit itself: a slot twice, or too many steps")
        self._states, self._rewards = (part.astype(np.float64) for part in rows)
        self._make_room(0, int(slots.max(initial=-1)))
        self._row_in[slots[is_held]] = np.flatnonzero(is_held) + 1
        self._count[:] = count


@compiled
def _take_rows(warm_up: Any, most: Any, stores: Any, rows: Any, answer: Any) -> int:
    """Take as many rows into a warm-up as it and the free slots allow, all of them or none."""
    states, rewards, row_in, count = warm_up
    new_states, new_rewards = rows
    free, codes, slots, progress = answer
    if progress[1] < 0:
        return DONE
    if not are_finite(new_states, new_rewards):
        return NOT_FINITE
    first = count[0]
    decided = min(len(new_rewards), most - first)
    placed = 0
    if stores:
        decided = min(decided, len(free) + 1)
        placed = min(decided, len(free))
    if first + decided > len(rewards):
        return NO_ROOM
    for i in range(placed):
        if free[i] >= len(row_in):
            return NO_ROOM
        if row_in[free[i]] != 0:
            return SLOT_TAKEN
    for i in range(decided):
        for j in range(states.shape[1]):  # to copy a row at once takes a second more to compile
            states[first + i, j] = new_states[i, j]
        rewards[first + i] = new_rewards[i]
        codes[i], slots[i] = STORE if stores else DROP, -1
        if i < placed:
            row_in[free[i]], slots[i] = first + i + 1, free[i]
    count[0] = first + decided
    progress[0], progress[1] = decided, -1
    return DONE


def _deviation(rewards: NDArray[np.float64]) -> float:
    """Give the standard deviation, 0 where it is nothing but rounding errors."""
    largest = float(np.abs(rewards).max())
    # Divided by a power of two, which is exact: squares of large rewards would overflow.
    exponent = int(np.frexp(largest)[1])
    deviation = float(np.std(np.ldexp(rewards, -exponent)))
    scale = float(np.ldexp(deviation, exponent))
    is_spread = rewards.min() < rewards.max() and scale >= _LEAST_SPREAD * largest
    # Dividing by a number smaller than the smallest normal one gives infinity.
    return scale if is_spread and scale >= np.finfo(np.float64).tiny else 0.0


class FrugalFilter:
    """Stores a transition only if its reward is under-represented in its cell.

    The first `warmup_steps` transitions are all taken. From them come the important dimensions of
    the state (pivoted QR) and the range of each, which is cut into `bins`. From then on a
    transition is new when the density of its reward among the rewards that the buffer holds for the
    same cell is below `density_threshold * exp(-n / decay)`, n being how many those are. The
    defaults are the paper's numbers.

    Args:
        warmup_steps: length of the warm-up (T), at least as many as the observation has dimensions.
        dimension_threshold: smallest pivot of an important dimension, relative to the first (nu).
        min_dimension_fraction: share of the dimensions that are important at the least.
        bins: bins along each important dimension (mu): one number for all, or one for each
            dimension of the observation, of which those of the important ones are used.
        kernel: "epanechnikov", "tophat" or "gaussian".
        bandwidth: of the kernel (h), in units of reward.
        half_width: rewards this near count as equivalent (beta), in units of reward.
        density_threshold: density below which a reward is new (epsilon).
        decay: how many rewards of one cell lower the threshold by a factor e (eta).
        bounds: "auto" takes a dimension's range from the observation space where that is finite,
            else from the warm-up; or (low, high), an array each over all dimensions, where an
            infinite value stands for "from the warm-up".
        outside: "clip" puts a state outside the range into the edge cell, "extend" lets the bins
            run on.
        on_equivalent: "replace" lets a transition that is not new take the place of the oldest
            equivalent one (within `half_width`; where none is, of the nearest in reward); "discard"
            drops it, as in the paper's text.
        warmup: "keep" stores the whole warm-up, "filter" passes it through admission when it ends,
            "observe" stores nothing of it.
        reward_scale: rewards are divided by it before `bandwidth` and `half_width` apply; "auto":
            by their standard deviation in the warm-up.
    """

    name: ClassVar[str] = "fac"

    def __init__(
        self,
        *,
        warmup_steps: int = 10_000,
        dimension_threshold: float = 0.5,
        min_dimension_fraction: float = 0.04,
        bins: int | ArrayLike = 50,
        kernel: str = "epanechnikov",
        bandwidth: float = 0.3,
        half_width: float = 0.2,
        density_threshold: float = 0.2,
        decay: float = 1e5,
        bounds: Literal["auto"] | tuple[ArrayLike, ArrayLike] = "auto",
        outside: str = "clip",
        on_equivalent: str = "replace",
        warmup: str = "keep",
        reward_scale: float | Literal["auto"] = 1.0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self.settings = FrugalSettings(**given)
        self.rejected_nonfinite = 0
        self._owner: Literal["nobody", "buffer", "stream"] = "nobody"
        self._bounds = self.settings.bounds_before_warmup(0, None)
        # An interrupt may come at any line, so what an offer changes is changed by one assignment,
        # or within compiled code.
        self._phase: WarmUp | Phi = WarmUp(self.settings, 0)
        self._last: Offer | None = None  # which may be made again
        self._stream_slots = NO_SLOTS

    @classmethod
    def paper(cls, **changes: Any) -> FrugalFilter:
        """Make the filter of the paper's text: equivalents are dropped, no floor of dimensions.

        The paper's sizes show that its runs kept the warm-up; ``warmup="observe"`` begins with an
        empty buffer, as its Algorithm 1 does.
        """
        text: dict[str, Any] = {"on_equivalent": "discard", "min_dimension_fraction": 0.0}
        return cls(**{**text, **changes})

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in asdict(self.settings).items())
        return f"FrugalFilter({given})"

    # --- the protocol of a buffer -----------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn the observation space, whose finite bounds give the range of its dimensions."""
        if isinstance(self._phase, Phi) or self._phase.seen:
            raise self._taken()
        dimensions = 0 if observation_space is None else int(np.prod(observation_space.shape))
        self._serve("buffer", dimensions, observation_space)

    def _serve(
        self, owner: Literal["buffer", "stream"], dimensions: int, space: Box | None = None
    ) -> None:
        """Serve this owner and so many dimensions (0: not known yet), or refuse and stay as it was.

        Refused is a second owner, and a number of dimensions that the settings do not fit.
        """
        if self._owner not in ("nobody", owner):
            raise self._taken()
        bounds = self.settings.bounds_before_warmup(dimensions, space)
        # In this order: should an interrupt come, the next offer does it again.
        self._phase = WarmUp(self.settings, dimensions)
        self._bounds = bounds
        self._owner = owner

    def _taken(self) -> ValueError:
        return ValueError(
            f"this filter already decides for a {self._owner}; make a new FrugalFilter"
        )

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        dimensions = len(self._bounds[0])
        rows = as_rows(observations, rewards, dimensions)
        if self._owner != "buffer" or not dimensions:
            self._serve("buffer", rows[0].shape[1])
        decisions = self._offer((observations, rewards), rows, free)
        if not self._phase.scale_was_found:
            self._warn_of_scale()
        return decisions

    def _offer(self, given: tuple[Any, Any], rows: Rows, free: Any) -> Decisions:
        """Decide about rows, which were given in another type, perhaps."""
        offer = self._last
        if offer is None or not offer.is_same(given, free):
            if self._phase.is_complete:  # an interrupt has kept the last offer from ending it
                self._end_warm_up()
            offer = self._last = Offer(given, free)
        status = self._phase.decide(offer, rows)
        if status == SLOT_TAKEN:
            raise self._taken()
        if status == NOT_FINITE:
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        if self._phase.is_complete:
            self._end_warm_up()
        return offer.decisions()

    def _end_warm_up(self) -> None:
        """Go on with phi, the warm-up being complete with the last offer."""
        assert isinstance(self._phase, WarmUp)
        self._phase = self._phase.fit(self._bounds, self._last)

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a STORE that had no slot; nothing happens if the slot is known already."""
        self._phase.place(observation, reward, slot)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot; nothing happens if it holds nothing."""
        self._phase.forget(slot)

    def _warn_of_scale(self) -> None:
        """Warn once that there was no scale to find; last of all, as a warning may be an error."""
        self._phase.scale_was_found = True
        warn_caller(
            'reward_scale="auto": all rewards of the warm-up are equal, so they are not scaled'
        )

    # --- a stream without storage -----------------------------------------------------------------

    def admit(self, observations: ArrayLike, rewards: ArrayLike) -> NDArray[np.bool_]:
        """Decide about a stream of transitions that nobody stores.

        Args:
            observations: (n, d), one row per transition.
            rewards: (n,).

        Returns:
            (n,) whether each is newly stored, in order. Under "replace" a False still takes the
            place of the oldest equivalent. Rows with NaN or infinity are refused, counted in
            `rejected_nonfinite` and False. All of the warm-up is True; with `warmup="filter"` some
            of it is given up again when the warm-up ends, with "observe" all of it is False.
        """
        rows = as_rows(observations, rewards, self._dimensions)
        if self._owner != "stream":
            self._serve("stream", rows[0].shape[1])
        if are_finite(*rows):
            is_stored, refused = self._admit(*rows), 0
        else:
            is_finite = np.isfinite(rows[0]).all(axis=1) & np.isfinite(rows[1])
            is_stored = np.zeros(len(is_finite), dtype=np.bool_)
            is_stored[is_finite] = self._admit(*(part[is_finite] for part in rows))
            refused = int(np.count_nonzero(~is_finite))
        self.rejected_nonfinite += refused
        if not self._phase.scale_was_found:
            self._warn_of_scale()
        if refused and self.rejected_nonfinite == refused:
            warn_caller(
                "transitions with NaN or infinity are refused; "
                "rejected_nonfinite counts them, this warning comes once"
            )
        return is_stored

    def _admit(self, observations: Floats, rewards: Floats) -> NDArray[np.bool_]:
        """Decide about finite rows of a stream."""
        count = len(rewards)
        if len(self._stream_slots) < count:
            self._find_stream_slots(count)
        rows, slots = (observations, rewards), self._stream_slots
        self._stream_slots = NO_SLOTS  # until it is known which are taken, for an interrupt
        codes = self._offer(rows, rows, slots[:count]).codes
        is_stored: NDArray[np.bool_] = codes == STORE
        self._stream_slots = slots[np.count_nonzero(is_stored) :]
        if len(codes) == count:
            return is_stored
        rest = self._admit(observations[len(codes) :], rewards[len(codes) :])
        return np.concatenate([is_stored, rest])

    def _find_stream_slots(self, count: int) -> None:
        """Find slots for a stream that hold nothing: more than it needs now, for later."""
        held = self.slots_held()
        is_free = np.ones(len(held) + max(count, 4096, len(held) // 8), dtype=np.bool_)
        is_free[held] = False
        self._stream_slots = np.flatnonzero(is_free)

    # --- questions --------------------------------------------------------------------------------

    @property
    def _dimensions(self) -> int:
        """Dimensions of an observation, 0 while they are not known."""
        return len(self._bounds[0])

    @property
    def is_fitted(self) -> bool:
        """Whether the warm-up is over and the partition known."""
        return isinstance(self._phase, Phi)

    def _fitted(self) -> Phi:
        if isinstance(self._phase, WarmUp):
            raise AttributeError(
                f"not known before the warm-up ends: {self._phase.seen} of "
                f"{self.settings.warmup_steps} steps seen"
            )
        return self._phase

    @property
    def important_dimensions_(self) -> NDArray[np.int64]:
        """The important dimensions (kappa), most important first."""
        return self._fitted().partition["dimension"].copy()

    @property
    def reward_scale_(self) -> float:
        """What rewards are divided by."""
        return self._fitted().scale

    @property
    def bounds_(self) -> Range:
        """Range of each important dimension, (low, high)."""
        partition = self._fitted().partition
        bins = self.settings.bins_of(self._dimensions)[partition["dimension"]]
        return partition["low"].copy(), partition["low"] + partition["width"] * bins

    @property
    def cells(self) -> int:
        """Number of cells seen: those that hold a reward. 0 during the warm-up."""
        return self._phase.cells

    @property
    def stored(self) -> int:
        """Number of rewards held."""
        return len(self.slots_held())

    @property
    def nbytes(self) -> int:
        """Bytes of state; those that the warm-up is going to take are counted from the start."""
        return self._phase.nbytes

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots whose rewards are held, in ascending order."""
        return self._phase.slots_held()

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell seen."""
        return self._phase.cell_counts() if isinstance(self._phase, Phi) else NO_SLOTS

    def cell_ids(self, observations: ArrayLike) -> NDArray[np.uint64]:
        """Give (n,) numbers, equal for states of (n, d) that lie in one cell."""
        rewards = np.zeros(len(np.asarray(observations)))
        states, _ = as_rows(observations, rewards, self._dimensions)
        return cell_keys(self._fitted().partition, states)

    def reward_mass(self, observation: ArrayLike, reward: float) -> float:
        """Give the reward density estimate (RDE) of a reward in the cell of a state."""
        states, rewards = as_rows(np.asarray(observation)[None], [reward], self._dimensions)
        return self._fitted().density(states[0], rewards.item())

    # --- state ------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # By copies: what Ray or a memory map hands over is read-only.
        return type(self).from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        phase = self._phase
        state: dict[str, Any] = {
            "settings": asdict(self.settings),
            "owner": self._owner,
            "rejected_nonfinite": self.rejected_nonfinite,
            "bounds": {"low": self._bounds[0], "high": self._bounds[1]},
        }
        if isinstance(phase, Phi):
            state["reward_scale"] = phase.scale
            state["partition"] = {name: phase.partition[name].copy() for name in AXIS.names or ()}
            state["phi"] = phase.state_dict()
        elif phase.seen:
            state["warmup"] = phase.state_dict()
        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> FrugalFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        made = cls(**state["settings"])
        check_choice("owner", state["owner"], ("nobody", "buffer", "stream"))
        made._owner = state["owner"]
        made.rejected_nonfinite = int(state["rejected_nonfinite"])
        made._bounds = np.array(state["bounds"]["low"]), np.array(state["bounds"]["high"])
        phase: WarmUp | Phi
        if "partition" in state:
            partition = checked_partition(state["partition"], made._dimensions)
            scale = number_from("reward_scale", state["reward_scale"], "above 0", is_positive)
            phase = Phi(made.settings, partition, scale)
            phase.load_state_dict(state["phi"])
        else:
            phase = WarmUp(made.settings, made._dimensions)
            if "warmup" in state:
                phase.load_state_dict(state["warmup"])
        made._phase = phase
        return made
