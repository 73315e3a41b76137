"""Which of the stored transitions are drawn. Samplers know nothing of admission."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import check_choice, integer_from, is_positive, number_from, refuse_class
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from frugalrl.replay.storage import Storage

Floats = NDArray[np.float64]
Drawn = tuple[NDArray[np.int64], NDArray[np.float32] | None]

_LEAST_PRIORITY, _MOST_PRIORITY = 1e-100, 1e100
"""Priorities stay within these, whatever the errors and alpha: the sum of as many as there can be
is finite, and so is the ratio of any two, while a transition can always be drawn."""
_BLOCK = 64
"""Priorities whose sum is kept: few enough to walk through, and a draw walks through the sums."""


@runtime_checkable
class Sampler(Protocol):
    """Draws slots. The buffer tells it of every change if it `follows` them.

    A class that inherits from this one keeps no state and follows nothing, until it says otherwise.
    """

    name: ClassVar[str]
    follows: ClassVar[bool] = False
    """Whether the sampler wants to hear of stored and removed slots."""
    multiple: int = 1
    """How many times the asked batch size is drawn."""

    def begin(self) -> None:
        """Serve a buffer; a ValueError where the sampler can serve only one and already does."""

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return 0

    def nbytes_for(self, slots: int) -> int:
        """Bytes of state with a number of slots."""
        return 0

    def resize(self, slots: int) -> None:
        """Be ready for a number of slots."""

    def stored(self, slots: NDArray[np.int64]) -> None:
        """These slots hold new transitions."""

    def removed(self, slots: NDArray[np.int64]) -> None:
        """These slots hold nothing any more."""

    @abstractmethod
    def draw(
        self, storage: Storage, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> Drawn:
        """Draw `batches * size` slots, and their importance weights unless all are 1.

        Args:
            storage: of which a sampler may ask `limit`, `dense` and `occupied`.
            generator: the buffer's.
            batches: how many to draw.
            size: of each.
            steps: environment steps so far.
        """

    def feedback(self, slots: NDArray[np.int64], errors: Floats) -> None:
        """Learn the temporal-difference errors of drawn transitions."""

    def fits(self, held: NDArray[np.int64], slots: int) -> bool:
        """Tell whether the state, loaded from somewhere, is one about these of so many slots."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Settings and state; of a dataclass its fields, unless it says otherwise."""
        return asdict(self) if is_dataclass(self) else {}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Sampler:
        """Make the sampler that `state_dict` described."""
        return cls(**state)


@dataclass(eq=False)
class Uniform(Sampler):
    """Every stored transition alike, with replacement."""

    name: ClassVar[str] = "uniform"

    def draw(
        self, storage: Storage, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> Drawn:
        """Draw slots; those that turn out to be free are drawn again."""
        # A double has 53 random bits, so the bias is below 1e-7 for any possible buffer.
        drawn = (generator.random(batches * size) * storage.limit).astype(np.int64)
        if not storage.dense:
            free = np.flatnonzero(~storage.occupied(drawn))
            while len(free):
                drawn[free] = generator.random(len(free)) * storage.limit
                free = free[~storage.occupied(drawn[free])]
        return drawn, None


@dataclass(eq=False)
class LargeBatch(Uniform):
    """Large batch experience replay (LaBER): draws m batches for one, the agent selects.

    Args:
        multiple: how many times the batch size is drawn (m), 1 or more.
    """

    name: ClassVar[str] = "large_batch"
    multiple: int = 4

    def __post_init__(self) -> None:
        self.multiple = integer_from("multiple", self.multiple, 1)


@dataclass(eq=False)
class Prioritized(Sampler):
    """Prioritized experience replay (Schaul et al., 2016), proportional variant.

    A transition is drawn with probability P in proportion to `(|error| + epsilon) ** alpha`, each
    batch stratified over equal shares of the sum. Importance weights `(N * P) ** -beta` are divided
    by the greatest weight any stored transition has, so they never exceed 1 and mean the same in
    every batch. New transitions, replacing ones too, get the greatest priority seen so far.

    Args:
        alpha: how much priorities count; 0 draws uniformly.
        beta: how much of the bias is corrected at first.
        beta_final: how much at the end.
        anneal_steps: environment steps over which beta rises, whether or not they are stored.
        epsilon: keeps transitions without error drawable.
    """

    name: ClassVar[str] = "prioritized"
    follows: ClassVar[bool] = True
    alpha: float = 0.6
    beta: float = 0.4
    beta_final: float = 1.0
    anneal_steps: int = 1_000_000
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        self.alpha, self.beta, self.beta_final = (
            number_from(name, getattr(self, name), "a number from 0", lambda it: 0 <= it < math.inf)
            for name in ("alpha", "beta", "beta_final")
        )
        self.anneal_steps = integer_from("anneal_steps", self.anneal_steps, 1)
        self.epsilon = number_from("epsilon", self.epsilon, "a number above 0", is_positive)
        self._parts = _with_sums(np.empty(0))
        # The greatest priority seen, already raised to alpha.
        self._greatest = 1.0
        self._has_owner = False

    def begin(self) -> None:
        """Serve one buffer only: two would mix up their slots."""
        if self._has_owner:
            raise ValueError("this sampler already draws for a buffer; make a new Prioritized")
        self._has_owner = True

    @property
    def nbytes(self) -> int:
        """Bytes of the priorities and their sums."""
        return sum(part.nbytes for part in self._parts)

    def nbytes_for(self, slots: int) -> int:
        """Bytes of the priorities and their sums with a number of slots."""
        return 8 * (slots + 2 * -(-slots // _BLOCK))

    def resize(self, slots: int) -> None:
        """Grow or shrink; new slots have no priority."""
        held = self._parts[0][:slots]
        if slots != len(self._parts[0]):
            # All at once, whatever interrupts.
            self._parts = _with_sums(np.append(held, np.zeros(slots - len(held))))

    def stored(self, slots: NDArray[np.int64]) -> None:
        """Give new transitions the greatest priority."""
        _set(*self._parts, slots, np.full(len(slots), self._greatest), False)

    def removed(self, slots: NDArray[np.int64]) -> None:
        """Make the slots impossible to draw."""
        _set(*self._parts, slots, np.zeros(len(slots)), False)

    def priorities(self, slots: NDArray[np.int64]) -> Floats:
        """Give the priorities of some slots, raised to alpha; 0 where nothing is stored."""
        return self._parts[0][slots]

    def beta_at(self, steps: int) -> float:
        """Give beta after a number of environment steps."""
        return self.beta + (self.beta_final - self.beta) * min(1.0, steps / self.anneal_steps)

    def draw(
        self, storage: Storage, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> Drawn:
        """Draw slots in proportion to priority, with their importance weights."""
        values, sums, least = self._parts
        drawn = _draw(values, sums, generator.random(batches * size), size)
        # N and the sum of priorities cancel in the division by the greatest weight.
        weights = np.power(values[drawn] / least.min(), -self.beta_at(steps))
        return drawn, weights.astype(np.float32)

    def feedback(self, slots: NDArray[np.int64], errors: Floats) -> None:
        """Set priorities from errors; slots emptied since they were drawn are passed over."""
        with np.errstate(over="ignore", under="ignore"):
            priorities = np.power(np.abs(errors) + self.epsilon, self.alpha)
        priorities = np.minimum(np.maximum(priorities, _LEAST_PRIORITY), _MOST_PRIORITY)
        self._greatest = max(self._greatest, float(priorities.max(initial=0.0)))
        _set(*self._parts, slots, priorities, True)

    def fits(self, held: NDArray[np.int64], slots: int) -> bool:
        """Tell whether exactly the slots that hold something have a priority."""
        values = self._parts[0]
        return len(values) == slots and np.array_equal(np.flatnonzero(values), np.sort(held))

    def state_dict(self) -> dict[str, Any]:
        """Settings and priorities."""
        now = {"greatest": self._greatest, "priorities": self._parts[0].copy()}
        return {**super().state_dict(), **now}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Prioritized:
        """Make the sampler that `state_dict` described."""
        settings = dict(state)
        greatest = settings.pop("greatest")
        priorities = np.asarray(settings.pop("priorities"), dtype=np.float64)
        made = cls(**settings)
        in_range = (priorities >= 0.0) & (priorities <= _MOST_PRIORITY)
        if priorities.ndim != 1 or not in_range.all():
            raise ValueError("priorities must be finite, not negative, and one-dimensional")
        made._greatest = number_from(
            "greatest", greatest, "a priority", lambda it: _LEAST_PRIORITY <= it <= _MOST_PRIORITY
        )
        made._parts = _with_sums(priorities.copy())
        return made


def _with_sums(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Give priorities, and of each block of them the sum and the least one above zero."""
    blocks = -(-len(values) // _BLOCK)
    parts = values, np.empty(blocks), np.empty(blocks)
    _set(*parts, np.arange(len(values)), values, False)
    return parts


@compiled
def _refresh(values: Any, sums: Any, least: Any, block: int) -> None:
    """Compute the sum of a block anew, so that rounding errors never pile up."""
    total, smallest = 0.0, np.inf
    for slot in range(block * _BLOCK, min((block + 1) * _BLOCK, len(values))):
        if values[slot] > 0.0:
            total += values[slot]
            smallest = min(smallest, values[slot])
    sums[block] = total
    least[block] = smallest


@compiled
def _set(
    values: Any, sums: Any, least: Any, slots: Any, priorities: Any, only_positive: bool
) -> None:
    """Set the priorities of some slots, in order; or only of those that have one."""
    for i in range(len(slots)):
        if not only_positive or values[slots[i]] > 0.0:
            values[slots[i]] = priorities[i]
    for i in range(len(slots)):
        block = slots[i] // _BLOCK
        if i == 0 or block != slots[i - 1] // _BLOCK:
            _refresh(values, sums, least, block)


@compiled
def _draw(values: Any, sums: Any, uniform: Any, size: int) -> Any:
    """Draw batches of a size, one slot from each of as many equal shares of the sum."""
    drawn = np.empty(len(uniform), dtype=np.int64)
    total, last = 0.0, 0
    for block in range(len(sums)):
        total += sums[block]
        if sums[block] > 0.0:
            last = block
    for first in range(0, len(uniform), size):
        block, before = 0, 0.0
        for i in range(first, first + size):
            mark = (i - first + uniform[i]) * (total / size)
            while block < last and before + sums[block] <= mark:
                before += sums[block]
                block += 1
            rest = mark - before
            for slot in range(block * _BLOCK, min((block + 1) * _BLOCK, len(values))):
                if values[slot] > 0.0:
                    # Rounding may leave the mark beyond the end: the last share takes it.
                    drawn[i] = slot
                    if rest < values[slot]:
                        break
                    rest -= values[slot]
    return drawn


SAMPLERS: dict[str, type[Uniform] | type[Prioritized]] = {
    made.name: made for made in (Uniform, Prioritized, LargeBatch)
}


def make_sampler(sampler: str | Sampler) -> Sampler:
    """Give the sampler of a name, or the sampler itself."""
    if isinstance(sampler, str):
        check_choice("sampler", sampler, SAMPLERS)
        return SAMPLERS[sampler]()
    refuse_class("sampler", sampler)
    if not isinstance(sampler, Sampler):
        raise TypeError(
            f"sampler={sampler!r} is no sampler; use one of {', '.join(SAMPLERS)} or an instance"
        )
    return sampler
