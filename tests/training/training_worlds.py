"""Small environments for tests: one that works, and one for each way of not working."""

from __future__ import annotations

import os
import random
import time

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers


class Point(gymnasium.Env):
    """A point on a line that is pushed about; the goal is the middle. Ends beyond +-3."""

    observation_space = spaces.Box(-10, 10, (2,), np.float64)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, render_mode: str | None = None, push: float = 0.1) -> None:
        self.render_mode = render_mode
        self.push = push
        self.position = np.zeros(2)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1, 1, 2)
        return self.position.copy(), {}

    def step(self, action):
        self.steps += 1
        self.position[1] += self.push * float(action[0]) + 0.05 * self.np_random.normal()
        self.position[0] += 0.1 * self.position[1]
        ended = bool(abs(self.position[0]) > 3)
        return self.position.copy(), -float(self.position @ self.position), ended, False, {}


class Faulty(Point):
    """Does something wrong at some step: nan, inf, raise, exit, hang or reward."""

    def __init__(self, fault: str = "nan", at: int = 10, every: int = 10**9, **kwargs) -> None:
        super().__init__(**kwargs)
        self.fault, self.at, self.every = fault, at, every

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps >= self.at and (self.steps - self.at) % self.every == 0:
            if self.fault == "nan":
                observation = observation * np.nan
            elif self.fault == "reward":
                reward = float("inf")
            elif self.fault == "raise":
                raise ZeroDivisionError("the wheels came off")
            elif self.fault == "exit":
                os._exit(3)
            elif self.fault == "hang":
                time.sleep(600)
        return observation, reward, terminated, truncated, info


class Moody(Point):
    """Depends on a generator that nobody can set: no state reproduces it."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.random.default_rng().normal(), *rest


class Opaque(Point):
    """Hides its state in an object that cannot be written down, but follows from its actions."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = _Box()

    def step(self, action):
        observation, *rest = super().step(action)
        self.hidden.value = 0.5 * self.hidden.value + float(action[0])
        return observation + self.hidden.value, *rest

    def reset(self, *, seed=None, options=None):
        self.hidden.value = 0.0
        return super().reset(seed=seed, options=options)


class Hoarder(Opaque):
    """The same, but something is carried over from one episode to the next."""

    def reset(self, *, seed=None, options=None):
        self.hidden.carried += self.hidden.value
        observation, info = super().reset(seed=seed, options=options)
        return observation + self.hidden.carried, info


class Global(Point):
    """Draws from the global generators, as if nobody else did."""

    def step(self, action):
        observation, *rest = super().step(action)
        noise = np.random.normal() + random.gauss(0, 1)  # noqa: NPY002
        return observation + 0.1 * noise, *rest


class Sampling(Point):
    """Draws from its own action space."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-2, 2, (1,), np.float32, seed=3)

    def step(self, action):
        return super().step(action + 0.1 * self.action_space.sample())


class Shared(Point):
    """Has two names for one list, and a list that holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.pushes = self.history = [0.0]
        self.loop: list = [1.0]
        self.loop.append(self.loop)

    def step(self, action):
        self.pushes[0] = 0.9 * self.pushes[0] + 0.1 * float(action[0])
        self.loop[1][0] += 1.0
        observation, *rest = super().step(action)
        return observation + self.history[0] + 1e-3 * self.loop[0], *rest


class Window(Point):
    """Looks at its state through a second array that shares its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = np.zeros(4)
        self.window = self.memory[:2]

    def step(self, action):
        self.memory[0] += float(action[0])
        observation, *rest = super().step(action)
        return observation + 0.1 * self.window[0], *rest


class Turning(Point):
    """Can be read at first, and no longer after so many steps."""

    def __init__(self, at: int = 130) -> None:
        super().__init__()
        self.at, self.secret = at, None

    def step(self, action):
        if self.steps >= self.at:
            self.secret = _Box()
        return super().step(action)


class Wrong(Point):
    """Returns something of a wrong shape."""

    def __init__(self, wrong: str = "row") -> None:
        super().__init__()
        self.wrong = wrong

    def _twist(self, observation):
        twists = {"scalar": 0.0, "row": observation[None], "long": np.zeros(3)}
        return twists.get(self.wrong, observation)

    def reset(self, *, seed=None, options=None):
        observation = self._twist(super().reset(seed=seed)[0])
        return observation if self.wrong == "old reset" else (observation, {})

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.wrong == "rewards":
            reward = np.array([reward])
        if self.wrong == "old step":
            rest = rest[1:]
        return self._twist(observation), reward, *rest


class Goal(Point):
    """Says at an episode's end that it was a success."""

    def step(self, action):
        self.left = getattr(self, "left", 0) + 1
        observation, reward, *_ = super().step(action)
        over = self.left % 20 == 0
        return observation, reward, over, False, {"is_success": True} if over else {}


class Uncopyable(Point):
    """Refuses to be copied."""

    def __deepcopy__(self, memo):
        raise TypeError("there is only one of me")


class Lazy(Point):
    """Never comes out of its constructor, unless in the process that is named."""

    def __init__(self, parent: int = 0) -> None:
        super().__init__()
        if os.getpid() != parent:
            time.sleep(600)


class Scribbling(Point):
    """Changes its action and what it has returned before."""

    def reset(self, *, seed=None, options=None):
        self.shown = np.zeros(2, np.float32)
        self.shown[:] = super().reset(seed=seed)[0]
        return self.shown, {}

    def step(self, action):
        observation, *rest = super().step(action)
        action *= 0
        self.shown[:] = observation
        return self.shown, *rest


class Spaces(Point):
    """Has whatever spaces a test asks for."""

    def __init__(self, observation=None, action=None) -> None:
        super().__init__()
        self.observation_space = observation or Point.observation_space
        self.action_space = action or Point.action_space


class _Box:
    __slots__ = ("carried", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.carried = 0.0


def limited():
    """The point with its time limit, as its registered id gives it."""
    return wrappers.TimeLimit(Point(), 25)


def halved(environment):
    """Half of every reward."""
    return wrappers.TransformReward(environment, lambda reward: reward / 2)


def normalized(**kwargs):
    """The point with running means of observations and rewards, as many wrap it."""
    wrapped = wrappers.NormalizeObservation(Point(**kwargs))
    return wrappers.NormalizeReward(wrapped)


def stacked(**kwargs):
    """The last three observations of the point, in one row, and sticky actions."""
    sticky = wrappers.StickyAction(Point(**kwargs), 0.3)
    return wrappers.FlattenObservation(wrappers.FrameStackObservation(sticky, 3))


def normalized_opaque():
    """A state that cannot be read under a wrapper that remembers."""
    return wrappers.NormalizeObservation(Opaque())


def normalized_hoarder():
    """A state that can be neither read nor reproduced under a wrapper that remembers."""
    return wrappers.NormalizeObservation(Hoarder())


_KINDS = (
    *(Point, Faulty, Moody, Opaque, Hoarder, Spaces, Global, Sampling, Shared, Window, Turning),
    *(Goal, Wrong, Lazy, Scribbling, normalized, stacked, normalized_opaque, normalized_hoarder),
)


def register() -> None:
    """Register the environments, once."""
    for kind in _KINDS:
        name = f"Frugal{kind.__name__.title().replace('_', '')}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=f"{__name__}:{kind.__name__}",
                max_episode_steps=None if kind is Wrong else 25,
            )
