"""The edge filter: what actors know of the learner's filter, small enough to be sent often."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import REPLACE, STORE

MOST_REWARDS = 32
"""Of a cell. The density around a reward is then known to 1/32, and is compared with about 1/5."""


class Snapshot(NamedTuple):
    """A fitted filter: its partition, and of each cell's rewards a few that stand for all."""

    version: int
    """Updates of the learner when it was taken."""
    state: dict[str, Any]
    """The filter's state without phi."""
    keys: NDArray[np.uint64]
    """(c,) the cells."""
    counts: NDArray[np.uint8]
    """(c,) rewards of each cell that are here."""
    rewards: NDArray[np.float32]
    """(n,) those rewards, cell after cell."""
    refresh: float
    """Share of the transitions to send that would only replace an equivalent one."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.keys.nbytes + self.counts.nbytes + self.rewards.nbytes


def take_snapshot(learned: FrugalFilter, version: int, refresh: float) -> Snapshot:
    """Take what actors need from a filter whose warm-up is over."""
    state = learned.state_dict()
    phi = state.pop("phi")
    keys, counts, rewards = thin(phi["keys"], phi["rewards"])
    return Snapshot(version, state, keys, counts, rewards.astype(np.float32), refresh)


def thin(
    keys: NDArray[np.uint64], rewards: NDArray[np.float64], most: int = MOST_REWARDS
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.float64]]:
    """Choose at most so many of each cell's rewards, evenly spread by rank.

    Gives (c,) cells, (c,) how many rewards of each are chosen, and these, cell after cell.
    """
    order = np.lexsort((rewards, keys))
    cells, first, sizes = np.unique(keys[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, sizes)
    size = np.repeat(sizes, sizes)
    chosen = (rank + 1) * most // size > rank * most // size
    counts = np.minimum(sizes, most).astype(np.uint8)
    return cells, counts, rewards[order[chosen]]


class EdgeFilter:
    """An actor's guess at what the learner will do with its transitions.

    It is the learner's filter itself, filled from a snapshot, and follows the actor's own
    transitions until the next one comes. The seed is that of the choice among replacements.
    """

    def __init__(self, snapshot: Snapshot, seed: int) -> None:
        self.version = snapshot.version
        self._refresh = snapshot.refresh
        self._generator = np.random.default_rng(seed)
        count = len(snapshot.rewards)
        keys = np.repeat(snapshot.keys, snapshot.counts)
        phi = {
            "slots": np.arange(count),
            "rewards": snapshot.rewards.astype(np.float64),
            "keys": keys,
            "room": [count + 1, len(snapshot.keys) + 1, 8],
        }
        self._filter = FrugalFilter.from_state_dict({**snapshot.state, "phi": phi})
        self._next_slot = count

    def wants(
        self, observations: NDArray[np.float32], rewards: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Tell which of (n, d) observations with (n,) rewards to send, in order.

        Those with NaN or infinity are sent: to refuse and count them is the learner's.
        """
        wanted = np.ones(len(rewards), dtype=np.bool_)
        rows = np.flatnonzero(np.isfinite(rewards) & np.isfinite(observations).all(axis=1))
        done = 0
        while done < len(rows):
            now = rows[done:]
            free = np.arange(self._next_slot, self._next_slot + len(now))
            codes = self._filter.offer(observations[now], rewards[now], free).codes
            self._next_slot += int(np.count_nonzero(codes == STORE))
            is_chosen = self._generator.random(len(codes)) < self._refresh
            wanted[now[: len(codes)]] = (codes == STORE) | ((codes == REPLACE) & is_chosen)
            done += len(codes)
        return wanted
