"""What the authors' released code does, as a control: the published numbers come from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frugalrl.admission.frugal import FrugalFilter, WarmUp
from frugalrl.admission.offer import Offer, are_finite, as_rows
from frugalrl.admission.partition import AXIS, cell_key, checked_partition, make_partition
from frugalrl.admission.protocol import REPLACE, STORE, Decisions, Floats, Slots
from frugalrl.checks import integer_from
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box


@compiled
def released_density(
    rewards: Any, count: int, reward: float, bandwidth: float, half_width: float
) -> float:
    """Kernel density of the first `count` rewards, summed at five points over four intervals.

    That counts one interval too many: on a flat density it is 25 % too high.
    """
    step, total = half_width / 2.0, 0.0
    for i in range(count):
        for point in range(-2, 3):
            t = (reward + point * step - rewards[i]) / bandwidth
            if abs(t) < 1.0:
                total += 0.75 * (1.0 - t * t)
    return total / (count * bandwidth) * step


class _Cell:
    """The rewards that a cell has admitted, and the slot that its equivalents go to."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.count = 0
        self.rewards = np.empty(0)

    def add(self, reward: float) -> None:
        """Admit a reward."""
        if self.count == len(self.rewards):
            self.rewards = np.append(self.rewards, np.empty(self.count // 2 + 4))
        self.rewards[self.count] = reward
        self.count += 1


class ReleasedFilter:
    """Decides as the released code of Frugal Actor-Critic does; a control, not a recommendation.

    The important dimensions are given. Their bins have the ranges of dimensions 0, 1, 2, ... of the
    observation, as many as there are important ones. The density is a sum at five points. What is
    not new overwrites one slot per cell, that of the first transition which the cell has stored,
    whatever its reward and whatever the slot holds by now. Rewards of admitted transitions are
    never removed. The warm-up is stored as a whole.

    Args:
        important_dimensions: as the authors typed them in for each environment.
        warmup_steps: length of the warm-up.
        bins: bins along each important dimension.
        bandwidth: of the Epanechnikov kernel.
        half_width: half the width of the interval whose density counts.
        density_threshold: density below which a reward is new.
        decay: how many rewards of one cell lower the threshold by a factor e.
        bounds: "auto" for the observation space's where finite, else the warm-up's; or (low, high).
    """

    name: ClassVar[str] = "fac-released"

    def __init__(
        self,
        important_dimensions: Sequence[int],
        *,
        warmup_steps: int = 10_000,
        bins: int = 50,
        bandwidth: float = 0.3,
        half_width: float = 0.2,
        density_threshold: float = 0.2,
        decay: float = 1e5,
        bounds: Literal["auto"] | tuple[ArrayLike, ArrayLike] = "auto",
    ) -> None:
        self.important_dimensions = [
            integer_from(f"important_dimensions[{i}]", dimension, 0)
            for i, dimension in enumerate(important_dimensions)
        ]
        if not self.important_dimensions:
            raise ValueError("important_dimensions is empty; name one dimension at least")
        self.settings = FrugalFilter(
            warmup_steps=warmup_steps,
            bins=integer_from("bins", bins, 1),
            bandwidth=bandwidth,
            half_width=half_width,
            density_threshold=density_threshold,
            decay=decay,
            bounds=bounds,
        ).settings
        self._bounds = self.settings.bounds_before_warmup(0, None)
        self._seen: list[tuple[NDArray[np.float64], float, int]] = []
        self._partition: NDArray[Any] | None = None
        self._cells: dict[int, _Cell] = {}
        self._in_use: set[int] = set()
        self._offer: Offer | None = None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._arguments().items())
        return f"ReleasedFilter({self.important_dimensions}, {arguments})"

    def _arguments(self) -> dict[str, Any]:
        """All but the important dimensions."""
        names = ("warmup_steps", "bins", "bandwidth", "half_width", "density_threshold", "decay")
        return {name: getattr(self.settings, name) for name in (*names, "bounds")}

    def begin(self, observation_space: Box | None) -> None:
        """Learn the observation space, whose finite bounds give the range of its dimensions."""
        if self._seen or self._partition is not None:
            raise ValueError("this filter already decides for a buffer; make a new ReleasedFilter")
        dimensions = 0 if observation_space is None else int(np.prod(observation_space.shape))
        self._expect(dimensions, observation_space)

    def _expect(self, dimensions: int, space: Box | None) -> None:
        """Expect observations of so many dimensions, 0 while that is not known."""
        bounds = self.settings.bounds_before_warmup(dimensions, space)
        if (
            dimensions
            and max(*self.important_dimensions, len(self.important_dimensions) - 1) >= dimensions
        ):
            raise ValueError(
                f"important_dimensions={self.important_dimensions} does not fit an observation of "
                f"{dimensions} dimensions, counted from 0"
            )
        self._bounds = bounds

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about (n, d) observations with (n,) rewards, in order; see the protocol."""
        given, rows = (observations, rewards), as_rows(observations, rewards, len(self._bounds[0]))
        if not are_finite(*rows):
            raise ValueError("a buffer must not offer rows with NaN or infinity")
        if not len(self._bounds[0]):
            self._expect(rows[0].shape[1], None)
        if self._offer is None or not self._offer.is_same(given, free):
            offer = Offer(given, free)
            taken = 0
            states = rows[0].astype(np.float64)
            for row, (state, reward) in enumerate(zip(states, rows[1].tolist(), strict=True)):
                slot = self._replaced_slot(state, reward)
                offer.codes[row] = STORE if slot < 0 else REPLACE
                if slot < 0 and taken < len(offer.slots):
                    slot = int(offer.slots[taken])
                    taken += 1
                    self._store(state, reward, slot)
                offer.places[row], offer.progress[0] = slot, row + 1
                if slot < 0:
                    break
            self._offer = offer
        return self._offer.decisions()

    def _replaced_slot(self, state: NDArray[np.float64], reward: float) -> int:
        """Slot that a transition overwrites, -1 if it is new."""
        if self._partition is None:
            return -1
        cell = self._cells.get(int(cell_key(self._partition, state)))
        if cell is None or cell.slot not in self._in_use:
            return -1
        settings = self.settings
        density = released_density(
            cell.rewards, cell.count, reward, settings.bandwidth, settings.half_width
        )
        limit = settings.density_threshold * math.exp(-cell.count / settings.decay)
        return -1 if density < limit else cell.slot

    def _store(self, state: NDArray[np.float64], reward: float, slot: int) -> None:
        """Note that a new transition lies in a slot."""
        self._in_use.add(slot)
        if self._partition is not None:
            self._add(self._partition, state, reward, slot)
            return
        self._seen.append((state.copy(), reward, slot))
        if len(self._seen) == self.settings.warmup_steps:
            self._fit()

    def _add(
        self, partition: NDArray[Any], state: NDArray[np.float64], reward: float, slot: int
    ) -> None:
        cell = self._cells.setdefault(int(cell_key(partition, state)), _Cell(slot))
        if cell.slot not in self._in_use:
            cell.slot = slot
        cell.add(reward)

    def _fit(self) -> None:
        """End the warm-up."""
        observations = np.array([state for state, _, _ in self._seen])
        count = len(self.important_dimensions)
        bins = self.settings.bins_of(observations.shape[1])
        # The ranges are those of the first dimensions, the values those of the important ones.
        partition = make_partition(np.arange(count), observations, self._bounds, bins, "clip")
        partition["dimension"] = self.important_dimensions
        for state, reward, slot in self._seen:
            self._add(partition, state, reward, slot)
        self._partition, self._seen = partition, []

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a STORE that had no slot."""
        if slot not in self._in_use:
            states, _ = as_rows(np.asarray(observation)[None], [reward], len(self._bounds[0]))
            self._store(states[0], float(reward), slot)

    def forget(self, slot: int) -> None:
        """Note that a slot was evicted; its reward stays."""
        self._in_use.discard(slot)

    @property
    def nbytes(self) -> int:
        """Bytes of state; those that the warm-up is going to take are counted from the start."""
        if self._partition is None:
            return WarmUp(self.settings, len(self._bounds[0])).nbytes
        rewards = sum(cell.rewards.nbytes for cell in self._cells.values())
        return rewards + 16 * len(self._cells) + 8 * len(self._in_use)

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values from which `from_state_dict` makes an identical filter."""
        cells = list(self._cells.values())
        state: dict[str, Any] = {
            "important_dimensions": self.important_dimensions,
            "settings": self._arguments(),
            "bounds": {"low": self._bounds[0], "high": self._bounds[1]},
            "in_use": np.array(sorted(self._in_use), dtype=np.int64),
        }
        if self._partition is None:
            state["seen"] = {
                "observations": np.array([row[0] for row in self._seen]),
                "rewards": np.array([row[1] for row in self._seen]),
                "slots": np.array([row[2] for row in self._seen], dtype=np.int64),
            }
        else:
            state["partition"] = {name: self._partition[name].copy() for name in AXIS.names or ()}
            state["cells"] = {
                "keys": np.array(list(self._cells), dtype=np.uint64),
                "slots": np.array([cell.slot for cell in cells], dtype=np.int64),
                "counts": np.array([cell.count for cell in cells], dtype=np.int64),
                "rewards": np.concatenate([cell.rewards[: cell.count] for cell in cells]),
            }
        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> ReleasedFilter:
        """Make the filter that `state_dict` described; it goes on with identical decisions."""
        made = cls(state["important_dimensions"], **state["settings"])
        made._bounds = np.array(state["bounds"]["low"]), np.array(state["bounds"]["high"])
        made._in_use = set(np.asarray(state["in_use"]).tolist())
        if "seen" in state:
            seen = state["seen"]
            columns = (
                np.array(seen["observations"]),
                seen["rewards"].tolist(),
                seen["slots"].tolist(),
            )
            made._seen = list(zip(*columns, strict=True))
            return made
        made._partition = checked_partition(state["partition"], len(made._bounds[0]))
        cells = state["cells"]
        counts = np.asarray(cells["counts"])
        if (counts < 1).any() or counts.sum() != len(cells["rewards"]):
            raise ValueError("the cells do not hold as many rewards as there are")
        rewards = np.split(np.asarray(cells["rewards"], dtype=np.float64), np.cumsum(counts)[:-1])
        for key, slot, held in zip(
            cells["keys"].tolist(), cells["slots"].tolist(), rewards, strict=True
        ):
            cell = made._cells[key] = _Cell(slot)
            for reward in held.tolist():  # one by one, for the same room
                cell.add(reward)
        return made
