"""Reading a subcommand's arguments into a dataclass."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


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
