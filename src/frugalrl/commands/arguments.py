"""Reading a subcommand's arguments into a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from frugalrl.bench.grid import Start

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """Where a grid's runs are done."""

    backend: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster."""
    address: str | None = None
    """Ray: the cluster's head, host:port or auto; None: a Ray on this machine."""
    storage: str | None = None
    """Ray: where nodes leave results and checkpoints, such as s3://...; None: --out."""
    gpus: float = 0.0
    """Ray: share of a GPU for each run with the JAX engine."""

    def make_backend(
        self, out: Path, *, keep_buffers: bool
    ) -> AbstractContextManager[Start] | None:
        """Make what was asked for; None: processes of this machine.

        Raises:
            ConfigError: options that only a cluster has, without one.
        """
        if self.backend == "ray":
            from frugalrl.distributed.grid import ray_tasks

            return ray_tasks(
                out,
                address=self.address,
                storage=self.storage,
                keep_buffers=keep_buffers,
                gpus=self.gpus,
            )
        for name in ("address", "storage", "gpus"):
            if getattr(self, name):
                from frugalrl.training.errors import ConfigError

                raise ConfigError(
                    f"--{name} {getattr(self, name)} has no effect on this machine's own "
                    "processes; add --backend ray"
                )
        return None


def parse(kind: type[T], arguments: list[str], command: str, description: str) -> T:
    """Read arguments into a dataclass; fields without default are positional.

    Raises:
        SystemExit: after printing help, or an error with what would be right.
    """
    import tyro

    made: Any = tyro.cli(
        kind,
        args=arguments,
        prog=f"frugalrl {command}",
        description=description,
        config=(tyro.conf.PositionalRequiredArgs,),
    )
    return made  # type: ignore[no-any-return]
