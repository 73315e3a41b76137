"""What can be wrong with a request for experiments, in words a user can act on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from frugalrl.training.errors import ConfigError, StorageError


class BenchError(ConfigError):
    """A suite, method, parameter or results directory that cannot be used as asked."""


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Put into words that a directory cannot be written.

    Raises:
        StorageError: Instead of the system's own error.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has gone
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be written: {error.strerror or error}. Put that right, then the "
            "same command does what is missing"
        ) from error
