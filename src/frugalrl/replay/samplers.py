"""Which of the stored transitions are drawn. Samplers know nothing of admission."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import check_choice, integer_from, is_positive, number_from, refuse_class
from frugalrl.replay.sum_tree import SumTree

_LEAST_PRIORITY, _MOST_PRIORITY = 1e-100, 1e100
"""Priorities stay within these, whatever the errors and alpha: the sum of as many as there can be
is finite, and so is the ratio of any two, while a transition can always be drawn."""


class Slots(Protocol):
    """What a sampler may ask about the storage."""

    @property
    def limit(self) -> int:
        """One more than the highest slot ever occupied."""

    @property
    def dense(self) -> bool:
        """Whether every slot below `limit` is occupied."""

    def occupied(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which slots hold a transition."""


@runtime_checkable
class Sampler(Protocol):
    """Draws slots. The buffer tells it of every change if it `follows` them.

    A class that inherits from this one keeps no state and follows nothing, until it says otherwise.
    """

    name: ClassVar[str]
    follows: ClassVar[bool] = False
    """Whether the sampler wants to hear of stored and removed slots."""

    def begin(self) -> None:
        """Serve a buffer; a ValueError where the sampler can serve only one and already does."""

    @property
    def multiple(self) -> int:
        """How many times the asked batch size is drawn."""
        return 1

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
        self, slots: Slots, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Draw `batches * size` slots, and their importance weights unless all are 1."""

    def feedback(self, slots: NDArray[np.int64], errors: NDArray[np.float64]) -> None:
        """Learn the temporal-difference errors of drawn transitions."""

    def fits(self, held: NDArray[np.int64], slots: int) -> bool:
        """Tell whether the state, loaded from somewhere, is one about these of so many slots."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Settings and state."""
        return {}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Sampler:
        """Make the sampler that `state_dict` described."""
        return cls(**state)


class Uniform(Sampler):
    """Every stored transition alike, with replacement."""

    name: ClassVar[str] = "uniform"

    def draw(
        self, slots: Slots, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Draw slots; those that turn out to be free are drawn again."""
        # A double has 53 random bits, so the bias is below 1e-7 for any possible buffer.
        drawn = (generator.random(batches * size) * slots.limit).astype(np.int64)
        if not slots.dense:
            free = np.flatnonzero(~slots.occupied(drawn))
            while len(free):
                drawn[free] = generator.random(len(free)) * slots.limit
                free = free[~slots.occupied(drawn[free])]
        return drawn, None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class LargeBatch(Uniform):
    """Large batch experience replay (LaBER): draws m batches for one, the agent selects.

    Args:
        multiple: how many times the batch size is drawn (m), 1 or more.
    """

    name: ClassVar[str] = "large_batch"

    def __init__(self, multiple: int = 4) -> None:
        self._multiple = integer_from("multiple", multiple, 1)

    @property
    def multiple(self) -> int:
        """How many times the batch size is drawn."""
        return self._multiple

    def state_dict(self) -> dict[str, Any]:
        """The multiple."""
        return {"multiple": self._multiple}

    def __repr__(self) -> str:
        return f"LargeBatch(multiple={self._multiple})"


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

    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_final: float = 1.0,
        anneal_steps: int = 1_000_000,
        epsilon: float = 1e-6,
    ) -> None:
        self.alpha, self.beta, self.beta_final = (
            number_from(name, value, "a number from 0", lambda it: 0.0 <= it < math.inf)
            for name, value in (("alpha", alpha), ("beta", beta), ("beta_final", beta_final))
        )
        self.anneal_steps = integer_from("anneal_steps", anneal_steps, 1)
        self.epsilon = number_from("epsilon", epsilon, "a number above 0", is_positive)
        self._tree = SumTree()
        # The greatest priority seen, already raised to alpha.
        self._greatest = 1.0
        self._has_owner = False

    def begin(self) -> None:
        """Serve one buffer only: two would mix up their slots.

        Raises:
            ValueError: a buffer has this sampler already.
        """
        if self._has_owner:
            raise ValueError("this sampler already draws for a buffer; make a new Prioritized")
        self._has_owner = True

    @property
    def nbytes(self) -> int:
        """Bytes of the tree."""
        return self._tree.nbytes

    def nbytes_for(self, slots: int) -> int:
        """Bytes of the tree with a number of slots."""
        return self._tree.nbytes_for(slots)

    def resize(self, slots: int) -> None:
        """Grow or shrink the tree."""
        if slots != len(self._tree):
            self._tree.resize(slots)

    def stored(self, slots: NDArray[np.int64]) -> None:
        """Give new transitions the greatest priority."""
        self._tree.set(slots, np.full(len(slots), self._greatest))

    def removed(self, slots: NDArray[np.int64]) -> None:
        """Make the slots impossible to draw."""
        self._tree.set(slots, np.zeros(len(slots)))

    def priorities(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give the priorities of some slots, raised to alpha; 0 where nothing is stored."""
        return self._tree.values[slots]

    def beta_at(self, steps: int) -> float:
        """Give beta after a number of environment steps."""
        return self.beta + (self.beta_final - self.beta) * min(1.0, steps / self.anneal_steps)

    def draw(
        self, slots: Slots, generator: np.random.Generator, batches: int, size: int, steps: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Draw slots in proportion to priority, with their importance weights."""
        # N and the sum of priorities cancel in the division by the greatest weight.
        drawn, ratio = self._tree.draw_stratified(generator.random(batches * size), size)
        return drawn, np.power(ratio, -self.beta_at(steps)).astype(np.float32)

    def feedback(self, slots: NDArray[np.int64], errors: NDArray[np.float64]) -> None:
        """Set priorities from errors; slots emptied since they were drawn are passed over."""
        with np.errstate(over="ignore", under="ignore"):
            priorities = np.power(np.abs(errors) + self.epsilon, self.alpha)
        priorities = np.minimum(np.maximum(priorities, _LEAST_PRIORITY), _MOST_PRIORITY)
        self._greatest = max(self._greatest, float(priorities.max(initial=0.0)))
        self._tree.set(slots, priorities, only_positive=True)

    def fits(self, held: NDArray[np.int64], slots: int) -> bool:
        """Tell whether exactly the slots that hold something have a priority."""
        if len(self._tree) != slots:
            return False
        return np.array_equal(np.flatnonzero(self._tree.values), np.sort(held))

    def _settings(self) -> dict[str, Any]:
        names = "alpha", "beta", "beta_final", "anneal_steps", "epsilon"
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Settings and priorities."""
        now = {"greatest": self._greatest, "priorities": self._tree.values}
        return {**self._settings(), **now}

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
        made._tree.replace_all(priorities, len(priorities))
        return made

    def __repr__(self) -> str:
        settings = (f"{name}={value}" for name, value in self._settings().items())
        return f"Prioritized({', '.join(settings)})"


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
