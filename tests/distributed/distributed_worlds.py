"""Environments for the tests of distribution that take their time."""

from __future__ import annotations

import contextlib
import os
import time

import gymnasium
from training_worlds import Faulty, Point


class Sleepy(Point):
    """Takes so many seconds for a step."""

    def __init__(self, seconds: float = 0.005, **kwargs) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
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


for _kind in (Sleepy, Doomed, Broken):
    _name = f"Frugal{_kind.__name__}-v0"
    if _name not in gymnasium.registry:
        gymnasium.register(
            id=_name, entry_point=f"{__name__}:{_kind.__name__}", max_episode_steps=25
        )
