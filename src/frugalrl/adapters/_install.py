"""The message for a library that is not installed."""

from __future__ import annotations


def install_hint(adapter: str, library: str, extra: str, error: ImportError) -> ImportError:
    """Say which command installs the library that an adapter stands on.

    Args:
        adapter: the module that was imported.
        library: the library it needs, as its users write it.
        extra: the extra of this package that installs it.
        error: what the import raised.
    """
    return ImportError(
        f'{adapter} needs {library} ({error}): pip install "frugalrl[{extra}]"', name=error.name
    )
