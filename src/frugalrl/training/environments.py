"""Finding, making and checking environments, with errors that say what to do."""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from frugalrl.checks import nearest
from frugalrl.training.errors import BrokenEnvironmentError, ConfigError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

Environment = gymnasium.Env[Any, Any]

# Packages that register environments only once they are imported, by a mark in their ids.
_PLUGINS = {"Bullet": ("pybullet_envs_gymnasium", "pip install pybullet pybullet_envs_gymnasium")}
# What an environment needs, by a part of its entry point: the module, and how to get it.
_NEEDS = {
    "mujoco": ("mujoco", 'pip install "gymnasium[mujoco]"'),
    "box2d": ("Box2D", 'pip install swig && pip install "gymnasium[box2d]"'),
    "pybullet": ("pybullet", "pip install pybullet pybullet_envs_gymnasium"),
}


@dataclass(frozen=True)
class EnvironmentFactory:
    """Makes copies of one environment, in this process or another."""

    spec: EnvSpec
    kwargs: dict[str, Any] = field(default_factory=dict)

    def make(self, render_mode: str | None = None) -> Environment:
        """Make a copy.

        Raises:
            ConfigError: a package is missing, or the arguments do not fit.
        """
        arguments = dict(self.kwargs)
        if render_mode is not None:
            arguments["render_mode"] = render_mode
        try:
            with warnings.catch_warnings():
                # Asking for an older version of an environment is the user's good right.
                warnings.filterwarnings("ignore", message=".*is out of date.*")
                return gymnasium.make(self.spec, disable_env_checker=True, **arguments)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(
                f"env={self.spec.id!r} cannot be made: {error}{_install_hint(self.spec)}"
            ) from error
        except TypeError as error:
            if not self.kwargs:
                raise
            raise ConfigError(
                f"env_kwargs={self.kwargs!r} does not fit {self.spec.id}: {error}"
            ) from error


def find_environment(env_id: str, kwargs: dict[str, Any] | None = None) -> EnvironmentFactory:
    """Look an environment up by its id.

    Raises:
        ConfigError: the id is misspelled, outdated or from a package that is not installed; the
            message names the nearest match or the command that installs the package.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"env={env_id!r}: the module {module!r} cannot be imported ({error})"
            ) from error
    if name not in gymnasium.registry:
        _import_plugin(name)
    if name in gymnasium.registry and not _is_retired(gymnasium.registry[name]):
        return EnvironmentFactory(gymnasium.registry[name], kwargs or {})
    raise ConfigError(f"env={env_id!r} is no environment{_nearest(name)}")


def check_spaces(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], env_id: str
) -> tuple[spaces.Box, spaces.Box]:
    """Refuse spaces that the agents cannot learn from.

    Raises:
        ConfigError: saying which space it is, why, and what is supported.
    """
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise ConfigError(
            f"{env_id} has the observation space {observation_space}, but vectors are needed "
            "(a one-dimensional Box): wrap it in gymnasium.wrappers.FlattenObservation; "
            "images are not supported"
        )
    supported = "a one-dimensional Box with finite bounds is needed"
    if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1:
        raise ConfigError(f"{env_id} has the action space {action_space}, but {supported}")
    if not np.issubdtype(action_space.dtype, np.floating):
        raise ConfigError(
            f"{env_id} has actions of {action_space.dtype}, but {supported}, of floats"
        )
    if not (np.isfinite(action_space.low).all() and np.isfinite(action_space.high).all()):
        raise ConfigError(
            f"{env_id} has infinite action bounds ({action_space}), but {supported}: "
            "wrap it in gymnasium.wrappers.RescaleAction or give the space bounds"
        )
    flat = np.flatnonzero(action_space.low >= action_space.high)
    if len(flat):
        raise ConfigError(
            f"{env_id} has zero width in action dimension {flat[0]} (low and high are "
            f"{action_space.low[flat[0]]}): {supported}, of positive width"
        )
    return observation_space, action_space


def reset(environment: Environment, shape: tuple[int, ...], seed: int | None = None) -> Any:
    """Begin an episode and give its first observation, checked.

    Raises:
        BrokenEnvironmentError: saying what came instead.
    """
    result: Any = environment.reset() if seed is None else environment.reset(seed=seed)
    if type(result) is not tuple or len(result) != 2:
        raise BrokenEnvironmentError(
            f"{environment} gave {_shown(result)} from reset(), not (observation, info)"
        )
    _check_observation(environment, result[0], shape)
    return result[0]


def step(environment: Environment, action: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Take a step and give observation, reward, terminated, truncated and info, checked.

    Raises:
        BrokenEnvironmentError: saying what came instead.
    """
    result: Any = environment.step(action)
    if type(result) is not tuple or len(result) != 5:
        raise BrokenEnvironmentError(
            f"{environment} gave {_shown(result)} from step(), not (observation, reward, "
            "terminated, truncated, info)"
        )
    _check_observation(environment, result[0], shape)
    if type(result[1]) is not float and np.shape(result[1]) != ():
        raise BrokenEnvironmentError(f"{environment} gave the reward {result[1]!r}, not a number")
    return tuple(result)


def success(info: dict[str, Any]) -> list[float]:
    """Give whether an episode was a success, where its last info says so."""
    return [float(info["is_success"])] if "is_success" in info else []


def _check_observation(environment: Environment, value: Any, shape: tuple[int, ...]) -> None:
    if np.shape(value) != shape:
        raise BrokenEnvironmentError(
            f"{environment} gave an observation of shape {np.shape(value)}; its space says {shape}"
        )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def _import_plugin(name: str) -> None:
    for mark, (package, command) in _PLUGINS.items():
        if mark in name:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise ConfigError(
                    f"env={name!r} is in {package}, which is not installed ({error}): {command}"
                ) from error


def _is_retired(spec: EnvSpec) -> bool:
    """Whether the id is registered only to say that it moved away."""
    return "mujoco_py" in getattr(spec.entry_point, "__name__", "")


def _nearest(name: str) -> str:
    """Name the newest version of the same environment, or the id spelled most alike."""
    versions: dict[str, list[int]] = {}
    for env_id, spec in gymnasium.registry.items():
        if spec.version is not None and not _is_retired(spec):
            versions.setdefault(env_id.rpartition("-v")[0], []).append(spec.version)
    stem = re.sub(r"-v\d+$", "", name)
    if stem in versions:
        known = ", ".join(f"{stem}-v{version}" for version in sorted(versions[stem]))
        return f" of this installation; its versions are {known}"
    near = nearest(stem, versions, cutoff=0.5)
    if near is None:
        return "; `python -c 'import gymnasium; gymnasium.pprint_registry()'` lists them"
    return f"; did you mean {near}-v{max(versions[near])}?"


def _install_hint(spec: EnvSpec) -> str:
    """Name the command that installs what is missing, nothing if it is there."""
    entry = spec.entry_point if isinstance(spec.entry_point, str) else ""
    for mark, (module, command) in _NEEDS.items():
        if mark in entry:
            try:
                importlib.import_module(module)
            except ImportError:
                return f"; install what it needs: {command}"
    return ""
