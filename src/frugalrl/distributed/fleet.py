"""The actors as the learner sees them: asks out, fragments in, the dead started again."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from frugalrl.distributed.cluster import last_line
from frugalrl.distributed.rollout import Fragment, Rollout
from frugalrl.training.config import TrainConfig
from frugalrl.training.env_state import Restored
from frugalrl.training.environments import EnvironmentFactory
from frugalrl.training.errors import BrokenEnvironmentError, ConfigError

START_SECONDS = 60.0
_MOST_FAILURES = 5  # in a row, of one actor


@dataclasses.dataclass(frozen=True)
class ActorSettings:
    """How a run is divided between actors and the learner."""

    actors: int
    """Processes that step environments, on one processor each."""
    edge_filter: bool = False
    """Let actors keep back what the learner's filter would likely not keep."""
    edge_refresh: float = 0.25
    """With it, share that is sent of the transitions that would replace an equivalent one."""
    fragment_steps: int = 64
    """Environment steps of a fragment, all environments of the actor together."""
    in_flight: int = 2
    """Fragments of one actor that were asked for and not taken, at most."""
    publish_updates: int = 32
    """Updates after which the weights are published anew."""


@dataclasses.dataclass
class Measures:
    """What a run with actors says of itself beside what every run does."""

    fragments: int = 0
    """Admitted."""
    duplicates: int = 0
    """Came again and were refused."""
    lost: int = 0
    """Asked for and never came; they are asked for again."""
    restarts: int = 0
    """Actors that died, or hung and were killed."""
    bytes_received: int = 0
    """Arrays of the fragments."""
    bytes_published: int = 0
    """Weights and filters, once for each host with actors."""
    publications: int = 0
    """How often weights were published."""
    snapshots: int = 0
    """How often the filter was published."""
    withheld: int = 0
    """Transitions that actors kept back."""
    updates_behind: int = 0
    """Updates between the weights that acted and the learner's, summed over fragments."""
    actor_seconds: float = 0.0
    """Time that actors took for their steps, summed over fragments."""
    idle_seconds: float = 0.0
    """Time in which the learner waited for fragments."""


class _Ask(NamedTuple):
    """A fragment that was asked for."""

    actor: int
    sequence: int
    steps: int
    deaths: int
    """Of the actor, before it was asked."""


@dataclasses.dataclass
class _ActorState:
    """What the learner knows of an actor."""

    handle: Any
    has_answered: bool = False
    """Since it was started, or started again: the first answer takes longer."""
    failures: int = 0
    """Deaths since its last fragment."""
    deaths: int = 0
    """In all: what was asked for before one of them is lost with it, not by another."""
    last_heard: float = 0.0
    """When it last answered, or was asked with nothing else to do."""


class Fleet:
    """Actors on Ray, in the place of a run's environments; each steps `config.envs` of these.

    Raises:
        ConfigError: the actors did not start in time.
    """

    def __init__(
        self,
        ray: Any,
        config: TrainConfig,
        factory: EnvironmentFactory,
        actors: int,
        say: Callable[[str], None],
    ) -> None:
        self.count = config.envs
        self.measures = Measures()
        self._ray = ray
        self._say = say
        self._patience = config.worker_timeout
        # The filter is the learner's; one of the user's own may not even be sendable.
        lean = dataclasses.replace(config, admission="none", out=None)
        # With retries asks wait while an actor starts again; without, they would fail until it has.
        make = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(Rollout)
        self._actors = [_ActorState(make.remote(i, lean, factory)) for i in range(actors)]
        self._asked: dict[Any, _Ask] = {}
        self._ready: deque[Any] = deque()
        self.hosts = self._wait_for_all()
        """Hosts that have actors."""

    def put(self, value: Any) -> Any:
        """Make a value reachable for actors; gives what stands for it in `ask`."""
        return self._ray.put(value)

    @property
    def waiting_steps(self) -> int:
        """Steps that were asked for and have not come."""
        return sum(ask.steps for ask in self._asked.values())

    def under_way(self, actor: int) -> set[int]:
        """Give the numbers of the fragments that an actor was asked for and has not sent."""
        return {ask.sequence for ask in self._asked.values() if ask.actor == actor}

    def ask(self, actor: int, sequence: int, steps: int, *published: Any, random: bool) -> None:
        """Ask an actor for a fragment; see `Rollout.collect`."""
        state = self._actors[actor]
        if not self.under_way(actor):
            state.last_heard = time.monotonic()
        # A fragment that was begun is not tried again: it is lost, and asked for anew.
        collect = state.handle.collect.options(max_task_retries=0)
        reference = collect.remote(sequence, steps, *published, random=random)
        self._asked[reference] = _Ask(actor, sequence, steps, state.deaths)

    def take(self, seconds: float) -> Fragment | None:
        """Wait for a fragment for so long at most; None where none has come, or its actor died.

        Raises:
            BrokenEnvironmentError: an environment raised an error, or an actor keeps dying.
        """
        pending = list(self._asked)
        if not pending:
            time.sleep(seconds)  # until an actor is asked again
        elif not self._ready:
            # All that is there in one call, or else the first that comes.
            ready, rest = self._ray.wait(pending, num_returns=len(pending), timeout=0)
            self._kill_the_silent(ready, rest)
            if not ready:
                ready, _ = self._ray.wait(pending, num_returns=1, timeout=seconds)
            self._ready.extend(ready)
        return self._receive(self._ready.popleft()) if self._ready else None

    def _receive(self, reference: Any) -> Fragment | None:
        ask = self._asked.pop(reference)
        state = self._actors[ask.actor]
        state.last_heard = time.monotonic()
        try:
            fragment: Fragment = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise BrokenEnvironmentError(f"actor {ask.actor} raised:\n{error}") from None
        except self._ray.exceptions.RayError as error:
            self.measures.lost += 1
            if ask.deaths == state.deaths:  # or else lost by a death that is counted
                self._say(f"actor {ask.actor} died and is started again: {last_line(error)}")
                self._count_death(ask.actor, str(error).strip())
            return None
        state.failures, state.has_answered = 0, True
        return fragment

    def _count_death(self, actor: int, reason: str) -> None:
        state = self._actors[actor]
        self.measures.restarts += 1
        state.deaths, state.failures = state.deaths + 1, state.failures + 1
        state.has_answered = False
        if state.failures >= _MOST_FAILURES:
            raise BrokenEnvironmentError(
                f"actor {actor} died {state.failures} times in a row; the last time: {reason}"
            )

    def _kill_the_silent(self, ready: list[Any], rest: list[Any]) -> None:
        """Kill actors that hang; Ray starts them again, and what they were asked for is lost.

        One that has answered is not silent, however long nobody has listened.
        """
        now = time.monotonic()
        silent = {self._asked[reference].actor for reference in rest}
        for actor in silent - {self._asked[reference].actor for reference in ready}:
            state = self._actors[actor]
            patience = self._patience + (0.0 if state.has_answered else START_SECONDS)
            if now - state.last_heard > patience:
                state.last_heard = now
                silence = f"actor {actor} has not answered for {patience:g} s and is killed"
                self._say(silence)
                self._ray.kill(state.handle, no_restart=False)
                self._count_death(actor, silence)

    def capture(self) -> list[Any]:
        """Give nothing: the environments' states stay with the actors."""
        return []

    def restore(self, states: list[Any], seeds: list[int]) -> list[Restored]:
        """Take nothing: actors begin new episodes."""
        return [Restored(None, None)] * self.count

    def close(self) -> None:
        """End the actors."""
        for state in self._actors:
            self._ray.kill(state.handle, no_restart=True)
        self._asked.clear()
        self._ready.clear()

    def _wait_for_all(self) -> int:
        """Wait until every actor has started; gives on how many hosts."""
        asked = [state.handle.host.remote() for state in self._actors]
        there, missing = self._ray.wait(asked, num_returns=len(asked), timeout=START_SECONDS)
        try:
            hosts = set(self._ray.get(there))
        except self._ray.exceptions.RayError as error:
            self.close()
            raise ConfigError(f"an actor cannot be started: {error}") from None
        if missing:
            free = self._ray.available_resources().get("CPU", 0.0)
            self.close()
            raise ConfigError(
                f"actors={len(asked)}, but only {len(there)} started within {START_SECONDS:g} s: "
                f"the cluster has {free:g} processors free; is another job on it?"
            )
        return len(hosts)


def check_room(ray: Any, actors: int) -> None:
    """Refuse more actors than the cluster has processors: Ray would wait for them for ever."""
    there = int(ray.cluster_resources().get("CPU", 0.0))
    if actors > there:
        raise ConfigError(
            f"actors={actors} need a processor each, but the cluster has {there}; use at most "
            f"--actors {there}, or add nodes"
        )
