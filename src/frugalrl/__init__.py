"""Frugal: replay buffers for little memory, with a choice of what they keep.

Everything is exported lazily, so that ``import frugalrl`` costs milliseconds and loads neither
Numba, SciPy, JAX nor Torch until a name that needs them is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frugalrl.admission.controls import AdmitAll as AdmitAll
    from frugalrl.admission.controls import RandomAdmit as RandomAdmit
    from frugalrl.admission.density_kernels import reward_density as reward_density
    from frugalrl.admission.frugal import FrugalFilter as FrugalFilter
    from frugalrl.admission.partition import important_dimensions as important_dimensions
    from frugalrl.admission.protocol import AdmissionFilter as AdmissionFilter
    from frugalrl.admission.protocol import Decisions as Decisions
    from frugalrl.admission.released import ReleasedFilter as ReleasedFilter
    from frugalrl.conformance import check_filter as check_filter
    from frugalrl.replay.buffer import ReplayBuffer as ReplayBuffer
    from frugalrl.replay.results import Batch as Batch
    from frugalrl.replay.results import BufferStats as BufferStats
    from frugalrl.replay.results import Outcome as Outcome
    from frugalrl.replay.samplers import LargeBatch as LargeBatch
    from frugalrl.replay.samplers import Prioritized as Prioritized
    from frugalrl.replay.samplers import Sampler as Sampler
    from frugalrl.replay.samplers import Uniform as Uniform
    from frugalrl.state_io import StateFileError as StateFileError
    from frugalrl.training import Callback as Callback
    from frugalrl.training import TrainConfig as TrainConfig
    from frugalrl.training import evaluate as evaluate
    from frugalrl.training import load_policy as load_policy
    from frugalrl.training import resume as resume
    from frugalrl.training import train as train

__version__ = "0.1.0"

# Where public names live; the block above says the same to type checkers and editors.
_EXPORTS = {
    "admission.controls": ("AdmitAll", "RandomAdmit"),
    "admission.density_kernels": ("reward_density",),
    "admission.frugal": ("FrugalFilter",),
    "admission.partition": ("important_dimensions",),
    "admission.protocol": ("AdmissionFilter", "Decisions"),
    "admission.released": ("ReleasedFilter",),
    "conformance": ("check_filter",),
    "replay.buffer": ("ReplayBuffer",),
    "replay.results": ("Batch", "BufferStats", "Outcome"),
    "replay.samplers": ("LargeBatch", "Prioritized", "Sampler", "Uniform"),
    "state_io": ("StateFileError",),
    "training": ("Callback", "TrainConfig", "evaluate", "load_policy", "resume", "train"),
}
_HOMES = {name: f"frugalrl.{home}" for home, names in _EXPORTS.items() for name in names}

# Third-party modules that only the training extra installs.
_TRAIN_MODULES = frozenset(
    {"filelock", "matplotlib", "plotly", "psutil", "rich", "tensorboard", "threadpoolctl", "tyro"}
)

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name from its module the first time it is used (PEP 562)."""
    home = _HOMES.get(name)
    if name in ("adapters", "training"):
        return import_module(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _TRAIN_MODULES:
            raise
        raise ImportError(
            f"frugalrl.{name} needs {missing}, which is not installed: "
            'pip install "frugalrl[train]"',
            name=missing,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported yet or not."""
    return sorted({*globals(), *__all__})
