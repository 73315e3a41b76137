"""What can be wrong with a request for experiments, in words a user can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from frugalrl.training.errors import ConfigError


class BenchError(ConfigError):
    """A suite, method, parameter or results directory that cannot be used as asked."""


def unknown(what: str, got: str, known: Iterable[str]) -> BenchError:
    """Make the error for a name that does not exist; it gives the nearest and all that do."""
    names = list(known)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(got.lower(), by_lower, n=1, cutoff=0.6)
    hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    return BenchError(f"unknown {what} {got!r}.{hint} There are: {', '.join(names)}.")
