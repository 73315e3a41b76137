"""The admission filter of Frugal Actor-Critic."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from frugalrl.admission.decision import Rule
from frugalrl.admission.density import CELL, remove
from frugalrl.admission.fitting import NO_BOUNDS, bounds_before_warmup, fit
from frugalrl.admission.inspection import Inspection
from frugalrl.admission.partition import Partition, last_bin
from frugalrl.admission.phi_memory import PhiMemory
from frugalrl.admission.protocol import STORE, Decisions
from frugalrl.admission.rows import NOT_FINITE
from frugalrl.admission.settings import FrugalSettings, checked_bounds
from frugalrl.admission.warmup import WarmUp

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import ArrayLike, NDArray

_NO_SLOTS = np.empty(0, dtype=np.int64)
_STORED = np.array(STORE, dtype=np.int8)


class FrugalFilter(Inspection):
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
        bins: bins along each important dimension (mu).
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
        warmup: "keep" keeps the whole warm-up, "filter" passes it through admission when it ends.
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
        bins: int = 50,
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
        self.settings = FrugalSettings(
            warmup_steps=warmup_steps,
            dimension_threshold=dimension_threshold,
            min_dimension_fraction=min_dimension_fraction,
            bins=bins,
            kernel=kernel,
            bandwidth=bandwidth,
            half_width=half_width,
            density_threshold=density_threshold,
            decay=decay,
            bounds=checked_bounds(bounds),
            outside=outside,
            on_equivalent=on_equivalent,
            warmup=warmup,
            reward_scale=reward_scale,
        )
        self.rejected_nonfinite = 0
        self._memory = PhiMemory(self.settings.kernel_code)
        self._known_bounds: tuple[NDArray[np.float64], NDArray[np.float64]] = NO_BOUNDS
        self._warmup: WarmUp | None = None
        self._partition: Partition | None = None
        self._rule = Rule.of(self.settings, 1.0)
        self._keep: NDArray[np.int64] | None = None
        self._owner: Literal["nobody", "buffer", "stream"] = "nobody"
        self._may_have_two_owners = False
        self._counted, self._first_counted = _NO_SLOTS, 0

    @classmethod
    def paper(cls, **changes: Any) -> FrugalFilter:
        """Make the filter of the paper's text to the letter: equivalent transitions are dropped."""
        return cls(**{"on_equivalent": "discard", "warmup": "keep", "outside": "clip", **changes})

    def __repr__(self) -> str:
        changed = ", ".join(f"{k}={v!r}" for k, v in self.settings.to_json().items())
        return f"FrugalFilter({changed})"

    # --- a stream without storage --------------------------------------------------------------

    def admit(self, observations: ArrayLike, rewards: ArrayLike) -> NDArray[np.bool_]:
        """Decide about a stream of transitions that nobody stores.

        Args:
            observations: (n, d), one row a transition.
            rewards: (n,).

        Returns:
            (n,) whether each is newly stored, in order. Under "replace" a False still takes the
            place of the oldest equivalent. Rows with NaN or infinity are refused, counted in
            `rejected_nonfinite` and False. All of the warm-up is True; with `warmup="filter"` some
            of it is given up again when the warm-up ends.
        """
        states, values = self._as_rows(observations, rewards)
        if self._owner != "stream":
            self._belong_to("stream", states.shape[1])
        refused_before = self.rejected_nonfinite
        is_stored = self._admit(states, values)
        # Last of all: where warnings are errors, the rows are dealt with all the same.
        if self.rejected_nonfinite and not refused_before:
            warnings.warn(NOT_FINITE, RuntimeWarning, stacklevel=2)
        return is_stored

    def _admit(self, states: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Decide about rows of a stream."""
        if self._partition is not None:
            return self._admit_fitted(self._partition, states, values)
        is_stored = np.zeros(len(values), dtype=np.bool_)
        row = self._admit_warmup(states, values, is_stored)
        if row < len(values):
            partition = self._fitted_partition()
            is_stored[row:] = self._admit_fitted(partition, states[row:], values[row:])
        return is_stored

    def _admit_fitted(
        self, partition: Partition, states: NDArray[np.float64], values: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Decide about rows of a stream after the warm-up."""
        rows = len(values)
        codes, slots = np.empty(rows, dtype=np.int8), np.empty(rows, dtype=np.int64)
        _, refused = self._memory.decide(
            partition, self._rule, states, values, self._next_slots(rows), codes, slots
        )
        self.rejected_nonfinite += refused
        return np.equal(codes, _STORED)

    def _next_slots(self, count: int) -> NDArray[np.int64]:
        """Slots of a stream: nothing is ever evicted, so they are simply counted."""
        start = self.stored - self._first_counted
        if not 0 <= start <= len(self._counted) - count:
            self._first_counted += start
            start = 0
            # More than needed: to cut a piece off is faster than to count for each call.
            end = self._first_counted + max(count, 4096)
            self._counted = np.arange(self._first_counted, end, dtype=np.int64)
        return self._counted[start : start + count]

    def _admit_warmup(
        self,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        is_stored: NDArray[np.bool_],
    ) -> int:
        """Take rows of a stream into the warm-up; returns how many rows are dealt with."""
        is_finite = np.isfinite(values) & np.isfinite(states).all(axis=1)
        seen = self._warmup.filled if self._warmup is not None else 0
        rows = np.flatnonzero(is_finite)[: self.settings.warmup_steps - seen]
        dealt_with = len(values) if seen + len(rows) < self.settings.warmup_steps else rows[-1] + 1
        if len(rows):
            self._offer_warmup(states[rows], values[rows], self._next_slots(len(rows)))
            is_stored[rows] = True
        self.rejected_nonfinite += int(np.count_nonzero(~is_finite[:dealt_with]))
        return int(dealt_with)

    # --- the protocol of a buffer --------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn the observation space, whose finite bounds give the range of its dimensions."""
        dimensions = 0 if observation_space is None else int(np.prod(observation_space.shape))
        has_begun = self._owner == "buffer"
        self._belong_to("buffer", dimensions, observation_space)
        # A buffer that was refused half made may be made again with the same filter. Whether the
        # first is indeed gone cannot be seen from here, but from the slots that are offered.
        self._may_have_two_owners = has_begun

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        free: NDArray[np.int64],
    ) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        states, values = self._as_rows(observations, rewards)
        if self._owner != "buffer" or len(self._known_bounds[0]) == 0:
            self._belong_to("buffer", states.shape[1])
        if self._may_have_two_owners and self._keep is None and len(free):
            self._refuse_second_owner(int(free[0]))
        return self._offer(states, values, free)

    def place(self, observation: NDArray[np.floating], reward: float, slot: int) -> None:
        """Complete a STORE that had no slot."""
        if self._warmup is not None:
            self._warmup.place(slot)
            if self._warmup.is_complete:
                self._keep = self._fit(self._warmup, self._warmup.filled - 1)
            return
        states, values = self._as_rows(np.asarray(observation)[None], [reward])
        place = np.array([slot], dtype=np.int64)
        self._memory.insert(self._fitted_partition(), self._rule, states, values, place)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot."""
        if self._warmup is not None:
            was_there = self._warmup.forget(slot)
        else:
            was_there = remove(self._memory.table, slot)
        if not was_there:
            raise KeyError(f"slot {slot} holds nothing")

    def keep_only(self, keep: NDArray[np.int64]) -> bool:
        """Hold as little memory as can be; the owner renumbers all its slots, oldest first.

        Args:
            keep: all slots that hold something, oldest first; they become 0, 1, 2, ...

        Returns:
            False, and nothing has changed, while the warm-up takes the memory it takes.
        """
        if self._partition is None:
            return False
        self._memory.keep_only(keep)
        return True

    def compiled_state(self) -> tuple[Any, ...] | None:
        """What `decision.decide` takes first, for deciding within other compiled code.

        None while that is not possible: during the warm-up, and until its outcome is told.
        """
        if self._partition is None or self._keep is not None:
            return None
        return self._memory.compiled_state(self._partition, self._rule)

    def grow(self, shortage: int, slot: int) -> tuple[Any, ...]:
        """Make the room that `decision.decide` found missing; gives the new `compiled_state`."""
        self._memory.grow(shortage, slot)
        return self._memory.compiled_state(self._fitted_partition(), self._rule)

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        state: dict[str, Any] = {
            "settings": self.settings.to_json(),
            "owner": self._owner,
            "rejected_nonfinite": self.rejected_nonfinite,
            "reward_scale": self._rule.reward_scale,
        }
        state["known_bounds"] = {"low": self._known_bounds[0], "high": self._known_bounds[1]}
        if self._warmup is not None:
            state["warmup"] = self._warmup.state_dict()
        if self._keep is not None:
            state["keep"] = self._keep
        if self._partition is not None:
            state["partition"] = self._partition.state_dict()
            state["phi"] = self._memory.state_dict()
        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> FrugalFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        settings = FrugalSettings.from_json(state["settings"])
        made = cls(**vars(settings))
        made._owner = state["owner"]
        made.rejected_nonfinite = int(state["rejected_nonfinite"])
        made._rule = Rule.of(settings, float(state["reward_scale"]))
        made._keep = state.get("keep")
        known = state["known_bounds"]
        made._known_bounds = (np.array(known["low"]), np.array(known["high"]))
        if "warmup" in state:
            made._warmup = WarmUp.from_state_dict(state["warmup"], settings.warmup_steps)
        if "partition" in state:
            dimensions = len(made._known_bounds[0])
            last = last_bin(settings.bins, settings.outside)
            made._partition = Partition.from_state_dict(state["partition"], dimensions, last)
            made._memory.load_state_dict(state["phi"])
        return made

    # --- inside --------------------------------------------------------------------------------

    def _belong_to(
        self, owner: Literal["buffer", "stream"], dimensions: int, space: Box | None = None
    ) -> None:
        """Serve this owner and so many dimensions (0: not known yet), or refuse and stay as it was.

        One owner only: two would mix up their slots.
        """
        is_taken = self._owner not in ("nobody", owner)
        if is_taken or self._warmup is not None or self.is_fitted:
            raise self._taken()
        self._known_bounds = bounds_before_warmup(self.settings, dimensions, space)
        self._owner = owner

    def _refuse_second_owner(self, free_slot: int) -> None:
        """Refuse a buffer whose first free slot is in use: another buffer has filled it."""
        if self._warmup is not None:
            is_used = bool((self._warmup.slots == free_slot).any())
        else:
            links = self._memory.phi.links
            is_used = free_slot < len(links) and bool(links[free_slot, CELL] >= 0)
        if is_used:
            raise self._taken()

    def _taken(self) -> ValueError:
        return ValueError(
            f"this filter already decides for a {self._owner}; make a new FrugalFilter"
        )

    def _offer(
        self,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        free: NDArray[np.int64],
    ) -> Decisions:
        if self._keep is not None:
            keep, self._keep = self._keep, None
            return Decisions(np.empty(0, dtype=np.int8), _NO_SLOTS, keep)
        if self._partition is None:
            return self._offer_warmup(states, values, free)
        decisions, refused = self._decide(states, values, free)
        if refused:
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        return decisions

    def _decide(
        self, states: NDArray[np.float64], values: NDArray[np.float64], free: NDArray[np.int64]
    ) -> tuple[Decisions, int]:
        """Decide about rows after the warm-up; also tells how many held NaN or infinity."""
        codes = np.empty(len(values), dtype=np.int8)
        slots = np.empty(len(values), dtype=np.int64)
        rows, refused = self._memory.decide(
            self._fitted_partition(), self._rule, states, values, free, codes, slots
        )
        if rows < len(values):
            codes, slots = codes[:rows], slots[:rows]
        return Decisions(codes, slots), refused

    def _offer_warmup(
        self,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        free: NDArray[np.int64],
    ) -> Decisions:
        if not (np.isfinite(states).all() and np.isfinite(values).all()):
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        warmup = self._warmup or WarmUp(self.settings.warmup_steps, states.shape[1])
        rows = min(len(values), self.settings.warmup_steps - warmup.filled)
        if len(free) < rows:
            rows = len(free) + 1
            slots = np.append(free, -1)
        else:
            slots = free[:rows].copy()
        seen = warmup.filled
        warmup.record(states[:rows], values[:rows], slots)
        if not warmup.is_complete:
            self._warmup = warmup
            return Decisions(np.full(rows, STORE, dtype=np.int8), slots)
        keep = self._fit(warmup, seen)
        return Decisions(np.full(rows, STORE, dtype=np.int8), slots, keep)

    def _fit(self, warmup: WarmUp, seen: int) -> NDArray[np.int64] | None:
        """End the warm-up; returns the slots to keep, or None for all.

        Should that fail, a warning made an error being enough, all is as it was after `seen` rows:
        the owner gets no answer and does not store the others.
        """
        try:
            fitted = fit(warmup, self.settings, *self._known_bounds)
        except BaseException:
            warmup.filled = seen
            warmup.slots[seen:] = -1
            raise
        self._partition, self._rule, self._memory, keep = fitted
        self._warmup = None
        return keep
