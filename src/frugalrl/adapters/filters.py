"""What every adapter begins with: its library, its filter, and the columns this one reads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import numpy as np
from gymnasium.spaces import Box

from frugalrl.admission.controls import AdmitAll
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import AdmissionFilter, Decisions, Floats, Slots
from frugalrl.checks import check_choice, refuse_class


@contextmanager
def needs(library: str, extra: str) -> Iterator[None]:
    """Import the library that an adapter stands on, or say which command installs it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f'frugalrl.adapters.{extra} needs {library} ({error}): pip install "frugalrl[{extra}]"',
            name=error.name,
        ) from error


def refused(reason: str) -> Any:
    """Make a method that cannot work with admission, and says why."""

    def method(self: Any, *positional: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(reason)

    return method


def make_filter(
    admission: AdmissionFilter | None, arguments: dict[str, Any], adapter: type
) -> AdmissionFilter:
    """Return a filter of the caller's own, whose class is named where an argument is unknown.

    A filter given as an object is copied: trainers keep the arguments they were built with (to
    save them with a model, or to build a second buffer), and a used filter must not come back.
    None keeps everything, or is a FrugalFilter where its arguments are given.

    Raises:
        TypeError: both were given, an argument is unknown, or `admission` is no filter.
    """
    refuse_class("admission", admission)
    if admission is None:
        own = _options_of(FrugalFilter)
        for name in arguments:
            if name in ("capacity", "capacity_bytes", "sampler"):
                raise TypeError(
                    f"{name}= is an argument of frugalrl.ReplayBuffer alone: this buffer has the "
                    "trainer's size and draws as the trainer does"
                )
            if name not in own:
                known = dict.fromkeys([*_options_of(*adapter.__mro__), *own])
                check_choice("argument", name, known, TypeError)
        return FrugalFilter(**arguments) if arguments else AdmitAll()
    if arguments:
        raise TypeError(
            f"admission={admission!r} was given together with {', '.join(sorted(arguments))}, "
            "which are FrugalFilter's arguments; give one or the other"
        )
    if not isinstance(admission, AdmissionFilter):
        raise TypeError(
            f"admission={admission!r} is no AdmissionFilter: use frugalrl.FrugalFilter(...), "
            "AdmitAll(), RandomAdmit(...) or your own (frugalrl.check_filter tests it)"
        )
    return copy_of(admission)


def _options_of(*kinds: type) -> list[str]:
    """Name what those of these classes that are this library's are made with."""
    return [
        option.name
        for kind in kinds
        if kind.__module__.startswith("frugalrl.") and "__init__" in vars(kind)
        for option in inspect.signature(kind).parameters.values()
        if option.kind is not option.VAR_KEYWORD
    ]


def copy_of(admission: AdmissionFilter) -> AdmissionFilter:
    """Make a filter that is in the same state."""
    return type(admission).from_state_dict(admission.state_dict())


class ReadsColumns:
    """Lets a filter read some columns of the observations: the vector, say, and not the image."""

    name: ClassVar[str] = "columns"

    def __init__(self, admission: AdmissionFilter, columns: Slots) -> None:
        self.admission = admission
        self.columns = np.asarray(columns, dtype=np.int64)
        # What was offered last, and its columns: an offer that is made again, after an interrupt,
        # is known by its very arrays.
        self._last: tuple[Any, Any, Any] = None, None, None

    def begin(self, observation_space: Box | None) -> None:
        """Show the filter the limits of its columns."""
        if observation_space is not None:
            low, high = observation_space.low[self.columns], observation_space.high[self.columns]
            observation_space = Box(low, high, dtype=observation_space.dtype.type)
        self.admission.begin(observation_space)

    def offer(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Let the filter decide about its columns of the rows."""
        whole, slots, part = self._last
        if whole is not observations or slots is not free:
            part = observations[:, self.columns]
            self._last = observations, free, part
        return self.admission.offer(part, rewards, free)

    def place(self, observation: Floats, reward: float, slot: int) -> None:
        """Complete a STORE that had no slot."""
        self.admission.place(observation[self.columns], reward, slot)

    def forget(self, slot: int) -> None:
        """Remove an evicted slot."""
        self.admission.forget(slot)

    @property
    def nbytes(self) -> int:
        """Bytes of the filter's state."""
        return self.admission.nbytes

    def state_dict(self) -> dict[str, Any]:
        """The columns, and the filter's name and state."""
        return {
            "columns": self.columns,
            "inner": self.admission.name,
            "filter": self.admission.state_dict(),
        }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], inner: type[AdmissionFilter] = FrugalFilter
    ) -> ReadsColumns:
        """Make the filter that `state_dict` described, with a filter of the class that it had."""
        if state["inner"] != inner.name:
            raise ValueError(f"the filter was {state['inner']!r}, not {inner.name!r}")
        return cls(inner.from_state_dict(state["filter"]), state["columns"])
