"""The admission filter of Frugal Actor-Critic."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from frugalrl.admission.density_kernels import make_rule
from frugalrl.admission.partition import AXIS, cell_key, cell_keys, checked_partition
from frugalrl.admission.phi import (
    FURTHEST,
    Arrays,
    Phi,
    cell_mass,
    equivalent_slot,
    find_cell,
    insert,
    is_dense,
    prepare,
    remove,
)
from frugalrl.admission.protocol import DROP, REPLACE, STORE, Decisions
from frugalrl.admission.rows import Call, all_finite, as_rows
from frugalrl.admission.settings import FrugalSettings
from frugalrl.admission.warmup import AWAITED, GONE, WarmUp
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import ArrayLike, NDArray

_NO_BOUNDS = (np.empty(0), np.empty(0))
_NO_SLOTS = np.empty(0, dtype=np.int64)
_DONE, _NO_ROOM, _SLOT_TAKEN = range(3)
_ALREADY_TAKEN = "this filter already decides for a {}; make a new FrugalFilter"
_NOT_FINITE = "a buffer must not offer rows with NaN or infinity"


@compiled
def _decide(
    slots: Any,
    cells: Any,
    buckets: Any,
    state: Any,
    partition: Any,
    rules: Any,
    observations: Any,
    rewards: Any,
    free: Any,
    codes: Any,
    chosen: Any,
    progress: Any,
) -> int:
    """Decide about rows in order, going on where the `progress` of the call stands.

    Returns:
        Whether that is done, or what is in the way: too little room, which changes nothing, or a
        free slot that holds something.
    """
    phi, rule = Arrays(slots, cells, buckets, state), rules[0]
    row, taken, is_done = progress
    if row == 0 and not is_done:
        for slot in free:
            if slot < len(slots) and slots[slot]["cell"] != 0:
                return _SLOT_TAKEN
    while row < len(rewards) and not is_done:
        reward = min(max(rewards[row] / rule["scale"], -FURTHEST), FURTHEST)
        key = cell_key(partition, observations[row])
        cell = find_cell(cells, key)
        code, slot = STORE, np.int64(-1)
        if cell != 0 and is_dense(phi, rule, cell, reward):
            code = REPLACE if rule["replaces"] else DROP
        is_done = code == STORE and taken == len(free)
        if code == REPLACE:
            slot = equivalent_slot(phi, cell, reward, rule["half_width"])
        elif code == STORE and not is_done:
            slot = free[taken]
        if slot >= 0:
            if slot >= len(slots) or not prepare(phi, cell, reward):
                return _NO_ROOM
            if code == STORE:
                taken += 1
            else:
                remove(phi, slot)
                cell = find_cell(cells, key)  # which is gone if that was its only reward
                prepare(phi, cell, reward)  # what that has joined; there is room
            insert(phi, cell, key, slot, reward)
        codes[row], chosen[row] = code, slot
        row += 1
        progress[0], progress[1], progress[2] = row, taken, is_done
    return _DONE


@compiled
def _density(phi: Any, partition: Any, rules: Any, observation: Any, reward: Any) -> Any:
    """Reward density estimate of a reward in the cell of a state; 0 in an empty cell."""
    rule = rules[0]
    cell = find_cell(phi.cells, cell_key(partition, observation))
    if cell == 0:
        return 0.0
    scaled = min(max(reward / rule["scale"], -FURTHEST), FURTHEST)
    return cell_mass(phi, rule, cell, scaled, 0.0)[0] / phi.cells[cell]["count"]


class _Fitted:
    """What a filter decides by once its warm-up has ended."""

    def __init__(self, settings: FrugalSettings, partition: NDArray[Any], scale: float) -> None:
        self.partition = partition
        self.scale = scale or 1.0
        self.rules = make_rule(
            settings.kernel,
            settings.bandwidth,
            settings.half_width,
            settings.density_threshold,
            settings.decay,
            self.scale,
            settings.on_equivalent == "replace",
        )
        self.phi = Phi(settings.bandwidth + settings.half_width)
        self.given_up: NDArray[np.int64] | None = None
        """Slots given up when the warm-up ended, until the owner is told."""
        self.call: Call | None = None
        """The last offer, which may be made again."""
        self.scale_was_found = scale > 0.0

    def decide(self, call: Call) -> None:
        """Decide about the rows of a call, as far as that has not been done yet."""
        while True:
            status = _decide(
                *self.phi.arrays, self.partition, self.rules,
                call.observations, call.rewards, call.slots, call.codes, call.chosen, call.progress,
            )  # fmt: skip
            if status != _NO_ROOM:
                break
            taken = int(call.progress[1])
            self.phi.make_room(int(call.slots[taken]) if taken < len(call.slots) else 0)
        if status == _SLOT_TAKEN:
            raise ValueError(_ALREADY_TAKEN.format("buffer"))

    def slots_held(self) -> NDArray[np.int64]:
        """Slots in use, in ascending order; those given up count until the owner is told."""
        held = self.phi.slots_held()
        return np.sort(held if self.given_up is None else np.append(held, self.given_up))

    def insert(
        self,
        observations: NDArray[np.float64],
        rewards: NDArray[np.float64],
        slots: NDArray[np.int64],
    ) -> None:
        """Store rows without asking whether they are new."""
        with np.errstate(over="ignore"):
            scaled = np.clip(rewards / self.scale, -FURTHEST, FURTHEST)
        self.phi.insert(cell_keys(self.partition, observations), scaled, slots)


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
        self.settings = FrugalSettings(
            warmup_steps=warmup_steps,
            dimension_threshold=dimension_threshold,
            min_dimension_fraction=min_dimension_fraction,
            bins=bins,  # type: ignore[arg-type]
            kernel=kernel,
            bandwidth=bandwidth,
            half_width=half_width,
            density_threshold=density_threshold,
            decay=decay,
            bounds=bounds,  # type: ignore[arg-type]
            outside=outside,
            on_equivalent=on_equivalent,
            warmup=warmup,
            reward_scale=reward_scale,
        )
        self.rejected_nonfinite = 0
        self._owner: Literal["nobody", "buffer", "stream"] = "nobody"
        self._bounds = _NO_BOUNDS
        # One of these at a time; neither before the first transition. An interrupt may come at any
        # line, so what an offer changes is changed by one assignment, or within compiled code.
        self._stage: WarmUp | _Fitted | None = None
        self._stream_slots = _NO_SLOTS

    @classmethod
    def paper(cls, **changes: Any) -> FrugalFilter:
        """Make the filter of the paper's text: equivalents are dropped, no floor of dimensions.

        The paper's sizes show that its runs kept the warm-up; ``warmup="observe"`` begins with an
        empty buffer, as its Algorithm 1 does.
        """
        text: dict[str, Any] = {"on_equivalent": "discard", "min_dimension_fraction": 0.0}
        return cls(**{**text, **changes})

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.settings.to_json().items())
        return f"FrugalFilter({given})"

    # --- the protocol of a buffer -----------------------------------------------------------------

    def begin(self, observation_space: Box | None) -> None:
        """Learn the observation space, whose finite bounds give the range of its dimensions."""
        if self._stage is not None:
            raise self._taken()
        dimensions = 0 if observation_space is None else int(np.prod(observation_space.shape))
        self._serve("buffer", dimensions, observation_space)

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        free: NDArray[np.int64],
    ) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        states, values = as_rows(observations, rewards, self._dimensions)
        if self._owner != "buffer" or not self._dimensions:
            self._serve("buffer", states.shape[1])
        if not all_finite(states, values):
            raise ValueError(_NOT_FINITE)
        decisions = self._offer(states, values, free)
        self._warn_of_scale()
        return decisions

    def _offer(
        self, states: NDArray[np.float64], values: NDArray[np.float64], free: Any
    ) -> Decisions:
        stage = self._stage
        if stage is None:
            stage = self._stage = WarmUp(self.settings.warmup_steps, states.shape[1])
        call = stage.call
        if call is None or not call.is_same(states, values, free):
            if isinstance(stage, WarmUp):
                return self._offer_warmup(stage, Call(states, values, free))
            call = stage.call = Call(states, values, free, stage.given_up)
        if isinstance(stage, _Fitted):
            stage.decide(call)
            if stage.given_up is call.given_up:
                stage.given_up = None
        return call.decisions()

    def _offer_warmup(self, warmup: WarmUp, call: Call) -> Decisions:
        """Take rows into the warm-up, which may end with them."""
        decided = min(len(call.rewards), warmup.steps_left)
        if self.settings.warmup == "observe":
            call.codes[:decided], slots = DROP, np.full(decided, GONE, dtype=np.int64)
        else:
            decided = min(decided, len(call.slots) + 1)
            call.codes[:decided], slots = STORE, call.slots[:decided]
            if decided > len(slots):
                slots = np.append(slots, AWAITED)
            call.chosen[:decided] = slots
            if warmup.holds_any(call.slots[:decided]):
                raise self._taken()
        call.progress[:] = decided, 0, True
        rows = warmup.write(call.observations[:decided], call.rewards[:decided], slots)
        if warmup.is_complete(rows):
            fitted = self._fit(warmup, rows)
            fitted.call, call.released, fitted.given_up = call, fitted.given_up, None
            self._stage = fitted
        else:
            warmup.commit(rows, call)
        return call.decisions()

    def _fit(self, warmup: WarmUp, rows: int) -> _Fitted:
        """End the warm-up with so many rows: find kappa and alpha, fill phi."""
        scale = warmup.reward_scale(self.settings)
        partition = warmup.partition(self.settings, self._bounds)
        fitted = _Fitted(self.settings, partition, scale)
        held = warmup.rows_held(rows)
        if self.settings.warmup == "filter" and len(held):
            # Which of them are left when they pass through admission, in order.
            places = np.arange(len(held), dtype=np.int64)
            trial = Call(warmup.observations[held], warmup.rewards[held], places)
            fitted.decide(trial)
            row_in_place = dict(zip(trial.chosen.tolist(), held.tolist(), strict=True))
            row_in_place.pop(-1, None)
            left = np.array(sorted(row_in_place.values()), dtype=np.int64)
            fitted.given_up = warmup.slots[np.setdiff1d(held, left)]
            held = left
            fitted.phi = Phi(self.settings.bandwidth + self.settings.half_width)
        fitted.insert(warmup.observations[held], warmup.rewards[held], warmup.slots[held])
        return fitted

    def place(self, observation: NDArray[np.floating], reward: float, slot: int) -> None:
        """Complete a STORE that had no slot; nothing happens if the slot is known already."""
        stage = self._stage
        if isinstance(stage, WarmUp):
            stage.place(slot)
            if stage.is_complete(stage.rows):
                self._stage = self._fit(stage, stage.rows)
                self._warn_of_scale()
        elif stage is not None and not stage.phi.holds(slot):
            states, values = as_rows(np.asarray(observation)[None], [reward], self._dimensions)
            stage.insert(states, values, np.array([slot], dtype=np.int64))

    def _warn_of_scale(self) -> None:
        """Warn once if there was no scale to find; last of all, as a warning may be an error."""
        stage = self._stage
        if not isinstance(stage, _Fitted) or stage.scale_was_found:
            return
        stage.scale_was_found = True
        warnings.warn(
            'reward_scale="auto": all rewards of the warm-up are equal, so they are not scaled',
            RuntimeWarning,
            stacklevel=3,
        )

    def forget(self, slot: int) -> None:
        """Remove an evicted slot; nothing happens if it holds nothing."""
        stage = self._stage
        if isinstance(stage, WarmUp):
            stage.forget(slot)
        elif stage is not None and not stage.phi.remove(slot) and stage.given_up is not None:
            stage.given_up = stage.given_up[stage.given_up != slot]

    def _serve(
        self, owner: Literal["buffer", "stream"], dimensions: int, space: Box | None = None
    ) -> None:
        """Serve this owner and so many dimensions (0: not known yet), or refuse and stay as it was.

        Raises:
            ValueError: another serves itself of this filter, or the settings do not fit so many
                dimensions.
        """
        if self._owner not in ("nobody", owner):
            raise self._taken()
        self._bounds = self.settings.bounds_before_warmup(dimensions, space)
        self._owner = owner

    def _taken(self) -> ValueError:
        return ValueError(_ALREADY_TAKEN.format(self._owner))

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
        states, values = as_rows(observations, rewards, self._dimensions)
        if self._owner != "stream":
            self._serve("stream", states.shape[1])
        if all_finite(states, values):
            is_stored = self._admit(states, values)
            self._warn_of_scale()
            return is_stored
        is_finite = np.isfinite(values) & np.isfinite(states).all(axis=1)
        is_stored = np.zeros(len(values), dtype=np.bool_)
        is_stored[is_finite] = self._admit(states[is_finite], values[is_finite])
        is_first = self.rejected_nonfinite == 0
        self.rejected_nonfinite += int(np.count_nonzero(~is_finite))
        self._warn_of_scale()
        if is_first:
            warnings.warn(
                "transitions with NaN or infinity are refused; "
                "rejected_nonfinite counts them, this warning comes once",
                RuntimeWarning,
                stacklevel=2,
            )
        return is_stored

    def _admit(self, states: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Decide about finite rows of a stream."""
        is_stored = np.empty(len(values), dtype=np.bool_)
        row = 0
        while row < len(values):
            if len(self._stream_slots) < len(values) - row:
                self._find_stream_slots(len(values) - row)
            free = self._stream_slots[: len(values) - row]
            codes = self._offer(states[row:], values[row:], free).codes
            stored = np.equal(codes, STORE, out=is_stored[row : row + len(codes)])
            self._stream_slots = self._stream_slots[np.count_nonzero(stored) :]
            row += len(codes)
        return is_stored

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
        return isinstance(self._stage, _Fitted)

    @property
    def important_dimensions_(self) -> NDArray[np.int64]:
        """The important dimensions (kappa), most important first."""
        return self._fitted().partition["dimension"].copy()

    @property
    def reward_scale_(self) -> float:
        """What rewards are divided by."""
        return self._fitted().scale

    @property
    def bounds_(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Range of each important dimension, (low, high)."""
        partition = self._fitted().partition
        bins = self.settings.bins_of(self._dimensions)[partition["dimension"]]
        return partition["low"].copy(), partition["low"] + partition["width"] * bins

    @property
    def cells(self) -> int:
        """Number of cells seen: those that hold a reward. 0 during the warm-up."""
        return self._stage.phi.cells if isinstance(self._stage, _Fitted) else 0

    @property
    def stored(self) -> int:
        """Number of rewards held."""
        if isinstance(self._stage, _Fitted) and self._stage.given_up is None:
            return self._stage.phi.stored
        return len(self.slots_held())

    @property
    def nbytes(self) -> int:
        """Bytes of state; those that the warm-up is going to take are counted from the start."""
        if isinstance(self._stage, _Fitted):
            return self._stage.phi.nbytes
        return WarmUp.nbytes(self.settings.warmup_steps, self._dimensions)

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots whose rewards are held, in ascending order."""
        return _NO_SLOTS if self._stage is None else self._stage.slots_held()

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell seen."""
        return self._stage.phi.cell_counts() if isinstance(self._stage, _Fitted) else _NO_SLOTS

    def cell_ids(self, observations: ArrayLike) -> NDArray[np.uint64]:
        """Give (n,) numbers, equal for states of (n, d) that lie in one cell."""
        rewards = np.zeros(len(np.asarray(observations)))
        states, _ = as_rows(observations, rewards, self._dimensions)
        return cell_keys(self._fitted().partition, states)

    def reward_mass(self, observation: ArrayLike, reward: float) -> float:
        """Give the reward density estimate (RDE) of a reward in the cell of a state."""
        states, rewards = as_rows(np.asarray(observation)[None], [reward], self._dimensions)
        fitted = self._fitted()
        return float(
            _density(fitted.phi.arrays, fitted.partition, fitted.rules, states[0], rewards[0])
        )

    def _fitted(self) -> _Fitted:
        if not isinstance(self._stage, _Fitted):
            seen = 0 if self._stage is None else self._stage.rows
            raise AttributeError(
                f"not known before the warm-up ends: {seen} of {self.settings.warmup_steps} "
                "steps seen"
            )
        return self._stage

    # --- state ------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # By copies: what Ray or a memory map hands over is read-only.
        return type(self).from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        stage = self._stage
        state: dict[str, Any] = {
            "settings": self.settings.to_json(),
            "owner": self._owner,
            "rejected_nonfinite": self.rejected_nonfinite,
            "bounds": {"low": self._bounds[0], "high": self._bounds[1]},
        }
        if isinstance(stage, WarmUp):
            state["warmup"] = stage.state_dict()
        elif stage is not None:
            state["reward_scale"] = stage.scale
            state["partition"] = {name: stage.partition[name].copy() for name in AXIS.names or ()}
            state["phi"] = stage.phi.state_dict()
            if stage.given_up is not None:
                state["given_up"] = stage.given_up
        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> FrugalFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        made = cls(**state["settings"])
        made._owner = state["owner"]
        made.rejected_nonfinite = int(state["rejected_nonfinite"])
        low, high = np.array(state["bounds"]["low"]), np.array(state["bounds"]["high"])
        made._bounds = low, high
        if "warmup" in state:
            steps = made.settings.warmup_steps
            made._stage = WarmUp.from_state_dict(state["warmup"], steps, len(low))
        elif "partition" in state:
            partition = checked_partition(state["partition"], len(low))
            stage = made._stage = _Fitted(made.settings, partition, float(state["reward_scale"]))
            scale = made.settings.bandwidth + made.settings.half_width
            stage.phi = Phi.from_state_dict(scale, state["phi"])
            if "given_up" in state:
                stage.given_up = np.array(state["given_up"], dtype=np.int64)
        return made
