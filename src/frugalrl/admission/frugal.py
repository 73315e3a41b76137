"""The admission filter of Frugal Actor-Critic."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from frugalrl.admission.decision import REFUSED, Rule, decide, density_at
from frugalrl.admission.density import ENOUGH, remove
from frugalrl.admission.dimensions import important_dimensions
from frugalrl.admission.partition import Partition, cell_keys, known_bounds, make_partition
from frugalrl.admission.phi_memory import PhiMemory
from frugalrl.admission.protocol import STORE, Decisions
from frugalrl.admission.reward_tree import Mass
from frugalrl.admission.settings import FrugalSettings, checked_bounds
from frugalrl.admission.warmup import WarmUp

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import ArrayLike, NDArray

_NO_SLOTS = np.empty(0, dtype=np.int64)


class FrugalFilter:
    """Stores a transition only if its reward is under-represented in its cell.

    The first `warmup_steps` transitions are all taken. From them come the important dimensions of
    the state (pivoted QR) and the range of each, which is cut into `bins`. From then on a transition
    is new when the density of its reward among the rewards that the buffer holds for the same cell
    is below `density_threshold * exp(-n / decay)`, n being how many those are. The defaults are the
    paper's numbers.

    Args:
        warmup_steps: length of the warm-up (T), at least as many as the observation has dimensions.
        dimension_threshold: the smallest pivot of an important dimension, relative to the first (nu).
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
        self._known_low: NDArray[np.float64] | None = None
        self._known_high: NDArray[np.float64] | None = None
        self._warmup: WarmUp | None = None
        self._partition: Partition | None = None
        self._rule = self._make_rule(1.0)
        self._keep: NDArray[np.int64] | None = None
        self._owner: Literal["nobody", "buffer", "stream"] = "nobody"
        # Single rows come most often: their results go here instead of into new arrays.
        self._one_code = np.empty(1, dtype=np.int8)
        self._one_slot = np.empty(1, dtype=np.int64)
        self._one_free = np.empty(1, dtype=np.int64)

    @classmethod
    def paper(cls, **changes: Any) -> FrugalFilter:
        """Make the filter of the paper's text to the letter: an equivalent transition is dropped."""
        return cls(**{"on_equivalent": "discard", "warmup": "keep", "outside": "clip", **changes})

    # --- what is known -------------------------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether the warm-up is over and the partition known."""
        return self._partition is not None

    @property
    def important_dimensions_(self) -> NDArray[np.int64]:
        """The important dimensions (kappa), most important first."""
        return self._fitted_partition().dimensions.copy()

    @property
    def reward_scale_(self) -> float:
        """What rewards are divided by."""
        self._fitted_partition()
        return self._rule.reward_scale

    @property
    def bounds_(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Range of each important dimension, (low, high)."""
        partition = self._fitted_partition()
        return partition.low.copy(), partition.low + partition.width * self.settings.bins

    @property
    def cells(self) -> int:
        """Number of cells seen: those that hold a reward. 0 during the warm-up."""
        return self._memory.cells

    @property
    def stored(self) -> int:
        """Number of rewards held."""
        return self._warmup.stored if self._warmup is not None else self._memory.stored

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return self._memory.nbytes + (self._warmup.nbytes if self._warmup is not None else 0)

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell seen."""
        return self._memory.cell_counts()

    def cell_ids(self, observations: ArrayLike) -> NDArray[np.uint64]:
        """Give (n,) numbers, equal for states of (n, d) that lie in one cell."""
        states, _ = self._as_rows(observations, np.zeros(len(np.asarray(observations))))
        return cell_keys(self._fitted_partition(), states)[:, 0].copy()

    def reward_mass(self, observation: ArrayLike, reward: float) -> float:
        """Give the reward density estimate (RDE) of a reward in the cell of a state."""
        states, rewards = self._as_rows([observation], [reward])
        partition = self._fitted_partition()
        return float(density_at(self._memory.phi, partition, self._rule, states[0], rewards[0]))

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
            self._belong_to("stream")
            self._prepare(states.shape[1])
        if self._partition is not None and len(values) == 1:
            self._one_free[0] = self._memory.stored
            self._decide(states, values, self._one_free, self._one_code, self._one_slot)
            if self._one_code[0] == REFUSED:
                self._count_refused(1)
            return np.array([self._one_code[0] == STORE])
        is_stored = np.zeros(len(values), dtype=np.bool_)
        finite = np.isfinite(values) & np.isfinite(states).all(axis=1)
        if not finite.all():
            self._count_refused(int(np.count_nonzero(~finite)))
        rows = np.flatnonzero(finite)
        while len(rows):
            free = np.arange(self.stored, self.stored + len(rows), dtype=np.int64)
            decisions = self._offer(states[rows], values[rows], free)
            decided = len(decisions.codes)
            is_stored[rows[:decided]] = decisions.codes == STORE
            rows = rows[decided:]
        return is_stored

    # --- the protocol of a buffer --------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn the observation space, whose finite bounds give the range of its dimensions."""
        self._belong_to("buffer")
        if observation_space is not None:
            dimensions = int(np.prod(observation_space.shape))
            self._prepare(dimensions)
            if self.settings.bounds == "auto":
                self._known_low, self._known_high = known_bounds(observation_space, dimensions)

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        free: NDArray[np.int64],
    ) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        if self._owner != "buffer":
            self._belong_to("buffer")
        states, values = self._as_rows(observations, rewards)
        if self._known_low is None:
            self._prepare(states.shape[1])
        return self._offer(states, values, free)

    def place(self, observation: NDArray[np.floating], reward: float, slot: int) -> None:
        """Complete a STORE that had no slot."""
        if self._warmup is not None:
            self._warmup.place(slot)
            if self._warmup.is_complete:
                self._keep = self._fit()
            return
        states, values = self._as_rows([observation], [reward])
        self._insert(states, values, np.array([slot], dtype=np.int64))

    def forget(self, slot: int) -> None:
        """Remove an evicted slot."""
        if self._warmup is not None:
            was_there = self._warmup.forget(slot)
        else:
            was_there = remove(self._memory.phi, slot)
        if not was_there:
            raise KeyError(f"slot {slot} holds nothing")

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        state: dict[str, Any] = {
            "settings": self.settings.to_json(),
            "owner": self._owner,
            "rejected_nonfinite": self.rejected_nonfinite,
            "reward_scale": self._rule.reward_scale,
        }
        if self._known_low is not None:
            state["known_bounds"] = {"low": self._known_low, "high": self._known_high}
        if self._warmup is not None:
            state["warmup"] = self._warmup.state_dict()
        if self._keep is not None:
            state["keep"] = self._keep
        if self._partition is not None:
            state["partition"] = {
                "dimensions": self._partition.dimensions,
                "low": self._partition.low,
                "width": self._partition.width,
            }
            state["phi"] = self._memory.state_dict()
        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> FrugalFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        settings = FrugalSettings.from_json(state["settings"])
        made = cls(**vars(settings))
        made._owner = state["owner"]
        made.rejected_nonfinite = int(state["rejected_nonfinite"])
        made._rule = made._make_rule(float(state["reward_scale"]))
        made._keep = state.get("keep")
        if "known_bounds" in state:
            made._known_low = np.array(state["known_bounds"]["low"])
            made._known_high = np.array(state["known_bounds"]["high"])
        if "warmup" in state:
            made._warmup = WarmUp.from_state_dict(state["warmup"], settings.warmup_steps)
        if "partition" in state:
            made._partition = Partition(
                dimensions=np.array(state["partition"]["dimensions"]),
                low=np.array(state["partition"]["low"]),
                width=np.array(state["partition"]["width"]),
                last_bin=made._last_bin,
            )
            made._memory.load_state_dict(state["phi"])
        return made

    # --- inside --------------------------------------------------------------------------------

    @property
    def _last_bin(self) -> float:
        return float(self.settings.bins - 1) if self.settings.outside == "clip" else np.inf

    def _make_rule(self, reward_scale: float) -> Rule:
        settings = self.settings
        return Rule(
            mass=Mass(settings.kernel_code, float(settings.bandwidth), float(settings.half_width)),
            density_threshold=float(settings.density_threshold),
            decay=float(settings.decay),
            reward_scale=reward_scale,
            replaces=settings.on_equivalent == "replace",
        )

    def _belong_to(self, owner: Literal["buffer", "stream"]) -> None:
        """Serve one owner only: two would mix up their slots."""
        if self._owner == "nobody":
            self._owner = owner
        elif self._owner != owner or self._warmup is not None or self.is_fitted:
            raise ValueError(
                f"this filter already decides for a {self._owner}; make a new FrugalFilter"
            )

    def _prepare(self, dimensions: int) -> None:
        """Fix the number of dimensions, before anything is taken in."""
        if self.settings.warmup_steps < dimensions:
            raise ValueError(
                f"warmup_steps={self.settings.warmup_steps} is fewer than the observation's "
                f"{dimensions} dimensions; use at least {dimensions}"
            )
        low, high = known_bounds(None, dimensions)
        if self.settings.bounds != "auto":
            low, high = (np.array(bound) for bound in self.settings.bounds)
            if len(low) != dimensions:
                raise ValueError(
                    f"bounds has {len(low)} dimensions, but the observation has {dimensions}"
                )
        self._known_low, self._known_high = low, high

    def _as_rows(
        self, observations: ArrayLike, rewards: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        try:
            states = np.asarray(observations, dtype=np.float64, order="C")
            values = np.asarray(rewards, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise TypeError("observations and rewards must be arrays of numbers") from error
        if states.ndim != 2 or values.ndim != 1 or len(states) != len(values):
            raise ValueError(
                f"observations has shape {states.shape} and rewards {values.shape}; "
                "(n, dimensions) and (n,) are needed"
            )
        if self._known_low is not None and states.shape[1] != len(self._known_low):
            raise ValueError(
                f"observations has {states.shape[1]} dimensions, "
                f"but this filter has begun with {len(self._known_low)}"
            )
        return states, values

    def _fitted_partition(self) -> Partition:
        if self._partition is None:
            seen = self._warmup.filled if self._warmup is not None else 0
            raise AttributeError(
                f"not known before the warm-up ends: {seen} of {self.settings.warmup_steps} "
                "steps seen"
            )
        return self._partition

    def _count_refused(self, rows: int) -> None:
        if self.rejected_nonfinite == 0:
            warnings.warn(
                "transitions with NaN or infinity are refused; "
                "rejected_nonfinite counts them, this warning comes once",
                RuntimeWarning,
                stacklevel=3,
            )
        self.rejected_nonfinite += rows

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
        codes = np.empty(len(values), dtype=np.int8)
        slots = np.empty(len(values), dtype=np.int64)
        row = self._decide(states, values, free, codes, slots)
        if REFUSED in codes[:row]:
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        return Decisions(codes[:row], slots[:row])

    def _decide(
        self,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        free: NDArray[np.int64],
        codes: NDArray[np.int8],
        slots: NDArray[np.int64],
    ) -> int:
        """Run the compiled decisions, growing phi whenever they ask for room; returns rows decided."""
        row = taken = 0
        while True:
            row, taken, shortage, slot = decide(
                self._memory.phi,
                self._partition,
                self._rule,
                states,
                values,
                free,
                taken,
                codes,
                slots,
                row,
            )
            if shortage == ENOUGH:
                return row
            self._memory.grow(shortage, slot)

    def _insert(
        self, states: NDArray[np.float64], values: NDArray[np.float64], slots: NDArray[np.int64]
    ) -> None:
        """Store rows whatever their density."""
        rule, self._rule = self._rule, self._rule.admitting_all()
        codes = np.empty(len(values), dtype=np.int8)
        self._decide(states, values, slots, codes, np.empty_like(slots))
        self._rule = rule

    def _offer_warmup(
        self,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        free: NDArray[np.int64],
    ) -> Decisions:
        if not (np.isfinite(states).all() and np.isfinite(values).all()):
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        if self._warmup is None:
            self._warmup = WarmUp(self.settings.warmup_steps, states.shape[1], states.dtype)
        rows = min(len(values), self.settings.warmup_steps - self._warmup.filled)
        if len(free) < rows:
            rows = len(free) + 1
            slots = np.append(free, -1)
        else:
            slots = free[:rows].copy()
        self._warmup.record(states[:rows], values[:rows], slots)
        keep = self._fit() if self._warmup.is_complete else None
        return Decisions(np.full(rows, STORE, dtype=np.int8), slots, keep)

    def _fit(self) -> NDArray[np.int64] | None:
        """End the warm-up: find kappa and alpha, fill phi; returns the slots to keep, or None."""
        warmup = self._warmup
        assert warmup is not None and self._known_low is not None and self._known_high is not None
        important = important_dimensions(
            warmup.observations,
            self.settings.dimension_threshold,
            self.settings.min_dimension_fraction,
        )
        self._partition = make_partition(
            important,
            warmup.observations,
            self._known_low,
            self._known_high,
            self.settings.bins,
            self.settings.outside,
        )
        if self.settings.reward_scale != "auto":
            scale = float(self.settings.reward_scale)
        else:
            scale = float(np.std(warmup.rewards))
            if not (np.isfinite(scale) and scale > 0.0):
                warnings.warn(
                    'reward_scale="auto": all rewards of the warm-up are equal, so they are not '
                    "scaled",
                    RuntimeWarning,
                    stacklevel=2,
                )
                scale = 1.0
        self._rule = self._make_rule(scale)
        self._warmup = None
        held = warmup.rows_held()
        rows = held if self.settings.warmup == "keep" else self._rows_admitted(warmup, held)
        states = np.asarray(warmup.observations[rows], dtype=np.float64)
        if self.settings.warmup == "keep":
            self._insert(states, warmup.rewards[rows], warmup.slots[rows])
            return None
        self._insert(states, warmup.rewards[rows], np.arange(len(rows), dtype=np.int64))
        return warmup.slots[rows]

    def _rows_admitted(self, warmup: WarmUp, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pass the warm-up through admission; returns the rows that are left, oldest first."""
        states = np.asarray(warmup.observations[held], dtype=np.float64)
        codes = np.empty(len(held), dtype=np.int8)
        slots = np.empty(len(held), dtype=np.int64)
        free = np.arange(len(held), dtype=np.int64)
        self._decide(states, warmup.rewards[held], free, codes, slots)
        self._memory = PhiMemory(self.settings.kernel_code)
        row_in_slot: dict[int, int] = {}
        for row, slot in zip(held.tolist(), slots.tolist(), strict=True):
            if slot >= 0:
                row_in_slot[slot] = row
        return np.array(sorted(row_in_slot.values()), dtype=np.int64)
