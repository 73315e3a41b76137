"""PyTorch scripts, CleanRL's above all: a buffer with their signature, and tensors out.

from frugalrl.adapters.torch import ReplayBuffer  # was: from cleanrl_utils.buffers import ...

rb = ReplayBuffer(1_000_000, envs.single_observation_space, envs.single_action_space, device,
                  handle_timeout_termination=False)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from frugalrl import AdmitAll, RandomAdmit
from frugalrl.adapters.filters import ReadsColumns, make_filter, needs
from frugalrl.adapters.observations import FlatObservations
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.checks import check_choice, integer_from, warn_caller
from frugalrl.replay.buffer import KIND, VERSION
from frugalrl.replay.buffer import ReplayBuffer as Replay
from frugalrl.replay.n_step import NStepReturns, NStepTransitions
from frugalrl.replay.results import Batch, BufferStats
from frugalrl.state_io import load_state, save_state

with needs("PyTorch", "torch"):
    import torch

_ROWS = frozenset({"observations", "next_observations", "actions", "rewards", "dones", "timeouts"})
_ALIKE = ("capacity", "dtype", "n_envs", "n_steps", "gamma", "extra_fields", "eviction")
"""What a file and the buffer that loads it must have in common."""


_ONE_DICT = (
    "handle_timeout_termination=True reads infos[i]['TimeLimit.truncated'] of one dict for each "
    "environment, but infos is one dict for all, as Gymnasium's vector environments give it; use "
    "handle_timeout_termination=False and pass `terminations` as done"
)


class ReplayBufferSamples(NamedTuple):
    """A batch of transitions, with the shapes of CleanRL and Stable-Baselines3."""

    observations: Any
    """(B, ...); a dict of tensors for Dict observations."""
    actions: Any
    """(B, action dimensions)."""
    next_observations: Any
    """(B, ...), likewise."""
    dones: Any
    """(B, 1) 1.0 where the episode ended by itself, which masks the bootstrap."""
    rewards: Any
    """(B, 1), the discounted sum over the steps of an n-step transition."""
    discounts: Any = None
    """(B, 1) the weight of the bootstrap for n-step returns; None for single steps."""


class ReplayBuffer:
    """A replay buffer with admission that takes and gives what CleanRL's does.

    Each environment's transition is admitted on its own. Transitions live in Frugal's storage,
    which grows with what is kept, and a state that two transitions share is stored once.

    Args:
        buffer_size: number of transitions kept at most, over all environments.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these; the
            filter sees the flattened observation without its images.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        device: of the sampled tensors; "auto" is a GPU where there is one.
        n_envs: number of environments.
        optimize_memory_usage: accepted and needless: shared states are stored once anyway.
        handle_timeout_termination: bootstrap through time limits, told by each environment's
            `infos[i]["TimeLimit.truncated"]`.
        admission: any filter (it is copied); None keeps everything.
        eviction: what leaves a full buffer, "oldest" or "random", as for `frugalrl.ReplayBuffer`.
        dtype: of the stored observations: "float32", "float16", or "float64" with AdmitAll. None is
            float64 for AdmitAll on a float64 space, so that the run is the plain one to the bit
            under VecNormalize too, and float32 otherwise.
        n_steps: steps of a transition; returns over several are computed before admission.
        gamma: discount factor of n-step returns.
        observation_key: of Dict observations, the key or keys that the filter reads; None for all
            that are no images. Every key is stored.
        **filter_arguments: of a FrugalFilter instead, for instance `on_equivalent="discard"`.

    Raises:
        ValueError: an argument is out of its range, or the filter would have nothing to read.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        admission: AdmissionFilter | None = None,
        eviction: str = "oldest",
        dtype: str | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        observation_key: str | Sequence[str] | None = None,
        **filter_arguments: Any,
    ) -> None:
        self.n_envs = integer_from("n_envs", n_envs, 1)
        self.buffer_size = max(integer_from("buffer_size", buffer_size, 1) // self.n_envs, 1)
        self.observation_space = observation_space
        self.action_space = action_space
        self.action_dim = int(np.prod(action_space.shape or ()))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        made = make_filter(admission, filter_arguments, type(self))
        if dtype is not None:
            check_choice("dtype", dtype, ("float32", "float16", "float64"))
        is_exact = isinstance(made, AdmitAll) and dtype in (None, "float64")
        if dtype == "float64" and not is_exact:
            raise ValueError(
                'dtype="float64" goes with frugalrl.AdmitAll() alone; use "float32" or "float16"'
            )
        self._layout = FlatObservations(
            observation_space, is_exact, observation_key, half=dtype == "float16"
        )
        self._restore_filter: Any = type(made)
        if self._reads_columns(made):
            made = ReadsColumns(made, self._layout.columns)
            self._restore_filter = partial(ReadsColumns.from_state_dict, inner=self._restore_filter)
        self.n_steps, self.gamma = n_steps, gamma
        self._n_step = NStepReturns(n_steps, gamma, self.n_envs) if n_steps != 1 else None
        self._replay = Replay(
            self.buffer_size * self.n_envs,
            observation_space=self._layout.space,
            action_space=action_space,
            admission=made,
            dtype="float32" if dtype in (None, "float64") else dtype,
            environments=self.n_envs,
            eviction=eviction,
            extra_fields=() if self._n_step is None else (("discounts", (), "float32"),),
        )
        self._empty_state = self._state()

    def _reads_columns(self, admission: AdmissionFilter) -> bool:
        """Tell whether a filter reads some columns of the observations alone."""
        columns, space = self._layout.columns, self.observation_space
        if isinstance(admission, AdmitAll | RandomAdmit):
            return False
        if not len(columns):
            raise ValueError(
                f"observation_space is {space}: nothing but images, while important dimensions and "
                "cells are made for state vectors; encode images into features, add a vector to "
                "the observation, or use frugalrl.AdmitAll() or RandomAdmit(...)"
            )
        return len(columns) < self._layout.space.shape[0]

    # --- transitions in ------------------------------------------------------------------------

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: Any,
    ) -> None:
        """Offer one transition of every environment.

        Args:
            obs: (n_envs, ...), or a dict of these.
            next_obs: (n_envs, ...), the true ones: never a reset's after a time limit.
            action: (n_envs, ...).
            reward: (n_envs,).
            done: (n_envs,) whether the episode is over.
            infos: one dict for each environment; read for `handle_timeout_termination` alone.
        """
        done = np.asarray(done, dtype=np.bool_).reshape(-1)
        if len(done) != self.n_envs:
            raise ValueError(
                f"done is that of {len(done)} environments, but the buffer was made with n_envs="
                f"{self.n_envs}; make one with n_envs={len(done)}"
            )
        action, of_one = np.asarray(action), self.action_space.shape
        if action.size != self.n_envs * self.action_dim:
            raise ValueError(
                f"action has shape {action.shape}; expected (n_envs, *{of_one}) with n_envs="
                f"{self.n_envs}. The buffer's spaces are those of one environment, such as "
                "envs.single_action_space"
            )
        timeout = np.zeros_like(done)
        if self.handle_timeout_termination:
            if isinstance(infos, dict):
                raise TypeError(_ONE_DICT)
            # Without an end a time limit matters to returns over several steps alone.
            if done.any() or self._n_step is not None:
                limits = [info.get("TimeLimit.truncated", False) for info in infos]
                timeout = np.array(limits, np.bool_)
        step = (
            self._layout.flatten(obs),
            action.reshape(self.n_envs, *of_one),  # type: ignore[misc]
            np.asarray(reward, dtype=np.float64),  # the type that needs no second look
            self._layout.flatten(next_obs),
            done & ~timeout,
            timeout,
        )
        if self._n_step is None:
            self._replay.add(*step)
        else:
            self._offer_n_step(self._n_step.add(*step))

    def _offer_n_step(self, made: NStepTransitions | None) -> None:
        """Offer transitions over n steps, if there are any."""
        if made is not None and len(made.discounts):
            *transition, discounts = made
            self._replay.add(*transition, discounts=discounts)

    # --- transitions out -----------------------------------------------------------------------

    def sample(self, batch_size: int) -> ReplayBufferSamples:
        """Draw a batch of tensors."""
        return ReplayBufferSamples(*map(self._tensors, self._gather(self._draw(batch_size))))

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """Draw slots from NumPy's global generator, which these scripts seed and draw from.

        As long as everything offered was stored, the calls are those of CleanRL and
        Stable-Baselines3 (a row, then an environment), so that a run with AdmitAll is the plain run
        to the bit. Otherwise there are no rows, and one uniform draw among the stored transitions
        takes their place.
        """
        if not len(self._replay) and self._n_step is not None:
            # A batch is drawn before the first n-step return is known: shorter ones will do.
            self._offer_n_step(self._n_step.flush())
        stored, stats = len(self._replay), self._replay.stats
        if not stored:
            raise ValueError("the buffer is empty: nothing was added, or all of it was refused")
        if stats.stored == stats.offered and stored % self.n_envs == 0:
            rows = np.random.randint(0, stored // self.n_envs, size=batch_size)  # noqa: NPY002
            envs = np.random.randint(0, high=self.n_envs, size=batch_size)  # noqa: NPY002
            return np.asarray(rows * self.n_envs + envs)
        drawn = np.random.randint(0, stored, size=batch_size)  # noqa: NPY002
        # A filtered warm-up leaves gaps between slots.
        return np.asarray(self._replay.slots()[drawn]) if self._replay.has_gaps else drawn

    def _gather(self, slots: NDArray[np.int64]) -> ReplayBufferSamples:
        """Gather slots into a tuple of fresh arrays."""
        batch = self._replay.gather(slots)
        return ReplayBufferSamples(
            self._layout.unflatten(batch.observations),
            batch.actions.reshape(-1, self.action_dim),
            self._layout.unflatten(batch.next_observations),
            batch.terminated.astype(np.float32).reshape(-1, 1),
            batch.rewards.reshape(-1, 1),
            None if self._n_step is None else batch.extra["discounts"].reshape(-1, 1),
        )

    def _tensors(self, arrays: Any) -> Any:
        """Move freshly gathered arrays to the device; on the CPU they need no second copy."""
        if arrays is None:
            return None
        if isinstance(arrays, dict):
            return {key: self._tensors(array) for key, array in arrays.items()}
        return torch.as_tensor(arrays, device=self.device)

    def transitions(self) -> Batch:
        """Return everything stored, oldest first, observations flattened."""
        return self._replay.transitions()

    # --- looking at it -------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._replay)

    def size(self) -> int:
        """Return the number of stored transitions."""
        return len(self._replay)

    @property
    def pos(self) -> int:
        """The number of stored transitions, as others ask for it."""
        return len(self._replay)

    @property
    def full(self) -> bool:
        """Whether there is room for no more."""
        return len(self._replay) == self._replay.capacity

    @property
    def admission(self) -> AdmissionFilter:
        """The filter in use."""
        used = self._replay.admission
        return used.admission if isinstance(used, ReadsColumns) else used

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return self._replay.stats

    @property
    def eviction(self) -> str:
        """Which transition goes when the buffer is full."""
        return self._replay.eviction

    @property
    def nbytes(self) -> int:
        """Bytes of the stored transitions and of the filter's state."""
        held_back = 0 if self._n_step is None else self._n_step.nbytes
        return self._replay.nbytes + held_back

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self):,} of {self._replay.capacity:,} transitions, "
            f"{self.nbytes / 1e6:,.1f} MB, admission={self.admission!r})"
        )

    # --- emptying, files -----------------------------------------------------------------------

    def reset(self) -> None:
        """Forget every transition, and what the filter learnt from them."""
        self._go_on_with(Replay.from_state_dict(self._empty_state, self._restore_filter))

    def _go_on_with(self, replay: Replay) -> None:
        """Hold other transitions; an environment begins anew."""
        self._replay = replay
        if self._n_step is not None:
            self._n_step.clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write transitions and filter to a file, without pickle (safetensors and JSON).

        Steps that wait for their n-step return are not in it: an environment begins anew.
        """
        save_state(path, self._state(), KIND, VERSION)

    def _state(self) -> dict[str, Any]:
        """Give the storage's state, and which steps its transitions are made of."""
        gamma = None if self.n_steps == 1 else float(self.gamma)
        steps = {"n_envs": self.n_envs, "n_steps": int(self.n_steps), "gamma": gamma}
        return {**self._replay.state_dict(), **steps}

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` wrote for a buffer made with the same arguments.

        Raises:
            StateFileError: the file is missing, damaged, or for other spaces.
            ValueError: it is a pickle, or of a buffer with other arguments; nothing has changed.
        """
        _refuse_pickle(path)
        ours = {**self._empty_state, "eviction": self.eviction}
        theirs = load_state(path, KIND, VERSION)
        theirs["eviction"] = "oldest" if theirs.get("victims") is None else "random"
        for name in _ALIKE:
            if name in theirs and theirs[name] != ours[name]:
                raise ValueError(
                    f"{os.fspath(path)} holds a buffer with {name} {theirs[name]!r}, this one was "
                    f"made with {ours[name]!r}; make it alike to load the file"
                )
        loaded = Replay.load(path, self._layout.space, self.action_space, self._restore_filter)
        used = repr(self.admission)
        self._go_on_with(loaded)
        if repr(self.admission) != used:
            warn_caller(
                f"{os.fspath(path)} goes on with the filter it was saved with, "
                f"{self.admission!r}, not with {used}",
                UserWarning,
            )

    def __getstate__(self) -> dict[str, Any]:
        # Trainers pickle buffers; only the buffer knows how its filter is restored.
        return {**self.__dict__, "_replay": self._replay.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._replay = Replay.from_state_dict(state["_replay"], self._restore_filter)

    def __getattr__(self, name: str) -> Any:
        if name in _ROWS:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r} by row and environment, because not every "
                "transition is kept; transitions() returns those that are"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _refuse_pickle(path: str | os.PathLike[str]) -> None:
    """Say what to do with a pickle: it could run code, so it is not opened here."""
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError:
        return  # the reader of the right format says what is wrong
    # Safetensors begins with eight bytes for a length, which may be any, and an opening brace.
    if len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5 and start[8:] != b"{":
        raise ValueError(
            f"{os.fspath(path)} is a pickle, which could run code, so `load` does not open it; "
            "for one of your own: model.load_replay_buffer(path), or "
            "buffer.fill(stable_baselines3.common.save_util.load_from_pkl(path)) for a plain "
            "Stable-Baselines3 buffer"
        )
