"""Starting from what is there already: a policy, a buffer, somebody's data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.agents.agent import Agent
from frugalrl.agents.policy import ActionScale
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.state_io import load_state
from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.evaluation import load_policy
from frugalrl.training.run_directory import KIND, VERSION, RunDirectory

_NETWORKS = ("actor", "actor_target", "critics", "targets", "ent_coef")

# The names that datasets have for the same array, the usual one first.
_NAMES = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_observations": ("next_observations",),
    "terminated": ("terminated", "terminations", "terminals"),
    "truncated": ("truncated", "truncations", "timeouts"),
}


def start_from(config: TrainConfig, agent: Agent, buffer: ReplayBuffer) -> list[str]:
    """Take over what a configuration says to begin with; gives lines about it for the user.

    Raises:
        ConfigError: it does not fit.
        RunDirectoryError: it is not there.
    """
    for name in ("init_policy", "init_buffer"):
        source = getattr(config, name)
        if isinstance(source, (str, os.PathLike)) and not Path(source).exists():
            raise ConfigError(f"{name}={str(source)!r} does not exist")
    lines = []
    if config.init_policy is not None:
        what = _take_networks(agent, Path(config.init_policy))
        lines.append(f"starting with {what} of {config.init_policy}")
    if config.init_buffer is not None:
        offered = _offer_transitions(buffer, agent, config.init_buffer)
        lines.append(f"starting with {len(buffer):,} of {offered:,} earlier transitions")
    return lines


def _take_networks(agent: Agent, path: Path) -> str:
    """Give an agent the networks of an earlier run, to new optimizers; says which they are.

    Of a run directory actor and critics are taken; a policy file has the actor alone.
    """
    state = agent.state_dict()
    learner = state["learner"]
    directory, run = RunDirectory(path), None
    if directory.state.is_file():
        run = load_state(directory.state, kind=KIND, version=VERSION)
    elif found := directory.checkpoints.newest():
        run = found.state
    if run is None:
        saved, what = {"actor": load_policy(path).parameters}, "the actor"
    else:
        earlier = run["loop"]["agent"]["learner"]
        saved = {name: earlier[name] for name in earlier if name in _NETWORKS}
        what = "all networks"
    if "actor_target" in learner:
        saved.setdefault("actor_target", saved["actor"])
    for name, values in saved.items():
        if name not in learner or np.shape(values) != np.shape(learner[name]):
            mine = np.shape(learner[name]) if name in learner else "none"
            raise ConfigError(
                f"init_policy={str(path)!r} does not fit: its {name} has {np.shape(values)} "
                f"parameters, this run's {mine}; use the same algo, net_arch and environment"
            )
        learner[name] = np.array(values, np.float32)
    agent.load_state_dict(state)
    return what


def _offer_transitions(buffer: ReplayBuffer, agent: Agent, source: Any) -> int:
    """Offer earlier transitions to a run's buffer, in their order; gives how many.

    They come from a run directory, a saved buffer, an `.npz` file, or a mapping of arrays in the
    manner of D4RL or Minari: observations, actions, rewards, terminals, timeouts, and
    next_observations, which otherwise follow from the order of the rows.
    """
    if isinstance(source, (str, os.PathLike)) and not str(source).endswith(".npz"):
        path = Path(source)
        file = path / "buffer.safetensors" if path.is_dir() else path
        if not file.is_file():
            raise RunDirectoryError(f"init_buffer={str(source)!r}: there is no {file.name}")
        held = ReplayBuffer.load(file).transitions()
        arrays = {name: np.asarray(getattr(held, name)) for name in _NAMES}
    else:
        arrays = _read_arrays(source)
        bounds = agent.policy_state()
        arrays["actions"] = ActionScale(bounds["low"], bounds["high"]).to_unit(arrays["actions"])
    rows = len(arrays["rewards"])
    for name in ("observations", "next_observations", "actions"):
        space = buffer.action_space if name == "actions" else buffer.observation_space
        if arrays[name].shape != (rows, *space.shape):
            raise ConfigError(
                f"init_buffer: {name} has shape {arrays[name].shape}, not {(rows, *space.shape)}"
            )
    for row in range(rows):
        buffer.add(*(arrays[name][row : row + 1] for name in _NAMES))
    return rows


def _read_arrays(source: Any) -> dict[str, Any]:
    """Read the arrays of a dataset under our names for them."""
    if isinstance(source, (str, os.PathLike)):
        try:
            with np.load(source, allow_pickle=False) as file:
                source = {name: file[name] for name in file.files}
        except (OSError, ValueError) as error:
            raise ConfigError(f"init_buffer={str(source)!r} cannot be read: {error}") from error
    if not isinstance(source, Mapping):
        raise ConfigError(f"init_buffer={source!r} is neither a path nor a mapping of arrays")
    spellings = [(name, other) for name, known in _NAMES.items() for other in known]
    arrays = {name: np.asarray(source[other]) for name, other in spellings if other in source}
    for name in ("observations", "actions", "rewards", "terminated"):
        if name not in arrays:
            raise ConfigError(
                f"init_buffer has no {' or '.join(_NAMES[name])}; it has {sorted(source)}"
            )
    rows, last_too = len(arrays["rewards"]), "next_observations" not in arrays
    arrays.setdefault("truncated", np.zeros(rows, bool))
    for name, values in arrays.items():
        if len(values) != rows + (last_too and name == "observations" and len(values) > rows):
            raise ConfigError(f"init_buffer: {name} has {len(values)} rows, rewards {rows}")
    kinds = {"terminated": bool, "truncated": bool}
    arrays = {name: values.astype(kinds.get(name, np.float32)) for name, values in arrays.items()}
    return _with_next_observations(arrays) if last_too else arrays


def _with_next_observations(arrays: dict[str, Any]) -> dict[str, Any]:
    """Take each row's next observation from the row after it; an episode's last row is left out.

    Where an episode ended by itself, what follows does not matter, so that row stays.
    """
    observations, terminated = arrays["observations"], arrays["terminated"]
    if len(observations) == len(terminated) + 1:
        return {**arrays, "observations": observations[:-1], "next_observations": observations[1:]}
    following = np.concatenate([observations[1:], observations[-1:]])
    following[terminated] = observations[terminated]
    keep = ~arrays["truncated"] | terminated
    keep[-1] = terminated[-1]
    return {
        name: values[keep] for name, values in (*arrays.items(), ("next_observations", following))
    }
