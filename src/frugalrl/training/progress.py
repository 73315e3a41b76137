"""How far a run is: a live line in a terminal, one line per minute where there is none."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, NamedTuple

_EVERY = 0.25  # seconds between two pictures
_LINE_EVERY = 60.0  # seconds between two lines of a log
_WIDE = 140  # columns for title, bar and all numbers


class Status(NamedTuple):
    """What the line shows."""

    env_steps: int
    steps: int
    eval_reward: float | None
    stored: int
    offered: int
    buffer_bytes: int


class Progress:
    """Shows how far a run is, on one line that renews itself or on a new line every minute.

    Args:
        visible: whether to show a live line; None: when the error stream is a terminal, else one
            line per minute.
        title: what stands before the numbers.
    """

    def __init__(self, visible: bool | None = None, title: str = "training") -> None:
        live = sys.stderr.isatty() if visible is None else visible
        self.visible = live or visible is None
        self._live = live
        self._title = title
        self._next = 0.0 if live else time.monotonic() + _LINE_EVERY
        # A few recent moments, so that the rate is the present one.
        self._marks: list[tuple[float, int]] = []
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            console = Console(stderr=True, force_terminal=True)
            # On a narrow terminal every number comes before the picture, on two lines if need be.
            picture = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn())
            self._bar = Bar(
                *(picture if console.width >= _WIDE else ()),
                TextColumn("{task.fields[text]}", table_column=Column(no_wrap=False)),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, text="starting")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def due(self) -> bool:
        """Whether it is time for a new picture."""
        return self.visible and time.monotonic() >= self._next

    def show(self, status: Status) -> None:
        """Renew the line."""
        from frugalrl.compiling import COMPILATION

        now = time.monotonic()
        self._next = now + (_EVERY if self._live else _LINE_EVERY)
        # Without the time for compiling, which says nothing of the steps to come.
        self._marks = [*self._marks[-40:], (now - COMPILATION.seconds, status.env_steps)]
        if self.visible and not self._live:
            print(f"{self._title}: {describe(status, self.rate())}", file=sys.stderr, flush=True)
        if self._bar is not None:
            self._bar.update(
                self._task,
                total=status.steps,
                completed=status.env_steps,
                text=describe(status, self.rate()),
                refresh=True,
            )

    def note(self, text: str) -> None:
        """Show an activity in place of the numbers."""
        if self._bar is not None:
            self._bar.update(self._task, text=text, refresh=True)

    def hide(self) -> None:
        """Take the line away, so that something else can be printed; it comes back by itself."""
        if self._bar is not None:
            self._bar.stop()
            self._bar.start()

    def rate(self) -> float | None:
        """Give the steps per second of the last moments, None before there are two."""
        if len(self._marks) < 2 or self._marks[-1][0] <= self._marks[0][0]:
            return None
        (begin, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - begin)


def describe(status: Status, rate: float | None) -> str:
    """Put a status into words."""
    parts = [f"{status.env_steps:,}/{status.steps:,} steps"]
    if rate:
        parts.append(f"{rate:,.0f}/s")
        parts.append(f"{duration((status.steps - status.env_steps) / rate)} left")
    if status.eval_reward is not None:
        parts.append(f"eval {status.eval_reward:,.1f}")
    parts.append(f"stored {status.stored:,}/{status.offered:,}")
    parts.append(f"{status.buffer_bytes / 1e6:,.1f} MB")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Write a time span: 45s, 12m30s, 3h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
