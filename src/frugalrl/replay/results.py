"""What a buffer answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, REPLACE, STORE

REFUSED = 3
"""Code of a row that holds NaN or infinity; `DROP`, `STORE` and `REPLACE` are the others."""


class Batch(NamedTuple):
    """Transitions drawn from a buffer: fresh arrays, (B, ...) or (K, B, ...)."""

    observations: NDArray[np.float32]
    actions: NDArray[Any]
    """float32, or of the space's type for integer actions."""
    rewards: NDArray[np.float32]
    next_observations: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    """The episode ended by itself: nothing follows, so the bootstrap is masked."""
    truncated: NDArray[np.bool_]
    """The episode was cut off: something would have followed, so the bootstrap stays."""
    slots: NDArray[np.int64]
    """Where each transition is stored; given back to `ReplayBuffer.feedback`."""
    weights: NDArray[np.float32]
    """Importance weights; ones unless the sampler is prioritized."""
    extra: dict[str, NDArray[Any]]
    """The buffer's `extra_fields` by name; empty where there are none."""


class Outcome(NamedTuple):
    """What became of the rows of one `add`."""

    codes: NDArray[np.int8]
    """(n,) `DROP`, `STORE`, `REPLACE` or `REFUSED`."""
    slots: NDArray[np.int64]
    """(n,) where each row was written, -1 if nowhere."""

    @property
    def stored(self) -> int:
        """Rows that were newly stored."""
        return int(np.count_nonzero(self.codes == STORE))

    @property
    def replaced(self) -> int:
        """Rows that took the place of an equivalent one."""
        return int(np.count_nonzero(self.codes == REPLACE))

    @property
    def dropped(self) -> int:
        """Rows that were not admitted."""
        return int(np.count_nonzero(self.codes == DROP))

    @property
    def refused(self) -> int:
        """Rows that were not finite."""
        return int(np.count_nonzero(self.codes == REFUSED))


@dataclass(frozen=True)
class BufferStats:
    """Counters since the buffer was made."""

    offered: int = 0
    """Environment steps given to `add`: stored + replaced + dropped + rejected_nonfinite."""
    stored: int = 0
    """Newly stored."""
    replaced: int = 0
    """Took the place of an equivalent transition."""
    dropped: int = 0
    """Not admitted, or removed when the warm-up was filtered."""
    evicted: int = 0
    """Stored once and gone since, to make room."""
    rejected_nonfinite: int = 0
    """Refused because a value was NaN or infinite (also: too large for the storage's type)."""

    @property
    def acceptance_rate(self) -> float:
        """Share of the offered that was newly stored; 0 before the first."""
        return self.stored / self.offered if self.offered else 0.0
