"""Environments for the tests of distribution: they wait for the test, die or break."""

from __future__ import annotations

import contextlib
import os
import time

import gymnasium
from training_worlds import Faulty, Point


class Held(Point):
    """Hardly goes on from some step on, until a file is there; so tests need not hurry.

    Args:
        until: the file; none: it is never held.
        since: a file without which it is not held either.
    """

    def __init__(self, until: str = "", since: str = "/") -> None:
        super().__init__()
        self.until, self.since = until, since

    def step(self, action):
        # No environment takes so many steps in a run's preparation, or to evaluate.
        if self.until and self.steps >= 150 and os.path.exists(self.since):
            begun = time.monotonic()
            while not os.path.exists(self.until) and time.monotonic() - begun < 0.2:
                time.sleep(0.01)
        return super().step(action)


class Doomed(Point):
    """Ends its process after some steps; the first of all processes hangs before that.

    Args:
        marker: a path, where a directory says that one has hung.
    """

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker
        self.taken = 0

    def step(self, action):
        self.taken += 1
        if self.taken == 20:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.marker)
                time.sleep(600)
        if self.taken == 40:
            os._exit(3)
        return super().step(action)


class Broken(Faulty):
    """Raises an error after some steps."""

    def __init__(self) -> None:
        super().__init__(fault="raise", at=80)


for _kind in (Held, Doomed, Broken):
    _name = f"Frugal{_kind.__name__}-v0"
    if _name not in gymnasium.registry:
        gymnasium.register(
            id=_name, entry_point=f"{__name__}:{_kind.__name__}", max_episode_steps=25
        )
