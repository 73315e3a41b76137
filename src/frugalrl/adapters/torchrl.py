"""TorchRL: a writer that decides what a TensorDictReplayBuffer keeps.

from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from frugalrl.adapters.torchrl import FrugalWriter

buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000), batch_size=256,
                                writer=FrugalWriter(on_equivalent="replace"))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters.filters import copy_of, make_filter, needs
from frugalrl.adapters.ledger import AdmissionLedger, KeepsLedger, RowNumbers
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.replay.storage import make_victims
from frugalrl.state_io import load_state, save_state

with needs("TorchRL", "torchrl"):
    import torch
    import torchrl.data
    from tensordict import TensorDictBase, is_tensor_collection
    from torchrl.data import PrioritizedSampler, Storage, Writer

    from frugalrl.adapters._tensors import rows_of, with_arrays, with_tensors

# Older versions lack some of these.
_READ_NEIGHBOURS = tuple(
    getattr(torchrl.data, name)
    for name in ("SliceSampler", "Sequence", "HERReplayBuffer")
    if hasattr(torchrl.data, name)
)
NestedKey = str | tuple[str, ...]
_FILE, _STATE_KIND, _STATE_VERSION = "writer.safetensors", "torchrl-writer", 3


class FrugalWriter(KeepsLedger, Writer):
    """Writes only what the filter admits, evicting when the storage is full.

    As with TorchRL's `TensorDictMaxValueWriter`, `add` returns None and `extend` -1 for a row that
    is not stored. Rows of a batch are decided one after the other, in order.

    Args:
        admission: any filter (it is copied); None keeps everything.
        observation_key: entry that is the filter's observation, or a list of entries, which are
            flattened and joined.
        reward_key: entry that is the reward.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        eviction: what leaves a full storage, "oldest" or "random", as for `frugalrl.ReplayBuffer`.
        **filter_arguments: of a FrugalFilter instead.
    """

    _moving: Any = None  # all that was held, while rows move

    def __init__(
        self,
        admission: AdmissionFilter | None = None,
        *,
        observation_key: NestedKey | list[NestedKey] = "observation",
        reward_key: NestedKey = ("next", "reward"),
        observation_space: Box | None = None,
        eviction: str = "oldest",
        **filter_arguments: Any,
    ) -> None:
        super().__init__()
        make_victims(eviction)  # refuses what there is not, long before the ledger is made
        self._given = make_filter(admission, filter_arguments, type(self))
        # A list holds several keys; a tuple is one nested key, as everywhere in TorchRL.
        self._observation_keys: list[NestedKey] = (
            observation_key if isinstance(observation_key, list) else [observation_key]
        )
        self._reward_key = reward_key
        self._space, self._eviction = observation_space, eviction
        self._write_count = 0

    def register_storage(self, storage: Storage) -> None:
        """Take over a storage, which must be one-dimensional and empty."""
        if storage.ndim > 1:
            raise ValueError(
                f"FrugalWriter decides transition by transition, but the storage has ndim="
                f"{storage.ndim}; use ndim=1 and extend the buffer with data.reshape(-1)"
            )
        if storage.max_size == torch.iinfo(torch.int64).max:
            raise ValueError("the storage has no limit; give it a max_size")
        if len(storage):
            raise ValueError(
                f"the storage already holds {len(storage)} transitions that the filter does not "
                "know; give FrugalWriter an empty one"
            )
        super().register_storage(storage)
        made = copy_of(self._given)
        self._ledger = AdmissionLedger(storage.max_size, made, self._space, self._eviction)
        self._process = os.getpid()

    def add(self, data: TensorDictBase) -> int | None:
        """Offer one transition; return its index, or None when it is not stored."""
        self._check(data, 0)
        index = int(self.extend(data.unsqueeze(0))[0])
        return index if index >= 0 else None

    def extend(self, data: TensorDictBase) -> torch.Tensor:
        """Offer transitions in order; return their indices, -1 for each that is not stored."""
        self._check(data, 1)
        self._refuse_what_cannot_work()
        parts = [rows_of(_entry(data, key)) for key in self._observation_keys]
        rewards = rows_of(_entry(data, self._reward_key))
        if rewards.shape[1] != 1:
            raise ValueError(
                f"{self._reward_key!r} holds {rewards.shape[1]} values per transition; one reward "
                "is needed"
            )
        outcome = self._ledger.offer(
            np.concatenate(parts, axis=1),
            rewards[:, 0],
            partial(self._write, data),
            self._move,
            _finite(data, self._observation_keys),
        )
        index = torch.as_tensor(outcome.slots, device=data.device)
        self._tell_samplers(index)
        return index

    @staticmethod
    def _check(data: Any, dimensions: int) -> None:
        if not is_tensor_collection(data):
            raise TypeError(
                f"FrugalWriter reads observations and rewards by key from a TensorDict, "
                f"got {type(data).__name__}"
            )
        if data.batch_dims != dimensions:
            call = "extend" if dimensions else "add"
            raise ValueError(
                f"{call} takes data with {dimensions} batch dimension(s), got batch_size="
                f"{tuple(data.batch_size)}; use extend(data.reshape(-1)) for many transitions "
                "and add for one"
            )

    def _refuse_what_cannot_work(self) -> None:
        """Refuse another process's writing, and samplers that read neighbours or old indices."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this FrugalWriter belongs to process {self._process}, and a fork of it "
                f"({os.getpid()}) tries to write: both would keep a filter of their own over one "
                "storage; let workers send their transitions to the process that made the buffer"
            )
        settings = getattr(self.admission, "settings", None)
        for buffer in self._storage._attached_entities_iter():
            # Sequences come from a sampler, or from what a drawn index is expanded into.
            for reader in (buffer.sampler, getattr(buffer, "_sample_unit", None), buffer):
                if isinstance(reader, _READ_NEIGHBOURS):
                    raise ValueError(
                        f"{type(reader).__name__} reads the neighbours of a transition in time, "
                        "and admission may have dropped them; use RandomSampler, "
                        "SamplerWithoutReplacement or PrioritizedSampler in a "
                        "TensorDictReplayBuffer of single transitions"
                    )
            if isinstance(buffer.sampler, PrioritizedSampler) and (
                getattr(settings, "warmup", "keep") == "filter"
            ):
                raise ValueError(
                    'warmup="filter" moves transitions when the warm-up ends, and priorities of '
                    'batches drawn before would go astray; use warmup="keep", the default'
                )

    def _write(self, data: TensorDictBase, rows: RowNumbers, slots: RowNumbers) -> None:
        """Write rows, telling slots that were in use from new ones, which add to the length."""
        self._write_count += len(rows)
        order = np.argsort(slots)  # a ListStorage can only be appended to
        rows, slots = rows[order], slots[order]
        fresh = slots >= len(self._storage)
        for chosen, is_new in ((~fresh, False), (fresh, True)):
            if chosen.any():
                index = torch.as_tensor(slots[chosen], device=data.device)
                chunk = data[torch.as_tensor(rows[chosen], device=data.device)]
                chunk.set("index", index)
                self._storage.set(index, chunk, set_cursor=is_new)

    def _move(self, sources: RowNumbers, targets: RowNumbers) -> None:
        """Close the gaps that the filter's choice has left, and end the storage after the last."""
        if self._moving is None:  # else an interrupt came when the storage was empty
            held = self._storage.get(torch.arange(len(self._storage)))
            self._moving = torch.stack(held) if isinstance(held, list) else held.clone()
        order = np.arange(len(self._ledger))
        order[targets] = sources
        self._storage._empty()
        for buffer in self._storage._attached_entities_iter():
            buffer.sampler._empty()
        if len(order):
            index = torch.arange(len(order))
            kept = self._moving[torch.as_tensor(order)]
            kept.set("index", index)
            self._storage.set(index, kept)
            self._tell_samplers(index)
        self._moving = None

    def _tell_samplers(self, index: torch.Tensor) -> None:
        for buffer in self._storage._attached_entities_iter():
            buffer.mark_update(index)

    def _empty(self, empty_write_count: bool = True) -> None:
        self._ledger.clear()
        self._process = os.getpid()
        if empty_write_count:
            self._write_count = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the filter's state, the ages and the counts.

        Tensors and plain values alone, so that `torch.load` reads them with its safe default.
        """
        return dict(with_tensors(self._state()))

    def _state(self) -> dict[str, Any]:
        return {"ledger": self._ledger.state_dict(), "write_count": self._write_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state of a writer with the same kind of filter and the same capacity."""
        self._ledger.load_state_dict(with_arrays(state_dict["ledger"]))
        self._write_count = int(state_dict["write_count"])

    def dumps(self, path: str | Path) -> None:
        """Write the state into a directory, beside the storage's and the sampler's."""
        Path(path).mkdir(parents=True, exist_ok=True)
        save_state(Path(path, _FILE), self._state(), _STATE_KIND, _STATE_VERSION)

    def loads(self, path: str | Path) -> None:
        """Go on from a directory that `dumps` wrote."""
        self.load_state_dict(load_state(Path(path, _FILE), _STATE_KIND, _STATE_VERSION))

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            raise RuntimeError(
                "a FrugalWriter cannot be shared between processes, because every one would keep "
                "its own filter; let workers send their transitions to one process that writes"
            )
        return dict(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy from a file has a storage of its own and belongs to whoever reads it.
        self.__dict__.update(state, _process=os.getpid())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stats})"


def _entry(data: TensorDictBase, key: NestedKey) -> torch.Tensor:
    """Look an entry up, or say which are there."""
    entry = data.get(key, None)
    if entry is None:
        there = ", ".join(repr(key) for key in data.keys(include_nested=True, leaves_only=True))
        raise KeyError(
            f"the data has no entry {key!r}; there are {there}. Name yours with observation_key= "
            "and reward_key="
        )
    return cast(torch.Tensor, entry)


def _finite(data: TensorDictBase, keys: Sequence[NestedKey]) -> NDArray[np.bool_]:
    """Tell which rows hold a finite action and finite next observations.

    Where an episode is over, TorchRL may put NaN for a next observation that the environment did
    not give, and masks it later.
    """
    nothing = torch.zeros(len(data))

    def values(key: Any) -> NDArray[Any]:
        return rows_of(data.get(key, nothing))

    is_over = values(("next", "done")).any(axis=1)
    fine = np.isfinite(values("action")).all(axis=1)
    for key in keys:
        fine &= np.isfinite(values(("next", key))).all(axis=1) | is_over
    return np.asarray(fine)
