"""What may be asked of a `FrugalFilter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from frugalrl.admission.decision import Rule
from frugalrl.admission.partition import Partition, cell_keys
from frugalrl.admission.rows import as_rows
from frugalrl.admission.warmup import warmup_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from frugalrl.admission.phi_memory import PhiMemory
    from frugalrl.admission.settings import FrugalSettings
    from frugalrl.admission.warmup import WarmUp


class Inspection:
    """The questions; `FrugalFilter` has the answers."""

    settings: FrugalSettings
    _memory: PhiMemory
    _known_bounds: tuple[NDArray[np.float64], NDArray[np.float64]]
    _partition: Partition | None
    _rule: Rule
    _warmup: WarmUp | None
    _keep: NDArray[np.int64] | None

    @property
    def is_fitted(self) -> bool:
        """Whether the warm-up is over and the partition known."""
        return self._partition is not None

    @property
    def important_dimensions_(self) -> NDArray[np.int64]:
        """The important dimensions (kappa), most important first."""
        return self._fitted_partition().dimensions.copy()

    @property
    def reward_scale_(self) -> float:
        """What rewards are divided by."""
        self._fitted_partition()
        return self._rule.reward_scale

    @property
    def bounds_(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Range of each important dimension, (low, high)."""
        partition = self._fitted_partition()
        return partition.low.copy(), partition.low + partition.width * self.settings.bins

    @property
    def cells(self) -> int:
        """Number of cells seen: those that hold a reward. 0 during the warm-up."""
        return self._memory.cells

    @property
    def stored(self) -> int:
        """Number of rewards held."""
        return self._warmup.stored if self._warmup is not None else self._memory.stored

    @property
    def nbytes(self) -> int:
        """Bytes of state; those that the warm-up is going to take are counted from the start."""
        dimensions = len(self._known_bounds[0])
        if self.is_fitted or not dimensions:
            return self._memory.nbytes
        return self._memory.nbytes + warmup_bytes(self.settings.warmup_steps, dimensions)

    def slots_held(self) -> NDArray[np.int64]:
        """Give the slots whose rewards are held, in ascending order."""
        if self._warmup is not None:
            return np.sort(self._warmup.slots[self._warmup.rows_held()])
        return self._memory.slots_held()

    def fits(self, held: NDArray[np.int64], dimensions: int) -> bool:
        """Tell whether the state, loaded from somewhere, is about these slots and dimensions."""
        if len(self._known_bounds[0]) not in (0, dimensions):
            return False
        # What the end of the warm-up has left is renumbered here before the owner hears of it.
        return self._keep is not None or np.array_equal(self.slots_held(), np.sort(held))

    def cell_counts(self) -> NDArray[np.int64]:
        """Give the number of rewards in each cell seen."""
        return self._memory.cell_counts()

    def cell_ids(self, observations: ArrayLike) -> NDArray[np.uint64]:
        """Give (n,) numbers, equal for states of (n, d) that lie in one cell."""
        states, _ = self._as_rows(observations, np.zeros(len(np.asarray(observations))))
        return cell_keys(self._fitted_partition(), states)[:, 0].copy()

    def reward_mass(self, observation: ArrayLike, reward: float) -> float:
        """Give the reward density estimate (RDE) of a reward in the cell of a state."""
        states, rewards = self._as_rows(np.asarray(observation)[None], [reward])
        partition, rule = self._fitted_partition(), self._rule
        return self._memory.density(partition, rule, states[0], rewards[0])

    def _as_rows(
        self, observations: ArrayLike, rewards: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return as_rows(observations, rewards, len(self._known_bounds[0]))

    def _fitted_partition(self) -> Partition:
        if self._partition is None:
            seen = self._warmup.filled if self._warmup is not None else 0
            raise AttributeError(
                f"not known before the warm-up ends: {seen} of {self.settings.warmup_steps} "
                "steps seen"
            )
        return self._partition
