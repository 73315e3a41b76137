"""Finding, making and checking environments, with errors that say what to do."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from frugalrl.checks import nearest
from frugalrl.training.config import CUSTOM, TrainConfig, environment_text
from frugalrl.training.errors import BrokenEnvironmentError, ConfigError

Environment = gymnasium.Env[Any, Any]

_BULLET = "pip install pybullet pybullet_envs_gymnasium"
_EXTRA = 'pip install "frugalrl[envs]" brings MuJoCo, Box2D and PyBullet'


@dataclass(frozen=True)
class EnvironmentFactory:
    """Makes copies of one environment, in this process or another."""

    name: str
    source: Any
    """A registered environment's specification, what makes one when called, or one to copy."""
    kwargs: dict[str, Any]
    wrappers: tuple[Any, ...]
    """Called in turn with the environment, the innermost first."""
    max_episode_steps: int | None

    @property
    def time_limit(self) -> int | None:
        """Most steps of an episode, None where that is not known."""
        if self.max_episode_steps is None and isinstance(self.source, EnvSpec):
            return self.source.max_episode_steps
        return self.max_episode_steps

    def make(self, render_mode: str | None = None) -> Environment:
        """Make a copy, or say which package is missing or that the arguments do not fit."""
        arguments = self.kwargs | ({"render_mode": render_mode} if render_mode else {})
        try:
            made = self._make(arguments)
            for wrap in self.wrappers:
                made = wrap(made)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            known = re.search("mujoco|box2d|bullet", f"{self.name} {error}", re.IGNORECASE)
            hint = f" ({_EXTRA})" if known else ""
            raise ConfigError(f"env={self.name!r} cannot be made: {error}{hint}") from error
        except TypeError as error:
            if not arguments:
                raise
            raise ConfigError(
                f"env_kwargs={arguments!r} does not fit {self.name}: {error}"
            ) from error
        if not isinstance(made, gymnasium.Env):
            raise ConfigError(f"env={self.name!r} made {made!r}, which is no gymnasium.Env")
        return made

    def spaces(self) -> tuple[spaces.Box, spaces.Box]:
        """Give the spaces of observations and actions, if an agent can learn from them."""
        with contextlib.closing(self.make()) as made:
            return check_spaces(made.observation_space, made.action_space, self.name)

    def _make(self, arguments: dict[str, Any]) -> Any:
        if isinstance(self.source, EnvSpec):
            with warnings.catch_warnings():
                # Asking for an older version of an environment is the user's good right.
                warnings.filterwarnings("ignore", message=".*is out of date.*")
                return gymnasium.make(
                    self.source,
                    max_episode_steps=self.max_episode_steps,
                    disable_env_checker=True,
                    **arguments,
                )
        if isinstance(self.source, gymnasium.Env):
            try:
                made = copy.deepcopy(self.source)
            except Exception as error:
                raise ConfigError(
                    f"env={self.source} cannot be copied ({error}): pass a function that makes it "
                    "instead"
                ) from error
        else:
            made = self.source(**arguments)
        if self.max_episode_steps is not None:
            made = gymnasium.wrappers.TimeLimit(made, self.max_episode_steps)
        return made


def find_environment(
    env: Any,
    kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Any] = (),
    max_episode_steps: int | None = None,
) -> EnvironmentFactory:
    """Find what makes an environment; `TrainConfig` has the same four settings.

    Raises:
        ConfigError: the id is misspelled, outdated or from a package that is not installed; the
            message names the nearest match or the command that installs the package.
    """
    rest = (kwargs or {}, tuple(map(_find_wrapper, wrappers)), max_episode_steps)
    if isinstance(env, gymnasium.Env) and kwargs:
        raise ConfigError(f"env_kwargs={kwargs!r} does not fit env={env}: it is made already")
    if isinstance(env, gymnasium.Env) or callable(env):
        return EnvironmentFactory(environment_text(env), env, *rest)
    if not isinstance(env, str):
        raise ConfigError(f"env={env!r} is neither an id, nor an environment, nor what makes one")
    module, _, name = env.rpartition(":")
    if module:
        found = _import(module, f"env={env!r}")
        if callable(getattr(found, name, None)):
            return EnvironmentFactory(env, getattr(found, name), *rest)
    if name not in gymnasium.registry and "Bullet" in name:
        # Its environments are registered only once it is imported.
        _import("pybullet_envs_gymnasium", f"env={name!r} needs more ({_BULLET})")
    if name in gymnasium.registry and not _is_retired(gymnasium.registry[name]):
        return EnvironmentFactory(name, gymnasium.registry[name], *rest)
    raise ConfigError(f"env={env!r} is no environment{_nearest(name)}")


def make_factory(config: TrainConfig) -> EnvironmentFactory:
    """Find what makes a run's environment."""
    return find_environment(
        config.env, config.environment_arguments(), config.wrappers, config.max_episode_steps
    )


def _find_wrapper(wrapper: Any) -> Any:
    if not isinstance(wrapper, str):
        return wrapper
    module, _, name = wrapper.replace(":", ".").rpartition(".")
    found = getattr(_import(module, f"wrappers={wrapper!r}"), name, None) if module else None
    if not callable(found):
        raise ConfigError(
            f"wrappers={wrapper!r} is nothing that can be called; write it like "
            "gymnasium.wrappers:FlattenObservation"
        )
    return found


def _import(module: str, what: str) -> Any:
    """Import a module, from the current directory too."""
    if f"{module}:" == CUSTOM:
        raise ConfigError(f"{what} can only be made by its own code: give the object itself")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what}: the module {module!r} cannot be imported ({error})") from error


def check_spaces(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], env_id: str
) -> tuple[spaces.Box, spaces.Box]:
    """Refuse spaces that the agents cannot learn from, saying what is supported."""
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
    """Begin an episode and give its first observation, checked."""
    result: Any = environment.reset() if seed is None else environment.reset(seed=seed)
    return _checked(environment, shape, "reset", result, ("observation", "info"))[0]


def step(environment: Environment, action: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Take a step and give observation, reward, terminated, truncated and info, checked."""
    result = _checked(environment, shape, "step", environment.step(action), _STEP)
    if type(result[1]) is not float and np.shape(result[1]) != ():
        raise BrokenEnvironmentError(f"{environment} gave the reward {result[1]!r}, not a number")
    return result


_STEP = ("observation", "reward", "terminated", "truncated", "info")


def _checked(
    environment: Environment, shape: tuple[int, ...], method: str, result: Any, names: Sequence[str]
) -> tuple[Any, ...]:
    """Check that a method gave a tuple of what its names say, an observation of a shape first."""
    if type(result) is not tuple or len(result) != len(names):
        got = f"tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise BrokenEnvironmentError(
            f"{environment} gave a {got} from {method}(), not ({', '.join(names)})"
        )
    if np.shape(result[0]) != shape:
        raise BrokenEnvironmentError(
            f"{environment} gave an observation of shape {np.shape(result[0])}; its space says "
            f"{shape}"
        )
    return result


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
