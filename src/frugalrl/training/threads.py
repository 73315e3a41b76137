"""How many threads a run may use. Sums come out differently with another number of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(threads: int) -> None:
    """Limit JAX to so many threads, and BLAS from its beginning if NumPy is not loaded yet.

    What is set in the environment already stays, and after JAX is imported nothing changes: both
    read their settings once.
    """
    if "numpy" not in sys.modules:
        for name in _BLAS:
            os.environ.setdefault(name, str(threads))
    if "jax" in sys.modules:
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("NPROC", str(threads))
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


@contextlib.contextmanager
def blas_threads(threads: int) -> Iterator[None]:
    """Hold NumPy's and SciPy's BLAS to so many threads for a while, whatever was set before."""
    # Compiled updates call SciPy's BLAS, which has to be loaded to be told.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, user_api="blas"):
        yield
