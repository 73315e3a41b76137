"""The check of a filter: whether a buffer can rely on what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from frugalrl.admission.protocol import (
    DROP,
    REPLACE,
    STORE,
    AdmissionFilter,
    Decisions,
    Floats,
    Slots,
)
from frugalrl.replay.intake import Intake, rows_kept_elsewhere
from frugalrl.replay.spaces import SLOTS_ALONE
from frugalrl.replay.storage import Storage
from frugalrl.state_io import take_arrays

_STEPS = 600
_DIMENSIONS = 3
_CAPACITY = 150
"""Of the stream that a filter is checked with, and of the buffer that it fills."""


def check_filter(make_filter: Callable[[], AdmissionFilter]) -> None:
    """Put a filter through the contract of `frugalrl.AdmissionFilter`.

    A made-up stream is offered one row at a time and in batches, into a small buffer that runs full
    and evicts; the filter is copied through its state in the middle. Fails at the first departure.

    Args:
        make_filter: makes a fresh filter, the same each time (a class or a function). A warm-up
            should be shorter than 600 steps, or little of the filter is checked.

    Raises:
        AssertionError: says what the filter does that a buffer cannot rely on.
    """
    made = make_filter()
    lacking = f"{type(made).__name__} lacks a part of the protocol frugalrl.AdmissionFilter"
    _require(isinstance(made, AdmissionFilter), lacking)
    _require(isinstance(made.name, str) and made.name != "", "name must be a text")
    outcome = _run(make_filter())
    _require(outcome == _run(make_filter()), "same stream, other decisions")
    for batch in (2, 7, _STEPS):
        complaint = f"batches of {batch} are decided otherwise than the same rows one by one"
        _require(outcome == _run(make_filter(), batch=batch), complaint)
    _require(len(outcome[1]) > 0, "nothing was ever stored: no batch can be drawn")
    for step in (1, _STEPS // 2, _STEPS - 10):
        complaint = f"a copy made by state_dict after {step} steps decides otherwise"
        _require(outcome == _run(make_filter(), copied_at=step), complaint)


def _run(
    admission: AdmissionFilter, batch: int = 1, copied_at: int | None = None
) -> tuple[list[tuple[int, int]], list[int]]:
    """Give all decisions about the stream, and the slots in use in the end, oldest first."""
    from gymnasium.spaces import Box

    admission.begin(Box(-np.inf, np.inf, (_DIMENSIONS,), np.float64))
    storage = Storage(SLOTS_ALONE, _CAPACITY, 1, victims=None)
    watched: Any = _Watched(admission, storage)
    intake = Intake(storage, watched)
    # States that come back, rewards that repeat.
    generator = np.random.Generator(np.random.PCG64(0))
    observations = generator.normal(size=(_STEPS, _DIMENSIONS)).round(1)
    rewards = generator.normal(size=_STEPS).round(1)
    # A buffer offers the very rows that it stores next: a filter must not write into them.
    observations.flags.writeable = rewards.flags.writeable = False
    for row in range(0, _STEPS, batch):
        if copied_at == row:
            state = watched.admission.state_dict()
            try:
                take_arrays(state, "", {})
            except TypeError as error:
                raise AssertionError(f"no file can hold state_dict(): {error}") from error
            watched.admission = type(watched.admission).from_state_dict(state)
        rows = slice(row, row + batch)
        try:
            intake.add(rows_kept_elsewhere(observations[rows], rewards[rows]))
        except RuntimeError as error:
            raise AssertionError(str(error)) from error
        _require(watched.admission.nbytes >= 0, "nbytes must not be negative")
    return watched.log, storage.oldest_first().tolist()


class _Watched:
    """A filter between the storage and the one under test: trusts nothing, and notes all of it."""

    def __init__(self, admission: AdmissionFilter, storage: Storage) -> None:
        self.admission, self._storage = admission, storage
        self.log: list[tuple[int, int]] = []

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Ask the filter, and check what it says as far as that can be seen from here."""
        with _no_writing("offer"):
            made = self.admission.offer(observations, rewards, free)
        codes, slots = np.asarray(made.codes), np.asarray(made.slots)
        decided, offered = len(codes), len(rewards)
        _require(slots.shape == codes.shape == (decided,), "codes and slots must have one shape")
        stores = slots[codes == STORE]
        without = stores < 0
        placed = stores[~without].tolist()
        given_up = [] if made.released is None else np.asarray(made.released).tolist()
        is_known = np.isin(codes, (DROP, STORE, REPLACE)).all()
        is_last = not without[:-1].any() and (not without.any() or codes[-1] == STORE)
        in_order = placed == free[: len(placed)].tolist()
        takes_all = not without.any() or len(placed) == len(free)
        were_held = {*self._storage.oldest_first().tolist(), *placed}.issuperset(given_up)
        for holds, complaint in (
            (1 <= decided <= offered, f"{decided} of {offered} offered rows were decided"),
            (is_known, f"codes must be DROP, STORE or REPLACE, got {np.unique(codes)}"),
            (is_last, "a STORE without a slot must be the last decision"),
            (in_order, f"STORE must take the free slots in order, got {placed}"),
            (takes_all, "a STORE went without a slot although one was free"),
            (len(set(given_up)) == len(given_up), "released names a slot twice"),
            (were_held, "released names a slot that holds nothing"),
        ):
            _require(holds, complaint)
        self.log += zip(codes.tolist(), slots.tolist(), strict=True)
        return made

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Let the filter complete a STORE."""
        with _no_writing("place"):
            self.admission.place(observation, reward, slot)

    def forget(self, slot: int) -> None:
        """Let the filter forget."""
        self.admission.forget(slot)


@contextmanager
def _no_writing(method: str) -> Iterator[None]:
    """Report a write into the read-only arrays that a method was given."""
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise AssertionError(f"{method} writes into the arrays it is given ({error})") from error


def _require(holds: Any, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
