"""Reading a subcommand's arguments into a dataclass, and what grids of runs have in common."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

T = TypeVar("T")
REGISTRY = ConstructorRegistry()
"""How options are read where tyro alone would read them otherwise."""


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """How a grid's runs are done."""

    jobs: int = 1
    """Runs at a time on this machine, each on its own core."""
    set: tuple[str, ...] = ()
    """Settings of every run, as name=value: learning_starts=500 fac_bins=70."""
    dry_run: bool = False
    """Only list the runs, and estimate their time from a short calibration."""
    keep_buffers: bool = False
    """Keep every run's final buffer."""
    open: bool = False
    """Open the report in the browser."""
    backend: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster."""
    address: str | None = None
    """Ray: the cluster's head, host:port or auto; None: a Ray on this machine."""
    storage: str | None = None
    """Ray: where nodes leave results and checkpoints, such as s3://...; None: --out."""
    gpus: float = 0.0
    """Ray: share of a GPU for each run with the JAX engine."""


def parse(kind: type[T], arguments: list[str], command: str) -> T:
    """Read arguments into a dataclass, whose docstring is the help's first part.

    Fields without default are positional.

    Raises:
        SystemExit: after printing help, or an error with what would be right.
    """
    return tyro.cli(
        kind,
        args=arguments,
        prog=f"frugalrl {command}",
        description=inspect.getdoc(kind),
        config=(tyro.conf.PositionalRequiredArgs,),
        registry=REGISTRY,
    )


@REGISTRY.primitive_rule
def _read_integers(info: Any) -> PrimitiveConstructorSpec[int] | None:
    """Let every option that takes an integer take 1e6 too."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: _integer(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        number = float(word)
        if not number.is_integer():
            raise
        return int(number)
