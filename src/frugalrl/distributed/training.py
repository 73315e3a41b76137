"""One run with actors: the same run directory, checkpoints and records as without them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from frugalrl.checks import integer_from
from frugalrl.distributed.cluster import check_nodes, connected
from frugalrl.distributed.fleet import ActorSettings, Fleet, check_room
from frugalrl.distributed.learner import LearnerLoop
from frugalrl.files import write_json
from frugalrl.training import runner
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.evaluation import Episodes
from frugalrl.training.run_directory import RunDirectory
from frugalrl.training.session import Session, TrainResult

MEASURES_FILE = "actors.json"


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
    check_settings(config, settings)
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
    directory = RunDirectory(path)
    stored = directory.read_config()[1].get("actors")
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


def check_settings(config: TrainConfig, settings: ActorSettings) -> None:
    """Refuse what cannot work with actors, naming the setting."""
    for name in ("actors", "fragment_steps", "in_flight", "publish_updates"):
        try:
            integer_from(name, getattr(settings, name), 1)
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
    if not 0.0 <= settings.edge_refresh <= 1.0:
        raise ConfigError(f"edge_refresh={settings.edge_refresh} must be a share from 0 to 1")
    if settings.edge_filter and config.admission != "fac":
        from frugalrl.admission.frugal import FrugalFilter

        if not isinstance(config.admission, FrugalFilter):
            raise ConfigError(
                f"edge_filter needs the frugal filter, got admission={config.admission!r}; use "
                "--admission fac"
            )


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
            write_json(self.directory.path / MEASURES_FILE, self._loop.measured())

    def _finish(self, final: Episodes | None) -> ActorsResult:
        result = super()._finish(final)
        measures = self._loop.measured()
        for line in measure_lines(measures):
            self.say(line)
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
