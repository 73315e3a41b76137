"""What can be wrong with a request for experiments, in words a user can act on."""

from __future__ import annotations

from collections.abc import Iterable

from frugalrl.checks import nearest
from frugalrl.training.errors import ConfigError


class BenchError(ConfigError):
    """A suite, method, parameter or results directory that cannot be used as asked."""


def unknown(what: str, got: str, known: Iterable[str]) -> BenchError:
    """Make the error for a name that does not exist; it gives the nearest and all that do."""
    names = list(known)
    near = nearest(got, names)
    hint = f" Did you mean {near!r}?" if near else ""
    return BenchError(f"unknown {what} {got!r}.{hint} There are: {', '.join(names)}.")
