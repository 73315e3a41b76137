"""The replay buffer as plainly as it can be written: a dictionary, one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, STORE

REFUSED = 3
RUN_LENGTH = 50


class State:
    """One stored state; two transitions share it by holding the same object."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.holders = 0

    def is_bits_of(self, values: np.ndarray) -> bool:
        return self.values.tobytes() == values.tobytes()


@dataclass
class Transition:
    state: State
    action: np.ndarray
    reward: np.float32
    next_state: State
    terminated: bool
    truncated: bool


class SlowBuffer:
    """Keeps what the filter admits, evicting one when `capacity` is reached."""

    def __init__(
        self, capacity: int, admission: Any, dtype: str, space: Any, victims: Any = None
    ) -> None:
        self.capacity = capacity
        self.admission = admission
        self.dtype = dtype
        self.victims = victims
        # Random eviction: the transition that goes next, and how many of its run are left.
        self.following: Transition | None = None
        self.left = 0
        self.slots: dict[int, Transition] = {}  # in order of age, oldest first
        self.used = 0  # one more than the highest slot ever used
        self.free: list[int] = []  # freed slots below that; the last one is used first
        self.last: dict[int, State] = {}
        self.evicted = 0
        self.codes: list[int] = []
        admission.begin(space)

    def cast(self, values: Any) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(values, dtype=np.float64).reshape(-1).astype(self.dtype)

    def add(self, environment: int, row: tuple[Any, ...]) -> tuple[int, int]:
        """Offer one transition; gives its code and slot."""
        observation, action, reward, next_observation, terminated, truncated = row
        state, next_state = self.cast(observation), self.cast(next_observation)
        if np.asarray(action).dtype.kind == "f":
            action = self.cast(action).astype(np.float32)
        reward = np.float32(reward)
        for part in (state, next_state, np.asarray(action, dtype=np.float64), reward):
            if not np.isfinite(part).all():
                return REFUSED, -1
        offered = state[np.newaxis].astype(np.float32), np.array([reward])
        free = [self.next_free()] if len(self.slots) < self.capacity else []
        decisions = self.admission.offer(*offered, np.array(free, dtype=np.int64))
        code, slot = int(decisions.codes[0]), int(decisions.slots[0])
        if code == STORE and slot == -1:
            slot = self.evict()
            self.admission.place(offered[0][0], float(reward), slot)
        if code == STORE:
            self.take(slot)
        if code in (STORE, REPLACE):
            self.remove(slot)
            # A new key comes last: the youngest.
            self.slots[slot] = self.make(
                environment, state, action, reward, next_state, terminated, truncated
            )
        if decisions.released is not None:
            released = decisions.released.tolist()
            for other in reversed(released):
                self.remove(other)
                self.free.append(other)
            self.begin_anew_if_empty()
            if slot in released:
                return DROP, -1
        return code, slot

    def next_free(self) -> int:
        return self.free[-1] if self.free else self.used

    def take(self, slot: int) -> None:
        assert slot == self.next_free()
        if self.free:
            self.free.pop()
        else:
            self.used += 1

    def begin_anew_if_empty(self) -> None:
        """Where nothing is held, all slots count as never used."""
        if not self.slots:
            self.used, self.free = 0, []

    def make(self, environment: int, state: Any, action: Any, reward: Any, next_state: Any,
             terminated: Any, truncated: Any) -> Transition:  # fmt: skip
        last = self.last.get(environment)
        shared = last is not None and last.holders > 0 and last.is_bits_of(state)
        first = last if shared else State(state)
        second = State(next_state)
        assert first is not None
        first.holders += 1
        second.holders += 1
        self.last[environment] = second
        return Transition(first, action, reward, second, bool(terminated), bool(truncated))

    def evict(self) -> int:
        slot = next(iter(self.slots))
        if self.victims is not None:
            slot = self.next_of_run()
        self.remove(slot)
        self.free.append(slot)
        self.admission.forget(slot)
        self.evicted += 1
        return slot

    def next_of_run(self) -> int:
        """A random transition, then the next younger ones; anew where the next one is gone."""
        slot = next((s for s, held in self.slots.items() if held is self.following), None)
        if slot is None:
            slot = int(self.victims.random() * self.used)
            while slot not in self.slots:
                slot = int(self.victims.random() * self.used)
            self.left = RUN_LENGTH
        self.left -= 1
        by_age = list(self.slots)
        younger = by_age[by_age.index(slot) + 1 :][: min(self.left, 1)]
        self.following = self.slots[younger[0]] if younger else None
        return slot

    def clear(self) -> None:
        for slot in list(self.slots):
            self.remove(slot)
            self.admission.forget(slot)
            self.evicted += 1
        self.begin_anew_if_empty()

    def remove(self, slot: int) -> None:
        gone = self.slots.pop(slot, None)
        if gone is not None:
            gone.state.holders -= 1
            gone.next_state.holders -= 1

    @property
    def live_states(self) -> int:
        """How many states are kept."""
        held = [s for t in self.slots.values() for s in (t.state, t.next_state)]
        return len({id(s) for s in held})
