"""Stable-Baselines3, SBX and sb3-contrib: a replay buffer class and a logging callback.

from stable_baselines3 import SAC
from frugalrl.adapters.sb3 import FrugalReplayBuffer

model = SAC("MlpPolicy", "Hopper-v5", replay_buffer_class=FrugalReplayBuffer,
            replay_buffer_kwargs=dict(on_equivalent="replace"))
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from frugalrl.adapters.filters import needs
from frugalrl.checks import warn_caller

with needs("Stable-Baselines3", "sb3"):
    import torch
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.preprocessing import get_obs_shape
    from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
    from stable_baselines3.common.utils import get_device
    from stable_baselines3.common.vec_env import VecNormalize

    from frugalrl.adapters.torch import ReplayBuffer as FrugalTorchBuffer

_HER_ARGUMENTS = frozenset({"n_sampled_goal", "goal_selection_strategy", "copy_info_dict", "env"})
_NO_HER = (
    "hindsight experience replay needs the neighbours of a transition in time, which admission may "
    "have dropped; use HerReplayBuffer on its own, or FrugalReplayBuffer without its arguments"
)


class FrugalReplayBuffer(FrugalTorchBuffer, ReplayBuffer):  # type: ignore[misc, override]
    """Stable-Baselines3's replay buffer with admission; for Box and Dict observations alike.

    Each environment's transition is admitted on its own. Transitions live in Frugal's storage,
    which grows with what is kept. Actions and observations are stored as Stable-Baselines3 hands
    them over: scaled actions, unnormalised observations; samples are normalised by VecNormalize.

    Stable-Baselines3 gives the named arguments by itself, the others are `replay_buffer_kwargs`;
    all are those of `frugalrl.adapters.torch.ReplayBuffer`.

    Args:
        buffer_size: most transitions held, of all environments.
        observation_space: of the environment.
        action_space: of the environment.
        device: of the tensors that are drawn.
        n_envs: environments that step together.
        optimize_memory_usage: has no effect: states that neighbours share are stored once anyway.
        handle_timeout_termination: whether a time limit is told from an end.
        **arguments: `admission`, `eviction`, `dtype`, `observation_key` and FrugalFilter's
            arguments; `n_steps` and `gamma` are the algorithm's own unless given here.

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
        **arguments: Any,
    ) -> None:
        if _HER_ARGUMENTS & set(arguments):
            raise ValueError(_NO_HER)
        algorithm = self._caller()
        for name in ("n_steps", "gamma"):
            if hasattr(algorithm, name):
                arguments.setdefault(name, getattr(algorithm, name))
        # Stable-Baselines3's own constructor would allocate all rows at once.
        FrugalTorchBuffer.__init__(
            self, buffer_size, observation_space, action_space, get_device(device), n_envs,
            optimize_memory_usage, handle_timeout_termination, **arguments,
        )  # fmt: skip
        self.obs_shape: Any = get_obs_shape(self.observation_space)
        if algorithm is not None:
            # Otherwise a second `learn` would mark the last row as an episode's end.
            algorithm.optimize_memory_usage = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Refuse hindsight by inheritance, in whatever order the classes stand."""
        if issubclass(cls, HerReplayBuffer):
            raise TypeError(f"{cls.__name__}: {_NO_HER}")
        super().__init_subclass__(**arguments)

    def _caller(self) -> OffPolicyAlgorithm | None:
        """Find the algorithm that builds this buffer.

        Stable-Baselines3 does not hand `n_steps` to a buffer class that it was given: without this
        whoever asks for n-step returns would silently get one-step returns.
        """
        frame = sys._getframe(1)
        while frame is not None and frame.f_locals.get("self") is self:
            frame = frame.f_back  # type: ignore[assignment]
        owner = None if frame is None else frame.f_locals.get("self")
        return owner if isinstance(owner, OffPolicyAlgorithm) else None

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Draw a batch, normalised by `env` if there is one."""
        return self._get_samples(self._draw(batch_size), env=env)

    def _get_samples(self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None) -> Any:
        """Gather slots into Stable-Baselines3's tuple of tensors."""
        batch = self._gather(batch_inds)
        if env is not None:
            batch = batch._replace(
                observations=self._normalize_obs(batch.observations, env),
                next_observations=self._normalize_obs(batch.next_observations, env),
                rewards=self._normalize_reward(batch.rewards, env),
            )
        kind = DictReplayBufferSamples if self._layout.is_dict else ReplayBufferSamples
        return kind(**{name: self._tensors(value) for name, value in batch._asdict().items()})

    def fill(self, plain: ReplayBuffer) -> None:
        """Offer everything that a plain buffer of Stable-Baselines3 holds, oldest first.

        Args:
            plain: a ReplayBuffer or DictReplayBuffer for the same spaces and as many environments,
                for instance from `stable_baselines3.common.save_util.load_from_pkl(path)`.

        Raises:
            ValueError: the buffers do not fit together.
        """
        for name in ("observation_space", "action_space", "n_envs"):
            if getattr(plain, name) != getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(plain, name)} there and {getattr(self, name)} here; "
                    "the buffers must be alike"
                )
        if isinstance(plain, FrugalReplayBuffer) or not hasattr(plain, "observations"):
            raise ValueError(f"{type(plain).__name__} is no plain buffer of Stable-Baselines3")
        if plain.optimize_memory_usage:
            raise ValueError("a buffer with optimize_memory_usage=True cannot be read row by row")
        rows = np.arange(plain.buffer_size if plain.full else plain.pos)
        for row in np.roll(rows, -plain.pos):
            done = plain.dones[row]
            infos = [{"TimeLimit.truncated": bool(cut)} for cut in plain.timeouts[row] * done]
            obs, next_obs = _row(plain.observations, row), _row(plain.next_observations, row)
            self.add(obs, next_obs, plain.actions[row], plain.rewards[row], done, infos)


def _row(arrays: Any, row: Any) -> Any:
    """Give one row of every environment, of arrays or a dict of them."""
    if isinstance(arrays, dict):
        return {key: array[row] for key, array in arrays.items()}
    return arrays[row]


class FrugalCallback(BaseCallback):
    """Logs what became of the offered transitions, under `buffer/`, with every dump of the log.

    Says at the start of training when the filter's warm-up is longer than the training.

    Args:
        verbose: as in Stable-Baselines3.
    """

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, FrugalReplayBuffer):
            raise ValueError(
                "FrugalCallback needs a model made with replay_buffer_class=FrugalReplayBuffer, "
                f"this one has {type(buffer).__name__}; a plain buffer that was loaded can be "
                "offered to a frugal one with FrugalReplayBuffer.fill"
            )
        settings = getattr(buffer.admission, "settings", None)
        warmup = getattr(settings, "warmup_steps", 0)
        offered = buffer.stats.offered + self.locals["total_timesteps"] - self.num_timesteps
        if offered < warmup and not getattr(buffer.admission, "is_fitted", True):
            warn_caller(
                f"the filter's warm-up takes {warmup:,} steps and this training ends before it, so "
                "everything is stored and nothing filtered; lower warmup_steps in "
                "replay_buffer_kwargs or train for longer",
                UserWarning,
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
        for name, count in asdict(buffer.stats).items():
            self.logger.record(f"buffer/{name}", count)
        self.logger.record("buffer/size", len(buffer))
        self.logger.record("buffer/bytes", buffer.nbytes)
        self.logger.record("buffer/filter_bytes", buffer.admission.nbytes)
