"""As much of Ray as a fleet needs, in this process: an answer is made when it is waited for."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """Like Ray's."""


class RayTaskError(RayError):
    """Like Ray's."""


class ActorDiedError(RayError):
    """Like Ray's."""


class InlineRay:
    """Stands for the module.

    Args:
        cpus: processors that the cluster has.
        slow: actors whose answers never come by themselves; `wake` lets one come.
        fails: numbers of asks, counted over all actors, at which an actor dies.
    """

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError
    )

    def __init__(self, cpus: int = 4, slow: tuple[int, ...] = (), fails: tuple[int, ...] = ()):
        self.cpus = cpus
        self.slow = set(slow)
        self.fails = set(fails)
        self.killed: list[Any] = []
        self._count = itertools.count()
        self.made: list[Any] = []

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}

    def available_resources(self) -> dict[str, float]:
        return self.cluster_resources()

    def put(self, value: Any) -> Any:
        return value

    def kill(self, handle: Any, no_restart: bool) -> None:
        self.killed.append((handle, no_restart))
        self.slow.discard(handle.index)
        handle.dead = not no_restart

    def remote(self, **options: Any) -> Any:
        def wrap(kind: type) -> Any:
            def make(*arguments: Any) -> _Handle:
                handle = _Handle(self, len(self.made), kind(*arguments))
                self.made.append(handle)
                return handle

            return SimpleNamespace(remote=make)

        return wrap

    def wait(self, references: list[Any], num_returns: int = 1, timeout: float = 0.0) -> Any:
        ready = [r for r in references if r.handle.index not in self.slow or r.name != "collect"]
        ready = ready[:num_returns]
        return ready, [reference for reference in references if reference not in ready]

    def get(self, reference: Any) -> Any:
        if isinstance(reference, list):
            return [self.get(one) for one in reference]
        return reference.answer()


class _Reference:
    def __init__(self, handle: Any, name: str, arguments: Any, how: Any, number: int) -> None:
        self.handle, self.name = handle, name
        self._arguments, self._how, self._number = arguments, how, number

    def answer(self) -> Any:
        handle, ray = self.handle, self.handle.ray
        if self.name == "collect" and (self._number in ray.fails or handle.dead):
            handle.dead = False
            raise ActorDiedError("the actor died")
        try:
            return getattr(handle.object, self.name)(*self._arguments, **self._how)
        except Exception as error:
            raise RayTaskError(f"{type(error).__name__}: {error}") from error


class _Method:
    def __init__(self, handle: Any, name: str) -> None:
        self._handle, self._name = handle, name

    def options(self, **options: Any) -> _Method:
        return self

    def remote(self, *arguments: Any, **how: Any) -> _Reference:
        number = next(self._handle.ray._count) if self._name == "collect" else -1
        return _Reference(self._handle, self._name, arguments, how, number)


class _Handle:
    def __init__(self, ray: InlineRay, index: int, made: Any) -> None:
        self.ray, self.index, self.object, self.dead = ray, index, made, False

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)
