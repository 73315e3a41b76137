"""One run with actors: the same run directory, checkpoints and records as without them.

The learner takes fragments in, admits and stores them, updates in proportion and publishes weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.agents.agent import Agent
from frugalrl.checks import integer_from, number_from
from frugalrl.distributed.cluster import check_nodes, connected
from frugalrl.distributed.edge import take_snapshot
from frugalrl.distributed.fleet import ActorSettings, Fleet, check_room
from frugalrl.distributed.rollout import Fragment
from frugalrl.files import write_json
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.training import runner
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.evaluation import Episodes
from frugalrl.training.loop import TrainingLoop, pieces
from frugalrl.training.run_directory import RunDirectory
from frugalrl.training.session import Session, TrainResult

MEASURES_FILE = "actors.json"
_SNAPSHOT_SHARE = 4  # a snapshot is renewed when steps of so many times its weight were taken
_LOOK_UP = 0.2  # seconds between two looks at actors that have not answered


@dataclasses.dataclass(frozen=True)
class ActorsResult(TrainResult):
    """A finished run with actors."""

    measures: dict[str, Any]
    """What actors.json holds: throughput, the learner's idle share, bytes, losses."""


def train(
    config: TrainConfig, settings: ActorSettings, *, address: str | None = None, **how: Any
) -> ActorsResult:
    """Train with actors that step the environments.

    Two runs with the same seed are not the same: which fragment comes first is chance.

    Args:
        config: what to do; `envs` is the number of environments of each actor.
        settings: how the run is divided.
        address: of a Ray cluster; None: actors on this machine.
        how: `progress`, `say` and `callbacks`, as for `frugalrl.train`.

    Raises:
        ConfigError: a setting cannot work, or the cluster cannot be used; nothing was created.
    """
    settings = check_settings(config, settings)
    with _sessions(settings, address) as make_session:
        how |= {"make_session": make_session, "actors": dataclasses.asdict(settings)}
        return cast("ActorsResult", runner.train(config, **how))


def resume(path: str | os.PathLike[str], *, address: str | None = None, **how: Any) -> ActorsResult:
    """Go on with a run with actors from its last checkpoint.

    Nothing in the checkpoint is admitted again; fragments that were under way are asked for again,
    and actors begin new episodes.

    Args:
        path: the run's directory.
        address: as for `train`; the cluster may be another.
        how: the other arguments of `frugalrl.training.resume`.

    Raises:
        RunDirectoryError: there is no such run, it is finished, or another process is at it.
    """
    stored = RunDirectory(path).read_config()[1].get("actors")
    if stored is None:
        raise RunDirectoryError(f"{str(path)!r} is a run without actors: frugalrl.training.resume")
    with _sessions(ActorSettings(**stored), address) as make_session:
        return cast("ActorsResult", runner.resume(path, make_session=make_session, **how))


@contextlib.contextmanager
def _sessions(settings: ActorSettings, address: str | None) -> Iterator[Callable[..., Session]]:
    """Connect to a cluster that has room for the actors, and versions like here."""
    with connected(address, cpus=settings.actors) as ray:
        check_room(ray, settings.actors)
        check_nodes(ray)
        yield partial(LearnerSession, ray, settings)


def check_settings(config: TrainConfig, settings: ActorSettings) -> ActorSettings:
    """Refuse what cannot work with actors, naming the setting; gives numbers as Python's own."""
    numbers: dict[str, Any] = {}
    try:
        for name in ("actors", "fragment_steps", "in_flight", "publish_updates"):
            numbers[name] = integer_from(name, getattr(settings, name), 1)
        numbers["edge_refresh"] = number_from(
            "edge_refresh", settings.edge_refresh, "a share from 0 to 1", lambda it: 0 <= it <= 1
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None
    for name, works, why in (
        ("workers", "sync", "which are processes themselves"),
        ("normalize", "none", "each of which would have statistics of its own"),
        ("n_step", 1, "whose fragments hold single steps"),
    ):
        if getattr(config, name) != works:
            raise ConfigError(
                f"{name}={getattr(config, name)!r} does not work with actors, {why}; leave it at "
                f"{works!r}"
            )
    is_frugal = config.admission == "fac" or isinstance(config.admission, FrugalFilter)
    if settings.edge_filter and not is_frugal:
        raise ConfigError(
            f"edge_filter needs the frugal filter, got admission={config.admission!r}; use "
            "--admission fac"
        )
    return dataclasses.replace(settings, **numbers)


class LearnerLoop(TrainingLoop):
    """A run whose steps are taken elsewhere; saved and restored like one whose are not.

    The learner takes whatever fragment has come, so it never waits for a slow actor. It asks an
    actor for another only when it has taken one, so a slow learner holds all actors back. After
    each fragment it does the updates that are due for its steps: `gradient_steps` for every
    `train_freq` steps of `envs` environments, as in a run without actors.
    """

    def __init__(
        self,
        config: TrainConfig,
        settings: ActorSettings,
        fleet: Fleet,
        agent: Agent,
        buffer: ReplayBuffer,
    ) -> None:
        super().__init__(config, fleet, agent, buffer)  # type: ignore[arg-type]
        self.measures = fleet.measures
        self._settings = settings
        self._fleet = fleet
        # Of each actor the number of its next fragment, and those asked for and not yet admitted.
        self._next = [0] * settings.actors
        self._open: list[set[int]] = [set() for _ in self._next]
        self._left_over = 0  # steps of a round that has begun
        self._weights: Any = None
        self._version = -1
        self._looked_up = 0.0
        self._snapshot: Any = None
        self._snapshot_step = self._snapshot_bytes = 0
        self._row_bytes = 0.0

    def begin(self, seeds: list[int]) -> None:
        """Do nothing: actors begin by themselves when they are asked."""

    @property
    def round_steps(self) -> int:
        """Steps of a fragment: duties come between two of them."""
        return self._settings.fragment_steps

    def measured(self) -> dict[str, Any]:
        """Give what the run says of itself, as JSON values."""
        steps, measures = max(1, self.env_steps), self.measures
        seconds = max(self.train_seconds, 1e-9)
        ratio = None  # where it is so many updates for each episode
        if self._gradient_steps < 0:
            ratio = 1.0
        elif self._round_steps is not None:
            ratio = self._gradient_steps / self._round_steps
        return {
            "actors": self._settings.actors,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "update_ratio_configured": ratio,
            "update_ratio": self.updates / max(1, self.env_steps - self._learning_starts),
            "steps_per_second": self.env_steps / seconds,
            "learner_idle_share": measures.idle_seconds / seconds,
            "bytes_per_step": measures.bytes_received / steps,
            "updates_behind_mean": measures.updates_behind / max(1, measures.fragments),
            **dataclasses.asdict(measures),
        }

    def advance(self, target: int, stop: Callable[[], bool]) -> None:
        """Take fragments until `target` steps were taken; `stop` may end it after any of them."""
        with self._training():
            while self.env_steps < target and not stop():
                if time.monotonic() - self._looked_up >= _LOOK_UP:
                    self._looked_up = time.monotonic()
                    self._ask(range(self._settings.actors))
                waited = time.perf_counter()
                fragment = self._fleet.take(_LOOK_UP)
                self.measures.idle_seconds += time.perf_counter() - waited
                if fragment is not None:
                    self._admit(fragment)

    def _ask(self, actors: Iterable[int]) -> None:
        """Ask actors for as many fragments as they may have under way."""
        settings, fleet = self._settings, self._fleet
        for actor in actors:
            while len(fleet.under_way(actor)) < settings.in_flight:
                before = self.env_steps + fleet.waiting_steps
                steps = min(settings.fragment_steps, self._steps - before)
                if steps <= 0:
                    return
                age = self.updates - self._version
                if self._weights is None or age >= settings.publish_updates:
                    self._publish()
                published = self._version, self._weights, self._snapshot
                is_random = before < self._learning_starts
                fleet.ask(actor, self._number(actor), steps, *published, random=is_random)

    def _number(self, actor: int) -> int:
        """Give the number to ask an actor for: one that never came, or else a new one.

        It stays open until its fragment is admitted, however often it is asked for again and
        whatever arrives late.
        """
        lost = self._open[actor] - self._fleet.under_way(actor)
        sequence = min(lost, default=self._next[actor])
        self._next[actor] = max(self._next[actor], sequence + 1)
        self._open[actor].add(sequence)
        return sequence

    def _publish(self) -> None:
        weights = self.agent.actor_parameters()
        self._weights, self._version = self._fleet.put(weights), self.updates
        self.measures.publications += 1
        self.measures.bytes_published += weights.nbytes * self._fleet.hosts
        if self._settings.edge_filter:
            self._publish_filter()

    def _publish_filter(self) -> None:
        """Publish the filter with the weights, if it is fitted and the last is old enough.

        So rarely that it is a small part of what the steps since would have weighed.
        """
        learned: Any = self.buffer.admission
        if not learned.is_fitted:
            return
        gone_by = (self.env_steps - self._snapshot_step) * self._row_bytes
        if gone_by < _SNAPSHOT_SHARE * self._snapshot_bytes:
            return
        taken = take_snapshot(learned, self.updates, self._settings.edge_refresh)
        self._snapshot, self._snapshot_step = self._fleet.put(taken), self.env_steps
        self._snapshot_bytes = taken.nbytes * self._fleet.hosts
        self.measures.snapshots += 1
        self.measures.bytes_published += self._snapshot_bytes

    def _admit(self, fragment: Fragment) -> None:
        """Offer a fragment's transitions to the buffer, once, and do the updates due for them."""
        measures = self.measures
        if fragment.sequence not in self._open[fragment.actor]:
            measures.duplicates += 1
            return
        self._open[fragment.actor].remove(fragment.sequence)
        self.env_steps += fragment.steps
        # Before it is learned from, so that the actor goes on meanwhile.
        self._ask([fragment.actor])
        measures.fragments += 1
        measures.bytes_received += fragment.nbytes
        measures.updates_behind += self.updates - fragment.version
        measures.actor_seconds += fragment.seconds
        measures.withheld += fragment.steps - len(fragment.rewards)
        self._row_bytes = max(self._row_bytes, fragment.nbytes / fragment.steps)
        outcome = self.buffer.extend(*fragment.transitions())
        self._count_episodes(*fragment.episodes.T)
        self._successes += fragment.successes.tolist()
        if outcome.refused:
            self._check_refused(fragment.actions)
        self._update(pieces(self._updates_due(fragment)))

    def _updates_due(self, fragment: Fragment) -> int:
        """Say how many updates are due for a fragment and for what earlier ones have left over."""
        steps = min(fragment.steps, max(0, self.env_steps - self._learning_starts))
        if self._gradient_steps < 0 or not steps:
            return steps
        if self._round_steps is None:
            return self._gradient_steps * len(fragment.episodes)
        rounds, self._left_over = divmod(self._left_over + steps, self._round_steps)
        return self._gradient_steps * rounds

    def state_dict(self) -> dict[str, Any]:
        """Give everything that a continuation needs, between two fragments."""
        return {
            **super().state_dict(),
            "ledger": {"next": list(self._next), "open": [sorted(them) for them in self._open]},
            "left_over": self._left_over,
            "measures": dataclasses.asdict(self.measures),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Continue from `state_dict`; fragments that were under way are asked for again."""
        problems = super().load_state_dict(state)
        self._next = list(state["ledger"]["next"])
        self._open = [set(numbers) for numbers in state["ledger"]["open"]]
        self._left_over = int(state["left_over"])
        vars(self.measures).update(state["measures"])
        return problems


class LearnerSession(Session):
    """A session whose loop is the learner's."""

    _loop: LearnerLoop

    def __init__(self, ray: Any, settings: ActorSettings, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ray = ray
        self._settings = settings

    def _make_group(self) -> Any:
        return Fleet(self._ray, self.config, self.factory, self._settings.actors, self.say)

    def _make_loop(self, group: Any, agent: Any, buffer: Any) -> LearnerLoop:
        return LearnerLoop(self.config, self._settings, group, agent, buffer)

    def _save(self) -> None:
        super()._save()
        if self.directory is not None:
            with self._writing():
                write_json(self.directory.path / MEASURES_FILE, self._loop.measured())

    def _finish(self, final: Episodes | None) -> ActorsResult:
        result = super()._finish(final)
        measures = self._loop.measured()
        self.say(*measure_lines(measures))
        return ActorsResult(**vars(result), measures=measures)


def measure_lines(measures: Mapping[str, Any]) -> list[str]:
    """Say how actors and learner got on."""
    configured = measures["update_ratio_configured"]
    wanted = "" if configured is None else f" (configured: {configured:g})"
    lines = [
        f"{measures['actors']} actors: {measures['fragments']:,} fragments, "
        f"{measures['bytes_per_step']:.0f} bytes per step, {measures['lost']} lost, "
        f"{measures['duplicates']} refused as duplicates, {measures['restarts']} restarts",
        f"updates for each step: {measures['update_ratio']:.3f}{wanted}; the learner waited "
        f"{100 * measures['learner_idle_share']:.0f} % of its time; weights that acted were "
        f"{measures['updates_behind_mean']:.0f} updates old",
    ]
    if measures["snapshots"]:
        share = measures["withheld"] / max(1, measures["env_steps"])
        lines.append(
            f"edge filter: {100 * share:.0f} % of the transitions were not sent; it was published "
            f"{measures['snapshots']} times"
        )
    return lines
