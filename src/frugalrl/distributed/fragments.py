"""What actors send: pieces of experience, numbered so that none is ever admitted twice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int32]


class Fragment(NamedTuple):
    """Some steps of one actor's environments; (actor, sequence) names it."""

    actor: int
    sequence: int
    version: int
    """Updates behind the weights that acted."""
    steps: int
    """Environment steps taken, all environments of the actor together."""
    seconds: float
    """Time they took."""
    states: Floats
    """(s, d) each state once: what one step led to is what the next began with."""
    observations: Indices
    """(n,) row in `states` of each transition's observation; n is less than `steps` where an edge
    filter has kept something back."""
    next_observations: Indices
    """(n,) the same of where it led."""
    actions: Floats
    """(n, a) within [-1, 1]."""
    rewards: NDArray[np.float64]
    terminated: Flags
    truncated: Flags
    episodes: NDArray[np.float64]
    """(e, 2) reward and length of the episodes that ended."""
    successes: NDArray[np.float64]
    """Of those that told, whether they succeeded."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays: what goes over the wire, but for a few hundred of wrapping."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))

    def transitions(self) -> tuple[Floats, Floats, NDArray[np.float64], Floats, Flags, Flags]:
        """Give (n, ...) arrays in the order of `ReplayBuffer.add`'s arguments."""
        return (
            self.states[self.observations],
            self.actions,
            self.rewards,
            self.states[self.next_observations],
            self.terminated,
            self.truncated,
        )


class Steps(NamedTuple):
    """Steps as they were taken, arrays (t, c, ...) for t steps of c environments."""

    observations: Floats
    actions: Floats
    rewards: NDArray[np.float64]
    next_observations: Floats
    terminated: Flags
    truncated: Flags


def pack(taken: Steps, wanted: Flags, **about: Any) -> Fragment:
    """Make a fragment of the wanted (t, c) transitions, environment after environment.

    Neighbours stand beside each other, so a buffer stores the state between them once.
    """
    moments, count = taken.rewards.shape
    ended = taken.terminated | taken.truncated
    is_shared = np.zeros((moments, count), dtype=np.bool_)
    goes_on = (taken.next_observations[:-1] == taken.observations[1:]).all(axis=-1)
    is_shared[:-1] = ~ended[:-1] & goes_on
    first = np.arange(moments * count).reshape(moments, count)
    second = first + count
    second[~is_shared] = moments * count + np.arange(np.count_nonzero(~is_shared))
    chosen = wanted.T  # environment after environment
    rows = np.concatenate([first.T[chosen], second.T[chosen]])
    used, places = np.unique(rows, return_inverse=True)
    size = taken.observations.shape[-1]
    states = np.concatenate(
        [taken.observations.reshape(-1, size), taken.next_observations[~is_shared]]
    )[used]
    half = len(places) // 2
    numbers: Indices = places.astype(np.int32)

    def pick(part: Any) -> Any:
        return part.swapaxes(0, 1)[chosen]

    return Fragment(
        states=states,
        observations=numbers[:half],
        next_observations=numbers[half:],
        actions=pick(taken.actions),
        rewards=pick(taken.rewards),
        terminated=pick(taken.terminated),
        truncated=pick(taken.truncated),
        **about,
    )


class Ledger:
    """Which fragments were asked for, and which of those have been admitted.

    A number that was asked for stays open until its fragment is admitted, once: however often it
    is asked for again, and whatever arrives late.
    """

    def __init__(self, actors: int) -> None:
        self._next = [0] * actors
        self._open: list[set[int]] = [set() for _ in range(actors)]

    def number(self, actor: int, under_way: Collection[int]) -> int:
        """Give the number to ask an actor for next: one that never came, or else a new one.

        It may still answer with those under way.
        """
        lost = self._open[actor].difference(under_way)
        if lost:
            return min(lost)
        sequence = self._next[actor]
        self._next[actor] += 1
        self._open[actor].add(sequence)
        return sequence

    def admit(self, actor: int, sequence: int) -> bool:
        """Tell whether to admit a fragment: it was asked for and has not been admitted yet."""
        if sequence not in self._open[actor]:
            return False
        self._open[actor].remove(sequence)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Give JSON values from which `load_state_dict` goes on."""
        return {"next": list(self._next), "open": [sorted(numbers) for numbers in self._open]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was."""
        self._next = [int(number) for number in state["next"]]
        self._open = [{int(number) for number in numbers} for numbers in state["open"]]
