"""Settings for every test: one thread a process, no display, reproducible Hypothesis."""

from __future__ import annotations

import os

# Tests run in several processes at once, so each keeps to one thread. This has to happen before
# NumPy, JAX or Torch are imported; what the user has set stays.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "Agg",
    "SDL_VIDEODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "offline",
}.items():
    os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

if os.environ.get("NUMBA_DISABLE_JIT") == "1":
    # Compiled code never warns of overflow; as plain Python it has to be as quiet.
    np.seterr(all="ignore")

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

# `ci` tries the same examples every time, so a failure is never a matter of luck;
# `thorough` looks for new ones: HYPOTHESIS_PROFILE=thorough make test
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=_QUIET
)
settings.register_profile(
    "thorough", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=_QUIET
)
# `few` is for environments in which the code is tried once more, not searched for faults.
settings.register_profile(
    "few", derandomize=True, deadline=None, max_examples=5, suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser) -> None:
    """Let `make faults` ask for a table of the cases tried."""
    parser.addoption("--faults-table", action="store_true", help="end with a table of fault tests")
