"""A buffer as nested dicts of arrays and JSON values, and back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.replay.integrity import structure_is_sound
from frugalrl.replay.kernels import ACTION, CONTROL_SIZE, SLOTS_USED, STATES_USED
from frugalrl.replay.samplers import SAMPLERS, Sampler
from frugalrl.replay.spaces import same_space
from frugalrl.replay.storage import MOST_TRANSITIONS, Storage

if TYPE_CHECKING:
    from frugalrl.replay.spaces import Layout

KIND = "replay buffer"
VERSION = 1

_FILTERS = {
    "all": ("frugalrl.admission.controls", "AdmitAll"),
    "random": ("frugalrl.admission.controls", "RandomAdmit"),
    "fac": ("frugalrl.admission.frugal", "FrugalFilter"),
}


def storage_state(storage: Storage) -> dict[str, Any]:
    """Describe a storage, without its slack but with how much of it there is."""
    slots, states = int(storage.control[SLOTS_USED]), int(storage.control[STATES_USED])
    return {
        "table": storage.table[:slots].copy(),
        "pool": storage.pool[:states].copy(),
        "refs": storage.refs[:states].copy(),
        "last": storage.last.copy(),
        "control": storage.control.copy(),
        # The next growth, and with a byte limit the next eviction, depends on these.
        "slots_allocated": len(storage.table),
        "states_allocated": len(storage.refs),
    }


def restore_storage(state: dict[str, Any], layout: Layout, capacity: int) -> Storage:
    """Make the storage that `storage_state` described.

    Raises:
        ValueError: the arrays contradict each other, and using them could crash.
    """
    storage = Storage(layout, capacity, 1)
    table = _array(state, "table", storage.table.dtype, (None, ACTION + layout.action_words))
    pool = _array(state, "pool", storage.pool.dtype, (None, layout.width))
    refs = _array(state, "refs", storage.refs.dtype, (len(pool),))
    storage.last = _array(state, "last", storage.last.dtype, (None,)).copy()
    storage.control = _array(state, "control", storage.control.dtype, (CONTROL_SIZE,)).copy()
    if storage.control[SLOTS_USED] != len(table) or storage.control[STATES_USED] != len(pool):
        raise ValueError("the counters do not fit the arrays")
    if not structure_is_sound(table, refs, storage.last, storage.control, capacity):
        raise ValueError("the links between the transitions are broken")
    slots, states = int(state["slots_allocated"]), int(state["states_allocated"])
    if not (len(table) <= slots <= capacity and len(pool) <= states <= 2 * MOST_TRANSITIONS):
        raise ValueError(f"{slots} slots and {states} states cannot have been allocated")
    storage.resize_slots(slots)
    storage.pool.resize((states, layout.width), refcheck=False)
    storage.refs.resize(states, refcheck=False)
    storage.table[: len(table)] = table
    storage.pool[: len(pool)] = pool
    storage.refs[: len(refs)] = refs
    return storage


def _array(
    state: dict[str, Any], name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """Give an array of the state, checked."""
    array = state[name]
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape)
    if not fits or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(f"{name} is not an array of {dtype} with shape {shape}")
    return np.ascontiguousarray(array)


def filter_state(admission: AdmissionFilter) -> dict[str, Any]:
    """Describe a filter by its name and state."""
    return {"name": admission.name, "state": admission.state_dict()}


def restore_filter(saved: dict[str, Any], made_by: Any, storage: Storage) -> AdmissionFilter:
    """Make a filter from its name and state, for what is stored.

    Args:
        saved: as `filter_state` gave it.
        made_by: the filter's class, or a function of its state; None for this library's filters.
        storage: holds what the filter decided about.
    """
    name = saved["name"]
    if made_by is None:
        if name not in _FILTERS:
            raise ValueError(
                f"the filter {name!r} is not one of this library's; give its class as admission="
            )
        module, attribute = _FILTERS[name]
        made_by = getattr(import_module(module), attribute)
    known_as = getattr(made_by, "name", name)
    if isinstance(known_as, str) and known_as != name:
        raise ValueError(f"the filter was {name!r}, not {known_as!r}")
    make = getattr(made_by, "from_state_dict", made_by)
    admission = make(saved["state"])
    if not isinstance(admission, AdmissionFilter):
        raise TypeError(f"admission={made_by!r} made {admission!r}, which is no filter")
    if isinstance(admission, FrugalFilter) and not admission.fits(
        storage.oldest_first(), storage.layout.width
    ):
        raise ValueError("the filter's state does not fit what is stored")
    return admission


def sampler_state(sampler: Sampler) -> dict[str, Any]:
    """Describe a sampler by its name and state."""
    return {"name": sampler.name, "state": sampler.state_dict()}


def restore_sampler(saved: dict[str, Any], made_by: Any, storage: Storage) -> Sampler:
    """Make a sampler from its name and state, for what is stored."""
    name = saved["name"]
    if made_by is None and name not in SAMPLERS:
        raise ValueError(
            f"the sampler {name!r} is not one of this library's; give its class as sampler="
        )
    sampler: Sampler = (made_by or SAMPLERS[name]).from_state_dict(saved["state"])
    if not sampler.fits(storage.oldest_first(), len(storage.table)):
        raise ValueError("the sampler's state does not fit what is stored")
    return sampler


def check_space(name: str, wanted: Any, found: Any) -> None:
    """Raise unless the space found in a file is the wanted one; None wants nothing."""
    if wanted is None:
        return
    try:
        same = same_space(wanted, found)
    except TypeError:
        same = False
    if not same:
        raise ValueError(f"it was saved with {name}={found!r}, which is not {wanted!r}")
