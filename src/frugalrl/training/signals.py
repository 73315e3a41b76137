"""SIGINT and SIGTERM: the first asks the run to save and stop, the second ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptGuard:
    """Remembers a signal while it is active, instead of letting it stop the process.

    Signals only reach a program's main thread; in any other thread this does nothing.

    Args:
        saves: whether the run is saved before it stops; only for what is said.
    """

    def __init__(self, saves: bool = True) -> None:
        self.signum: int | None = None
        self._word = b"saving the run, then stopping" if saves else b"stopping"
        self._previous: dict[int, Any] = {}

    @property
    def triggered(self) -> bool:
        """Whether a signal has arrived."""
        return self.signum is not None

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        # Straight to the descriptor: a handler may interrupt a print half-way.
        os.write(2, b"\n" + self._word + b" (once more: stop at once)\n")


def die_with(parent: int, signum: int = signal.SIGTERM) -> None:
    """Ask the system for a signal when the process that started this one dies (Linux only)."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signum)
    if os.getppid() != parent:
        os._exit(128 + signum)
