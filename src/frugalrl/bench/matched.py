"""The control that has another run's size at every step, and chooses blindly."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, STORE, Decisions, Floats, Slots

if TYPE_CHECKING:
    from gymnasium.spaces import Box


class MatchedRandom:
    """Stores as many transitions as another run did between any two of its recorded steps.

    Which of the offered ones is left to chance, each being as likely as any other. What is not
    stored is dropped, or overwrites a random stored transition. So a frugal method and this
    control differ in nothing but what they keep.

    Args:
        steps: Steps at which the other run's buffer was recorded, rising.
        sizes: Transitions that it held then.
        replace: Whether the rest overwrites instead of being dropped.
        seed: Of the filter's own generator.
    """

    name: ClassVar[str] = "matched-random"
    nbytes = 0  # to overwrite at random takes no memory, to know the other run's sizes does

    def __init__(
        self, steps: Sequence[int], sizes: Sequence[int], *, replace: bool, seed: int = 0
    ) -> None:
        if len(steps) != len(sizes) or not len(steps):
            raise ValueError(f"got {len(steps)} steps for {len(sizes)} sizes")
        self.steps = [int(step) for step in steps]
        self.sizes = [int(size) for size in sizes]
        self.replace = bool(replace)
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._offered = 0
        self._held: list[int] = []
        self._place: dict[int, int] = {}

    def begin(self, observation_space: Box | None) -> None:
        """Need nothing of the space."""

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Decide about the rows by chance alone."""
        codes: list[int] = []
        slots: list[int] = []
        taken = 0
        for _ in range(len(rewards)):
            store = self._wants_one_more()
            self._offered += 1
            if store:
                codes.append(STORE)
                if taken == len(free):
                    slots.append(-1)
                    break
                slots.append(int(free[taken]))
                self._add(int(free[taken]))
                taken += 1
            elif self.replace and self._held:
                codes.append(REPLACE)
                slots.append(self._held[int(self._generator.random() * len(self._held))])
            else:
                codes.append(DROP)
                slots.append(-1)
        return Decisions(np.array(codes, dtype=np.int8), np.array(slots, dtype=np.int64))

    def _wants_one_more(self) -> bool:
        """Choose so many of what is left of an interval that its size is met at its end."""
        interval = bisect.bisect(self.steps, self._offered)
        chance = self._generator.random()
        if interval == len(self.steps):
            return False
        left = self.steps[interval] - self._offered
        return bool(chance * left < self.sizes[interval] - len(self._held))

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Remember a slot that the owner made free."""
        self._add(slot)

    def forget(self, slot: int) -> None:
        """Forget an evicted slot."""
        where = self._place.pop(slot, None)
        if where is not None:
            last = self._held.pop()
            if last != slot:
                self._held[where] = last
                self._place[last] = where

    def _add(self, slot: int) -> None:
        if slot not in self._place:
            self._place[slot] = len(self._held)
            self._held.append(slot)

    def state_dict(self) -> dict[str, Any]:
        """Sizes, held slots and the generator's state."""
        return {
            "steps": np.array(self.steps, dtype=np.int64),
            "sizes": np.array(self.sizes, dtype=np.int64),
            "held": np.array(self._held, dtype=np.int64),
            "replace": self.replace,
            "offered": self._offered,
            "generator": self._generator.bit_generator.state,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> MatchedRandom:
        """Make one that goes on choosing where the other stopped."""
        made = cls(state["steps"], state["sizes"], replace=state["replace"])
        made._offered = int(state["offered"])
        made._generator.bit_generator.state = state["generator"]
        for slot in np.asarray(state["held"]).tolist():
            made._add(slot)
        return made
