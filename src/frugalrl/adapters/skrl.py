"""skrl, and with it Isaac Lab: a memory that keeps only what a filter admits.

from frugalrl.adapters.skrl import FrugalMemory

memory = FrugalMemory(memory_size=10_000, num_envs=env.num_envs, device=env.device,
                      on_equivalent="replace")
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gymnasium.spaces import Box

from frugalrl.adapters.filters import make_filter, needs, refused
from frugalrl.adapters.ledger import AdmissionLedger, KeepsLedger, RowNumbers
from frugalrl.admission.protocol import AdmissionFilter

with needs("skrl", "skrl"):
    import torch
    from skrl.memories.torch import RandomMemory

    from frugalrl.adapters._tensors import rows_of, with_arrays, with_tensors


class FrugalMemory(KeepsLedger, RandomMemory):  # type: ignore[misc]
    """skrl's RandomMemory with admission: one filter and one pool for all environments.

    Each environment's transition is admitted on its own. Tensors stay on their device; the filter
    gets the observations and rewards of a step on the host, all environments at once.

    Args:
        memory_size: as in skrl: at most `memory_size * num_envs` transitions are kept.
        num_envs: number of environments.
        device: of the tensors.
        replacement: whether a batch may hold a transition twice.
        observation_key: name of the tensor that is the filter's observation.
        reward_key: name of the tensor that is the reward.
        observation_space: flat Box whose finite limits bound the filter's cells; None takes the
            limits from the warm-up.
        admission: any filter (it is copied); None keeps everything.
        eviction: what leaves a full memory, "oldest" or "random", as for `frugalrl.ReplayBuffer`.
        **filter_arguments: of a FrugalFilter instead.
    """

    def __init__(
        self,
        *,
        memory_size: int,
        num_envs: int = 1,
        device: str | torch.device | None = None,
        replacement: bool = True,
        observation_key: str = "observations",
        reward_key: str = "rewards",
        observation_space: Box | None = None,
        admission: AdmissionFilter | None = None,
        eviction: str = "oldest",
        **filter_arguments: Any,
    ) -> None:
        if filter_arguments.pop("export", False):
            raise ValueError("export=True writes rows of environments, of which there are none")
        made = make_filter(admission, filter_arguments, type(self))
        self._ledger = AdmissionLedger(memory_size * num_envs, made, observation_space, eviction)
        super().__init__(
            memory_size=memory_size, num_envs=num_envs, device=device, replacement=replacement
        )
        self._observation_key, self._reward_key = observation_key, reward_key

    def reset(self) -> None:
        """Forget every transition, and what the filter learnt from them."""
        super().reset()
        self._ledger.clear()

    def add_samples(self, **tensors: Any) -> None:
        """Offer transitions: (environments, size) tensors by name, or (size,) for a single one.

        As in skrl, tensors that were not created are passed over.

        Raises:
            ValueError: the observation or the reward is missing, or shapes do not fit.
        """
        rows = {
            name: tensor if tensor.ndim > 1 else tensor.reshape(1, -1)
            for name, tensor in tensors.items()
            if tensor is not None and name in self.tensors
        }
        for key in (self._observation_key, self._reward_key):
            if key not in rows:
                raise ValueError(
                    f"the samples have no {key!r} that was created; there are "
                    f"{', '.join(sorted(rows)) or 'none'}. Name yours with observation_key= and "
                    "reward_key="
                )
        count = len(rows[self._observation_key])
        wrong = {name: tuple(row.shape) for name, row in rows.items() if len(row) != count}
        reward_shape = tuple(rows[self._reward_key].shape)
        if wrong or reward_shape != (count, 1):
            raise ValueError(
                f"{count} observations, but {wrong or {self._reward_key: reward_shape}}"
            )
        self._ledger.offer(
            rows_of(rows[self._observation_key]),
            rows_of(rows[self._reward_key])[:, 0],
            partial(self._copy, rows),
            partial(self._copy, self.tensors_view),
            torch.stack([_is_finite(row) for row in rows.values()]).all(dim=0).numpy(),
        )
        self._count()

    def _copy(
        self, tensors: Mapping[str, torch.Tensor], rows: RowNumbers, positions: RowNumbers
    ) -> None:
        """Copy rows of tensors to positions of the memory."""
        source = torch.as_tensor(rows, device=self.device)
        target = torch.as_tensor(positions, device=self.device)
        for name, tensor in tensors.items():
            view = self.tensors_view[name]
            view[target] = tensor.to(self.device)[source].to(view.dtype)

    def _count(self) -> None:
        """Keep the numbers by which skrl knows how full a memory is."""
        self.filled = len(self._ledger) == self._ledger.capacity
        self.memory_index, self.env_index = divmod(len(self._ledger), self.num_envs)

    def sample(
        self, names: list[str], *, batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[list[torch.Tensor]]:
        """Draw a batch uniformly from what is stored.

        Raises:
            ValueError: nothing is stored.
            NotImplementedError: sequences are asked for.
        """
        if sequence_length > 1:
            raise NotImplementedError(
                f"sequence_length={sequence_length} needs the neighbours of a transition in time, "
                "which admission may have dropped; use sequence_length=1"
            )
        if not len(self):
            raise ValueError("the memory is empty; add samples before sampling")
        return list(super().sample(names, batch_size=batch_size, mini_batches=mini_batches))

    sample_all = refused(
        "sample_all reads whole rollouts in order, of which admission may have dropped steps; "
        "FrugalMemory is for off-policy agents, which use sample"
    )

    def state_dict(self) -> dict[str, Any]:
        """Return what is stored and the filter's state, as tensors and plain values."""
        held = {name: view[: len(self)].clone() for name, view in self.tensors_view.items()}
        return {"ledger": with_tensors(self._ledger.state_dict()), "tensors": held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a memory of the same size, tensors and kind of filter.

        Raises:
            ValueError: the state is of another size, filter or other tensors.
        """
        if set(state["tensors"]) != set(self.tensors):
            raise ValueError(
                f"the state has tensors {sorted(state['tensors'])}, this memory "
                f"{self.get_tensor_names()}; create the same first"
            )
        count = len(state["ledger"]["positions"])
        for name, values in state["tensors"].items():
            if values.shape != (count, *self.tensors_view[name].shape[1:]):
                raise ValueError(
                    f"the state's {name!r} has shape {tuple(values.shape)}; expected {count} rows "
                    f"of {tuple(self.tensors_view[name].shape[1:])}"
                )
        self._ledger.load_state_dict(with_arrays(state["ledger"]))
        for name, values in state["tensors"].items():
            self.tensors_view[name][:count] = values.to(self.device)
        self._count()


def _is_finite(rows: torch.Tensor) -> torch.Tensor:
    """Tell which rows hold no NaN or infinity."""
    return rows.isfinite().reshape(len(rows), -1).all(dim=1).cpu()
