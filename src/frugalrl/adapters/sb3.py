"""Stable-Baselines3, SBX and sb3-contrib: a replay buffer class and a logging callback.

from stable_baselines3 import SAC
from frugalrl.adapters.sb3 import FrugalReplayBuffer

model = SAC("MlpPolicy", "Hopper-v5", replay_buffer_class=FrugalReplayBuffer,
            replay_buffer_kwargs=dict(on_equivalent="replace"))
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from frugalrl.adapters._filters import make_filter
from frugalrl.adapters._install import install_hint
from frugalrl.adapters._observations import FlatObservations
from frugalrl.admission.controls import AdmitAll
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.replay.buffer import ReplayBuffer as Replay
from frugalrl.replay.results import Batch, BufferStats

try:
    import torch
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.type_aliases import (
        DictReplayBufferSamples,
        ReplayBufferSamples,
    )
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as error:
    raise install_hint("frugalrl.adapters.sb3", "Stable-Baselines3", "sb3", error) from error

_HER_ARGUMENTS = frozenset({"n_sampled_goal", "goal_selection_strategy", "copy_info_dict", "env"})
_ROWS = frozenset({"observations", "next_observations", "actions", "rewards", "dones", "timeouts"})


class FrugalReplayBuffer(ReplayBuffer):
    """Stable-Baselines3's replay buffer with admission; for Box and Dict observations alike.

    Each environment's transition is admitted on its own. Transitions live in Frugal's storage,
    which grows with what is kept. Actions and observations are stored as Stable-Baselines3 hands
    them over: scaled actions, unnormalised observations; samples are normalised by VecNormalize.

    Args:
        buffer_size: number of transitions kept at most.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these; the
            filter sees the flattened observation.
        action_space: as Stable-Baselines3 gives it.
        device: of the sampled tensors.
        n_envs: number of environments.
        optimize_memory_usage: refused, it needs neighbouring transitions.
        handle_timeout_termination: bootstrap through time limits.
        admission: any filter (it is copied); None for a FrugalFilter.
        dtype: of the stored observations: "float32", "float16", or "float64" with AdmitAll. None is
            float64 for AdmitAll on a float64 space, so that the run is the plain one to the bit
            under VecNormalize too, and float32 otherwise.
        **filter_arguments: FrugalFilter's arguments, for instance `on_equivalent="discard"`.

    Raises:
        ValueError: something was asked for that needs neighbouring transitions.
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
        dtype: str | None = None,
        **filter_arguments: Any,
    ) -> None:
        self._refuse_neighbours(optimize_memory_usage, filter_arguments)
        # ReplayBuffer's own constructor would allocate all rows at once.
        super(ReplayBuffer, self).__init__(
            buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        made = make_filter(admission, filter_arguments)
        self._layout = self._lay_out(observation_space, made, dtype)
        self._replay = Replay(
            self.buffer_size * n_envs,
            observation_space=self._layout.space,
            action_space=action_space,
            admission=made,
            dtype="float32" if dtype in (None, "float64") else dtype,
            environments=n_envs,
        )
        self._empty_state = self._replay.state_dict()

    @staticmethod
    def _lay_out(
        space: spaces.Space[Any], admission: AdmissionFilter, dtype: str | None
    ) -> FlatObservations:
        """Choose how observations become rows of float32."""
        layout = FlatObservations(space)
        blind = isinstance(admission, AdmitAll)
        if dtype == "float64" and not blind:
            raise ValueError(
                'dtype="float64" goes with frugalrl.AdmitAll() alone; use "float32" or "float16"'
            )
        if dtype == "float64" or (dtype is None and blind and layout.is_double):
            return FlatObservations(space, exact=True)
        return layout

    def _refuse_neighbours(self, optimize_memory_usage: bool, arguments: dict[str, Any]) -> None:
        """Refuse what reads the transition before or after another: it may not have been kept."""
        reason = "needs the neighbours of a transition in time, which admission may have dropped"
        if optimize_memory_usage:
            raise ValueError(
                f"optimize_memory_usage=True {reason}; leave it out: FrugalReplayBuffer already "
                "stores a state that two transitions share only once"
            )
        n_steps = arguments.get("n_steps", self._callers_n_steps())
        if n_steps != 1:
            raise ValueError(f"n_steps={n_steps} {reason}; use n_steps=1")
        for name in ("n_steps", "gamma"):  # one step is what is done anyway
            arguments.pop(name, None)
        if isinstance(self, HerReplayBuffer) or _HER_ARGUMENTS & set(arguments):
            raise ValueError(
                f"hindsight experience replay {reason}; use HerReplayBuffer on its own, or "
                "FrugalReplayBuffer without its arguments"
            )

    def _callers_n_steps(self) -> int:
        """Look up `n_steps` of the algorithm that builds this buffer.

        Stable-Baselines3 does not hand `n_steps` to a buffer class it was given, it ignores it:
        asking for n-step returns and silently getting one-step returns helps nobody.
        """
        frame = sys._getframe(1)
        while frame is not None and frame.f_locals.get("self") is self:
            frame = frame.f_back  # type: ignore[assignment]
        owner = None if frame is None else frame.f_locals.get("self")
        return int(getattr(owner, "n_steps", 1)) if isinstance(owner, OffPolicyAlgorithm) else 1

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Offer one transition of every environment."""
        done = np.asarray(done, dtype=np.bool_)
        timeout = np.zeros_like(done)
        if self.handle_timeout_termination and done.any():
            timeout = np.array([info.get("TimeLimit.truncated", False) for info in infos], np.bool_)
        self._replay.add(
            self._layout.flatten(obs),
            action.reshape(self.n_envs, *self.action_space.shape),  # type: ignore[misc]
            np.asarray(reward, dtype=np.float64),  # the type that needs no second look
            self._layout.flatten(next_obs),
            done & ~timeout,
            done & timeout,
        )
        self._count()

    def _count(self) -> None:
        """Keep the two numbers by which Stable-Baselines3 knows how full a buffer is."""
        self.pos = len(self._replay)
        self.full = self.pos == self._replay.capacity

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Draw a batch, normalised by `env` if there is one."""
        return self._get_samples(self._draw(batch_size), env=env)

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """Draw slots from NumPy's global generator, which Stable-Baselines3 seeds and draws from.

        As long as everything offered was stored, the calls are Stable-Baselines3's own (a row,
        then an environment), so that a run with AdmitAll is the plain run to the bit. Otherwise
        there are no rows, and one uniform draw among the stored transitions takes their place.
        """
        stored, stats = len(self._replay), self._replay.stats
        if stored == 0:
            raise ValueError("the buffer is empty: every transition so far was refused")
        if stats.stored == stats.offered and stored % self.n_envs == 0:
            rows = np.random.randint(0, stored // self.n_envs, size=batch_size)  # noqa: NPY002
            envs = np.random.randint(0, high=self.n_envs, size=batch_size)  # noqa: NPY002
            return np.asarray(rows * self.n_envs + envs)
        drawn = np.random.randint(0, stored, size=batch_size)  # noqa: NPY002
        return self._replay.slots()[drawn] if self._replay.has_gaps else drawn

    def _get_samples(self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None) -> Any:
        """Gather slots into Stable-Baselines3's tuple of tensors."""
        batch = self._replay.gather(batch_inds)
        observations = self._normalize_obs(self._layout.unflatten(batch.observations), env)
        following = self._normalize_obs(self._layout.unflatten(batch.next_observations), env)
        rewards = self._normalize_reward(batch.rewards.reshape(-1, 1), env)
        kind = DictReplayBufferSamples if self._layout.is_dict else ReplayBufferSamples
        return kind(
            observations=self._tensors(observations),
            actions=self._tensors(batch.actions.reshape(-1, self.action_dim)),
            next_observations=self._tensors(following),
            dones=self._tensors(batch.terminated.astype(np.float32).reshape(-1, 1)),
            rewards=self._tensors(rewards),
        )

    def _tensors(self, arrays: Any) -> Any:
        """Move freshly gathered arrays to the device; on the CPU they need no second copy."""
        if isinstance(arrays, dict):
            return {key: self.to_torch(array, copy=False) for key, array in arrays.items()}
        return self.to_torch(arrays, copy=False)

    def __len__(self) -> int:
        return len(self._replay)

    def size(self) -> int:
        """Return the number of stored transitions."""
        return len(self._replay)

    def reset(self) -> None:
        """Forget every transition, and what the filter learnt from them."""
        self._replay = Replay.from_state_dict(self._empty_state, type(self.admission))
        self._count()

    @property
    def admission(self) -> AdmissionFilter:
        """The filter in use."""
        return self._replay.admission

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return self._replay.stats

    @property
    def nbytes(self) -> int:
        """Bytes of the stored transitions and of the filter's state."""
        return self._replay.nbytes

    def transitions(self) -> Batch:
        """Return everything stored, oldest first, observations flattened."""
        return self._replay.transitions()

    def save(self, path: str | Path) -> None:
        """Write transitions and filter to a file, without pickle (safetensors and JSON)."""
        self._replay.save(path)

    def load(self, path: str | Path) -> None:
        """Go on from a file that `save` wrote for the same spaces."""
        self._replay = Replay.load(
            path, self._layout.space, self.action_space, type(self.admission)
        )
        self._count()

    def __getstate__(self) -> dict[str, Any]:
        # `save_replay_buffer` pickles: give it arrays and JSON values instead of live objects.
        state = dict(self.__dict__)
        state["_replay"] = (self._replay.state_dict(), type(self.admission))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._replay = Replay.from_state_dict(*state["_replay"])

    def __getattr__(self, name: str) -> Any:
        if name in _ROWS:
            raise AttributeError(
                f"FrugalReplayBuffer has no {name!r} by row and environment, because not every "
                "transition is kept; transitions() returns those that are"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class FrugalCallback(BaseCallback):
    """Logs what became of the offered transitions, under `frugal/`, with every dump of the log.

    Args:
        verbose: as in Stable-Baselines3.
    """

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, FrugalReplayBuffer):
            raise ValueError(
                "FrugalCallback needs a model made with replay_buffer_class=FrugalReplayBuffer, "
                f"this one has {type(buffer).__name__}"
            )

    def _on_step(self) -> bool:
        # The log is dumped where episodes end, and nowhere else.
        if np.any(self.locals.get("dones", True)):
            self._record()
        return True

    def _on_training_end(self) -> None:
        self._record()

    def _record(self) -> None:
        buffer = self.model.replay_buffer  # type: ignore[attr-defined]
        for name in ("offered", "stored", "replaced", "dropped", "evicted", "acceptance_rate"):
            self.logger.record(f"frugal/{name}", getattr(buffer.stats, name))
        self.logger.record("frugal/transitions", len(buffer))
        self.logger.record("frugal/bytes", buffer.nbytes)
