"""Environments for the tests of distribution that take their time."""

from __future__ import annotations

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


class Broken(Faulty):
    """Raises an error after some steps."""

    def __init__(self) -> None:
        super().__init__(fault="raise", at=80)


for _kind in (Sleepy, Broken):
    _name = f"Frugal{_kind.__name__}-v0"
    if _name not in gymnasium.registry:
        gymnasium.register(
            id=_name, entry_point=f"{__name__}:{_kind.__name__}", max_episode_steps=25
        )
