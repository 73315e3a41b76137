"""A word to the user while Numba compiles, which it does once on a machine."""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event


class _Notice(event.Listener):  # type: ignore[misc]
    """Tells when the first function of this package has to be compiled; silent ever after."""

    is_told = False

    def on_start(self, event: Any) -> None:
        """Look whose function it is that Numba has not found on disk."""
        module = event.data["dispatcher"].py_func.__module__
        if not self.is_told and module.startswith("frugalrl."):
            self.is_told = True
            print("frugalrl: compiling, once on this machine; about a minute", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        """Nothing: what comes next is what the user waits for."""


def tell_of_compilation() -> None:
    """Begin to listen."""
    event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
