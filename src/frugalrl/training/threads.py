"""How many threads a run may use; has to be said before the numerical libraries load."""

from __future__ import annotations

import os
import sys

_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(threads: int) -> None:
    """Limit JAX to so many threads, and BLAS too if NumPy is not loaded yet.

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
