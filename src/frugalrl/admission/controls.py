"""Filters that look at nothing: the controls of every experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from frugalrl.admission.protocol import STORE, Decisions, Floats, Slots
from frugalrl.checks import integer_from, number_from

if TYPE_CHECKING:
    from gymnasium.spaces import Box


class _Memoryless:
    """A filter whose decisions depend on no stored transition."""

    nbytes = 0

    def begin(self, observation_space: Box | None) -> None:
        """Need nothing of the space."""

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Need nothing of the slot."""

    def forget(self, slot: int) -> None:
        """Need nothing of the slot."""


class AdmitAll(_Memoryless):
    """Admits everything: the ordinary replay buffer."""

    name: ClassVar[str] = "all"

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Store every row."""
        slots = free[: len(rewards)]
        if len(free) < len(rewards):
            slots = np.empty(len(free) + 1, dtype=np.int64)
            slots[:-1], slots[-1] = free, -1
        codes = np.empty(len(slots), dtype=np.int8)
        codes.fill(STORE)
        return Decisions(codes, slots)

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> AdmitAll:
        """Make a new one."""
        return cls()

    def __repr__(self) -> str:
        return "AdmitAll()"


class RandomAdmit(_Memoryless):
    """Admits each transition with a fixed probability, whatever it holds.

    The control without which no claim for a cleverer filter stands: it keeps as few, blindly.

    Args:
        rate: probability of admission, above 0 and at most 1.
        seed: of the filter's own generator.
    """

    name: ClassVar[str] = "random"

    def __init__(self, rate: float = 0.4, seed: int = 0) -> None:
        self.rate = number_from("rate", rate, "0 < rate <= 1", lambda it: 0.0 < it <= 1.0)
        self.seed = integer_from("seed", seed, 0)
        self._bits = np.random.PCG64(self.seed)
        self._generator = np.random.Generator(self._bits)
        self._anything_offered = False

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Store each row with probability `rate`; the very first always, so there is a batch."""
        wanted = self._generator.random(len(rewards)) < self.rate
        if not self._anything_offered:
            wanted[:1] = True
        rows = wanted.nonzero()[0]
        if len(rows) > len(free):
            # What follows the first without a slot is offered, and drawn for, again.
            decided = int(rows[len(free)]) + 1
            self._bits.advance(decided - len(wanted))
            wanted = wanted[:decided]
        slots = np.empty(len(wanted), dtype=np.int64)
        slots.fill(-1)
        slots[rows[: len(free)]] = free[: len(rows)]
        self._anything_offered = True  # last, for an interrupt
        return Decisions(wanted.astype(np.int8), slots)  # DROP and STORE are 0 and 1

    def state_dict(self) -> dict[str, Any]:
        """Rate, seed and the generator's state."""
        return {
            "rate": self.rate,
            "seed": self.seed,
            "anything_offered": self._anything_offered,
            "generator": self._bits.state,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> RandomAdmit:
        """Make one that goes on drawing where the other stopped."""
        made = cls(rate=state["rate"], seed=state["seed"])
        made._anything_offered = bool(state["anything_offered"])
        made._bits.state = state["generator"]
        return made

    def __repr__(self) -> str:
        return f"RandomAdmit(rate={self.rate}, seed={self.seed})"
