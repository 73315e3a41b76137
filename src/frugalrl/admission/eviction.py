"""What random eviction is made of, for the buffer's storage and for an owner elsewhere."""

from __future__ import annotations

import numpy as np

from frugalrl.checks import check_choice

RUN_LENGTH = 50
"""Transitions that random eviction takes in the order of their age, so that the states which they
share leave with them."""


def make_victims(eviction: str, seed: int = 0) -> np.random.Generator | None:
    """Make the generator that draws what random eviction takes; None evicts the oldest.

    Raises:
        ValueError: there is no such eviction.
    """
    check_choice("eviction", eviction, ("oldest", "random"))
    if eviction == "oldest":
        return None
    # A stream of its own, so that batches are drawn alike whatever is evicted.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
