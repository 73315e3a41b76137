"""From what the user asked for to a complete configuration, checked before anything is created."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from frugalrl.agents.settings import AgentSettings, check_engine
from frugalrl.checks import check_choice
from frugalrl.training.config import Algo, SamplerName, TrainConfig
from frugalrl.training.errors import ConfigError
from frugalrl.training.presets import defaults, find_preset

Origin = Literal["given", "preset", "default"]

_POSITIVE = (
    "max_episode_steps",
    "steps",
    "buffer_size",
    "envs",
    "eval_episodes",
    "log_every",
    "n_step",
    "threads",
)
_NOT_NEGATIVE = (
    *("seed", "eval_seed", "final_seed"),
    *("learning_starts", "eval_every", "final_episodes", "checkpoint_every"),
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "algo": get_args(Algo),
    "sampler": get_args(SamplerName),
    "preset": ("auto", "none"),
    "buffer_dtype": ("float32", "float16"),
    "eviction": ("oldest", "random"),
    "workers": ("sync", "async"),
    "normalize": ("none", "obs", "reward", "both"),
    "action_noise": ("none", "normal", "ornstein-uhlenbeck"),
}
_ADMISSIONS = ("none", "fac", "diverse", "random")
WARMUP_STEPS = 10_000
"""How long `FrugalFilter` looks on, unless told otherwise."""


class Resolved(NamedTuple):
    """A complete configuration."""

    config: TrainConfig
    origins: dict[str, Origin]
    """Where each setting that presets and defaults know came from."""
    notes: list[str]
    """What the user should know though it is no error."""


def resolve(config: TrainConfig) -> Resolved:
    """Fill what was left open from preset and defaults, and check every value.

    Raises:
        ConfigError: naming the setting, its value and what would work.
    """
    _check_choices(config)
    config = _with_integers(config)
    if config.buffer_bytes is not None and config.buffer_size is not None:
        raise ConfigError(
            f"buffer_bytes={config.buffer_bytes!r} takes the place of "
            f"buffer_size={config.buffer_size}; set one of them"
        )
    preset = find_preset(config.env_name, config.algo) if config.preset == "auto" else {}
    base = defaults(config.algo)
    chosen: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name in (*base, "steps"):
        given = getattr(config, name)
        if given is not None:
            chosen[name], origins[name] = given, "given"
        elif name in preset:
            chosen[name], origins[name] = preset[name], "preset"
        elif name in base:
            chosen[name], origins[name] = base[name], "default"
        else:
            raise ConfigError(
                f"steps is not set and there is no preset for {config.env_name} with "
                f"{config.algo}: say how long to train, for example --steps 100000"
            )
    full = dataclasses.replace(
        config,
        **chosen,
        env_kwargs=config.environment_arguments(),
        out=None if config.out is None else Path(config.out),
    )
    _check_numbers(full)
    origins["eval_every"] = "default" if full.eval_every is None else "given"
    if full.eval_every is None:
        assert full.steps is not None
        full = dataclasses.replace(full, eval_every=max(1000, full.steps // 20_000 * 1000))
    for name in filter_fields():
        if getattr(full, name) is not None:
            origins[name] = "given"
    _check_relations(full)
    full = dataclasses.replace(full, net_arch=agent_settings(full).net_arch)
    return Resolved(full, origins, filter_notes(full))


def agent_settings(config: TrainConfig) -> AgentSettings:
    """Give the agent's share of a resolved configuration."""
    names = [field.name for field in dataclasses.fields(AgentSettings)]
    values = {name: getattr(config, name) for name in names}
    if values["action_noise"] == "none":
        values["action_noise"] = None
    try:
        settings = AgentSettings(**values)
        check_engine(settings.engine)
        return settings
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _with_integers(config: TrainConfig) -> TrainConfig:
    """Take 1e6 for 1000000 where a whole number is wanted."""
    values = {name: getattr(config, name) for name in (*_POSITIVE, *_NOT_NEGATIVE)}
    whole: dict[str, Any] = {
        n: int(v) for n, v in values.items() if isinstance(v, float) and v.is_integer()
    }
    return dataclasses.replace(config, **whole) if whole else config


def _check_choices(config: TrainConfig) -> None:
    for name, choices in _CHOICES.items():
        value = getattr(config, name)
        if value is not None:
            check_choice(name, value, choices, ConfigError)
    if isinstance(config.admission, str):
        check_choice("admission", config.admission, _ADMISSIONS, ConfigError)
    elif not callable(getattr(config.admission, "offer", None)):
        raise ConfigError(
            f"admission={config.admission!r} is no filter; choose one of {_ADMISSIONS} or pass "
            "an object such as frugalrl.FrugalFilter()"
        )


def _check_numbers(config: TrainConfig) -> None:
    for names, least in ((_POSITIVE, 1), (_NOT_NEGATIVE, 0)):
        for name in names:
            value = getattr(config, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}={value!r} must be a whole number of at least {least}")
    every = config.train_freq
    if every != "episode" and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ConfigError(f"train_freq={every!r} must be a number of steps from 1, or 'episode'")
    if config.keep_checkpoints < 1:
        raise ConfigError(f"keep_checkpoints={config.keep_checkpoints} must be at least 1")
    steps = config.gradient_steps
    if not isinstance(steps, int) or (steps < 1 and steps != -1):
        raise ConfigError(f"gradient_steps={steps!r} must be at least 1, or -1 for one per step")
    for name in ("stop_reward", "stop_seconds"):
        value = getattr(config, name)
        if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise ConfigError(f"{name}={value!r} must be a finite number")
    if not 0.0 < config.random_rate <= 1.0:
        raise ConfigError(f"random_rate={config.random_rate} must be above 0 and at most 1")
    if not (config.worker_timeout > 0.0 and math.isfinite(config.worker_timeout)):
        raise ConfigError(f"worker_timeout={config.worker_timeout} must be a number of seconds")


def _check_relations(config: TrainConfig) -> None:
    assert config.steps is not None
    assert config.learning_starts is not None
    assert config.batch_size is not None
    assert config.buffer_size is not None
    if config.train_freq == "episode" and config.envs > 1:
        raise ConfigError(
            f"train_freq='episode' needs a single environment, got envs={config.envs}: several end "
            "their episodes at different times; use steps (--train-freq 1 --gradient-steps -1)"
        )
    if config.learning_starts >= config.steps:
        raise ConfigError(
            f"learning_starts={config.learning_starts} leaves nothing to learn from: the run has "
            f"steps={config.steps}; lower learning_starts or raise steps"
        )
    if config.n_step > 1 and config.init_buffer is not None:
        raise ConfigError(
            f"n_step={config.n_step} joins the steps of the run's environments, and init_buffer "
            "brings transitions as they are; use n_step=1 or no init_buffer"
        )
    room = config.steps if config.buffer_bytes else min(config.buffer_size, config.steps)
    if config.batch_size > room:
        what = "buffer_size" if room == config.buffer_size else "steps"
        raise ConfigError(
            f"batch_size={config.batch_size} is more than can ever be stored "
            f"({what}={room}); use batch_size <= {room}"
        )
    if config.admission != "fac" and isinstance(config.admission, str):
        given = [name for name in filter_fields() if getattr(config, name) is not None]
        if config.fac_paper:
            given.insert(0, "fac_paper")
        if given:
            raise ConfigError(
                f"{given[0]}={getattr(config, given[0])!r} has no effect with "
                f"admission={config.admission!r}; use admission='fac' (--admission fac)"
            )


def filter_notes(config: TrainConfig) -> list[str]:
    """Say what the filter's warm-up means for this run, where that may surprise."""
    assert config.steps is not None
    assert config.learning_starts is not None
    if config.admission != "fac":
        return []
    warmup = WARMUP_STEPS if config.fac_warmup_steps is None else config.fac_warmup_steps
    if warmup >= config.steps:
        return [
            f"the filter's warm-up of {warmup:,} steps is not shorter than the run of "
            f"{config.steps:,}: nothing will be filtered (lower it with --fac-warmup-steps)"
        ]
    if warmup > config.learning_starts:
        return [
            f"the filter's warm-up of {warmup:,} steps is longer than the "
            f"{config.learning_starts:,} random ones (learning_starts): the policy acts in the "
            "rest of it, so the important dimensions (kappa) and ranges come from the policy too"
        ]
    return []


def filter_fields() -> list[str]:
    """List the settings that are `FrugalFilter`'s arguments."""
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    return [name for name in names if name.startswith("fac_") and name != "fac_paper"]


def filter_arguments(config: TrainConfig) -> dict[str, Any]:
    """Give the `fac_` settings that were set, as `FrugalFilter`'s arguments."""
    arguments = {
        name.removeprefix("fac_"): getattr(config, name)
        for name in filter_fields()
        if getattr(config, name) is not None
    }
    bounds = arguments.get("bounds")
    if isinstance(bounds, str) and bounds != "auto":
        try:
            arguments["bounds"] = json.loads(bounds)
        except json.JSONDecodeError:
            raise ConfigError(
                f"fac_bounds={bounds!r} is neither auto nor JSON [[low, ...], [high, ...]]"
            ) from None
    return arguments
