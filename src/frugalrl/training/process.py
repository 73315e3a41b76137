"""What concerns the whole process: signals, threads, memory."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any


class InterruptGuard:
    """Remembers a signal while it is active, instead of letting it stop the process.

    Signals only reach a program's main thread; in any other thread this does nothing. Whether the
    run `saves` itself before it stops only matters for what is said.
    """

    def __init__(self, saves: bool = True) -> None:
        self.signum: int | None = None
        self._word = b"saving the run, then stopping" if saves else b"stopping"
        self._previous: dict[int, Any] = {}

    @property
    def triggered(self) -> bool:
        """Whether a signal has arrived."""
        return self.signum is not None

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # the cursor, which a progress bar hides
            os._exit(128 + signum)
        self.signum = signum
        # Straight to the descriptor: a handler may interrupt a print half-way.
        os.write(2, b"\n" + self._word + b" (once more: stop at once)\n")


def die_with(parent: int, signum: int = signal.SIGTERM) -> None:
    """Ask the system for a signal when the process that started this one dies (Linux only)."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signum)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(128 + signum)


def limit_threads(threads: int) -> None:
    """Limit JAX to so many threads, and BLAS from its beginning if NumPy is not loaded yet.

    What is set in the environment already stays, and after JAX is imported nothing changes: both
    read their settings once.
    """
    if "numpy" not in sys.modules:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, str(threads))
    if "jax" in sys.modules:
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("NPROC", str(threads))
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def blas_threads(threads: int) -> contextlib.AbstractContextManager[Any]:
    """Hold NumPy's and SciPy's BLAS to so many threads for a while, whatever was set before."""
    # Compiled updates call SciPy's BLAS, which has to be loaded to be told.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import threadpool_limits

    limited: contextlib.AbstractContextManager[Any] = threadpool_limits(threads, user_api="blas")
    return limited


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
