"""How much memory this process has held at most."""

from __future__ import annotations

import sys


def peak_memory() -> int:
    """Give the peak of the process's resident memory in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        import psutil  # type: ignore[import-untyped]

        return int(psutil.Process().memory_info().peak_wset)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return peak if sys.platform == "darwin" else peak * 1024
