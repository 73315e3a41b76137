"""A public check that a filter keeps the contract of `AdmissionFilter`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.admission.owner import Owner
from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter, Decisions

if TYPE_CHECKING:
    from frugalrl.admission.protocol import Floats, Slots

_STEPS = 600
_DIMENSIONS = 3
_CAPACITY = 150


class _CheckingOwner(Owner):
    """An owner that trusts nothing that the filter says, and notes all of it."""

    def __init__(self, admission: AdmissionFilter) -> None:
        super().__init__(admission, _CAPACITY)
        self.log: list[tuple[int, int]] = []

    def outcome(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """All decisions, and what is stored in the end, oldest first."""
        return self.log, list(self.row_in_slot.items())

    def decisions(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Ask the filter, and check what it says as far as that can be seen from here."""
        with _no_writing("offer"):
            made = self.admission.offer(observations, rewards, free)
        codes, slots = np.asarray(made.codes), np.asarray(made.slots)
        decided, offered = len(codes), len(rewards)
        _require(
            slots.shape == codes.shape == (decided,), "codes and slots must have one shape (k,)"
        )
        stores = slots[codes == STORE]
        without = stores < 0
        placed = stores[~without].tolist()
        given_up = [] if made.released is None else np.asarray(made.released).tolist()
        held = {*self.row_in_slot, *placed}
        is_known = np.isin(codes, (DROP, STORE, REPLACE)).all()
        in_order = free[: len(placed)].tolist()
        is_last = not without[:-1].any() and (not without.any() or codes[-1] == STORE)
        for holds, complaint in (
            (1 <= decided <= offered, f"{decided} of {offered} offered rows were decided"),
            (is_known, f"codes must be DROP, STORE or REPLACE, got {np.unique(codes)}"),
            (is_last, "a STORE without a slot must be the last decision"),
            (placed == in_order, f"STORE must take the free slots in order, got {placed}"),
            (
                not without.any() or len(placed) == len(free),
                "a STORE went without a slot although one was free",
            ),
            (len(set(given_up)) == len(given_up), "released names a slot twice"),
            (set(given_up) <= held, "released names a slot that holds nothing"),
        ):
            _require(bool(holds), complaint)
        self.log += zip(codes.tolist(), slots.tolist(), strict=True)
        return made


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
    _require(
        isinstance(made, AdmissionFilter),
        f"{type(made).__name__} lacks a part of the protocol frugalrl.AdmissionFilter",
    )
    _require(isinstance(made.name, str) and made.name != "", "name must be a text")
    one_by_one = _run(make_filter(), batch=1)
    _require(
        one_by_one.outcome() == _run(make_filter(), batch=1).outcome(),
        "same stream, other decisions",
    )
    for batch in (2, 7, _STEPS):
        _require(
            one_by_one.outcome() == _run(make_filter(), batch=batch).outcome(),
            f"batches of {batch} are decided otherwise than the same rows one by one",
        )
    _require(len(one_by_one.row_in_slot) > 0, "nothing was ever stored: no batch can be drawn")
    for step in (1, _STEPS // 2, _STEPS - 10):
        _require(
            one_by_one.outcome() == _run(make_filter(), batch=1, copied_at=step).outcome(),
            f"a copy made by state_dict after {step} steps decides otherwise",
        )


def _run(admission: AdmissionFilter, batch: int, copied_at: int | None = None) -> _CheckingOwner:
    from gymnasium.spaces import Box

    admission.begin(Box(-np.inf, np.inf, (_DIMENSIONS,), np.float64))
    owner = _CheckingOwner(admission)
    # States that come back, rewards that repeat.
    generator = np.random.Generator(np.random.PCG64(0))
    observations = generator.normal(size=(_STEPS, _DIMENSIONS)).round(1)
    rewards = generator.normal(size=_STEPS).round(1)
    # A buffer offers the very rows that it stores next: a filter must not write into them.
    observations.flags.writeable = rewards.flags.writeable = False
    for row in range(0, _STEPS, batch):
        if copied_at == row:
            state = owner.admission.state_dict()
            _check_state(state, "state_dict()")
            owner.admission = type(owner.admission).from_state_dict(state)
        rows = slice(row, row + batch)
        try:
            with _no_writing("place"):
                owner.add(observations[rows], rewards[rows])
        except RuntimeError as error:
            raise AssertionError(str(error)) from error
        _require(owner.admission.nbytes >= 0, "nbytes must not be negative")
    return owner


def _check_state(value: Any, where: str) -> None:
    """Require arrays and JSON values all the way down: nothing that a file could not hold."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _require(isinstance(key, str), f"{where} has the key {key!r}, which is no text")
            _check_state(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            _check_state(inner, f"{where}[{i}]")
    elif isinstance(value, np.ndarray):
        _require(value.dtype.kind in "biuf", f"{where} is an array of {value.dtype}")
    else:
        _require(
            value is None or isinstance(value, str | int | float),
            f"{where} is a {type(value).__name__}; arrays and JSON values are allowed",
        )


@contextmanager
def _no_writing(method: str) -> Iterator[None]:
    """Report a write into the read-only arrays that a method was given."""
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise AssertionError(f"{method} writes into the arrays it is given ({error})") from error


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
