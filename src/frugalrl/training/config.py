"""Everything that defines a run: what the user asks for, completed and checked."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from frugalrl.agents.settings import (
    AgentSettings,
    NetArch,
    check_engine,
    net_arch_from,
    net_arch_to_json,
)
from frugalrl.checks import check_choice, integer_from, is_positive, number_from
from frugalrl.training.errors import ConfigError
from frugalrl.training.presets import defaults, find_preset

Algo = Literal["sac", "td3", "ddpg"]
SamplerName = Literal["uniform", "prioritized", "large_batch"]

CUSTOM = "custom:"
"""Before the name of something that only its own code can make."""

# Python callers may pass objects where the command line passes text; tyro reads the second branch.
if TYPE_CHECKING:
    import gymnasium

    from frugalrl.admission.protocol import AdmissionFilter

    Env = str | Callable[..., gymnasium.Env[Any, Any]] | gymnasium.Env[Any, Any]
    Wrapper = str | Callable[..., gymnasium.Env[Any, Any]]
    Admission = Literal["none", "fac", "random"] | AdmissionFilter
    Keywords = Mapping[str, Any] | str
    Bounds = str | Sequence[Sequence[float]]
    Directory = Path | str
    Data = Path | str | Mapping[str, Any]
    Widths = Sequence[int] | Mapping[str, Sequence[int]] | NetArch | str
else:
    Env = Wrapper = str
    Admission = Literal["none", "fac", "random"]
    Keywords = str
    Bounds = str
    Directory = Data = Path
    Widths = tuple[int, ...] | str


@dataclass(frozen=True)
class TrainConfig:
    """One training run. A setting left at None comes from the preset, then from SB3's defaults."""

    env: Env
    """Gymnasium id such as Hopper-v5, module:Id-v0, module:Class; in Python also an object."""
    algo: Algo = "sac"
    """Algorithm."""
    admission: Admission = "none"
    """What the buffer keeps: none: all; fac: what the frugal filter admits; random: a share."""
    steps: int | None = None
    """Environment steps, all environments together."""
    seed: int = 0
    """Seed of every random state in the run."""
    out: Directory | None = None
    """Run directory, new or empty. None in Python: nothing is written."""
    preset: Literal["auto", "none"] = "auto"
    """auto: the settings made for this environment, if there are any; none: SB3's defaults."""

    learning_rate: float | str | None = None
    """Adam's step size; lin_7.3e-4 falls linearly to zero."""
    buffer_size: int | None = None
    """Most transitions the buffer holds."""
    buffer_bytes: str | None = None
    """Byte budget of the buffer instead of buffer_size, for example 512MB."""
    buffer_dtype: Literal["float32", "float16"] = "float32"
    """How the buffer stores observations."""
    eviction: Literal["oldest", "random"] = "oldest"
    """Which transition goes when the buffer is full: the oldest, or any."""
    sampler: SamplerName = "uniform"
    """How batches are drawn: uniform, prioritized (PER) or large_batch (LaBER)."""
    learning_starts: int | None = None
    """Random actions, and no updates, for this many steps."""
    batch_size: int | None = None
    """Transitions in one update."""
    tau: float | None = None
    """Share of the new weights that enters the target networks at each update."""
    gamma: float | None = None
    """Discount."""
    n_step: int = 1
    """Steps of a transition: rewards of so many steps are summed, discounted, before admission."""
    train_freq: int | Literal["episode"] | None = None
    """Steps in each environment between two rounds of updates; episode: a round is one episode."""
    gradient_steps: int | None = None
    """Updates in a round; -1: as many as steps were taken."""
    net_arch: Widths | None = None
    """Units of the hidden layers; of actor and critics: {"pi": [64, 64], "qf": [256, 256]}."""

    ent_coef: float | str | None = None
    """SAC: entropy coefficient; auto learns it, auto_0.1 starts from 0.1."""
    target_entropy: float | str | None = None
    """SAC: entropy that auto aims at; auto: minus the number of actions."""
    target_update_interval: int | None = None
    """SAC: updates of a round between two updates of the target networks."""
    use_sde: bool | None = None
    """SAC: state-dependent exploration (gSDE)."""
    log_std_init: float | None = None
    """SAC: initial log standard deviation of gSDE."""
    sde_sample_freq: int | None = None
    """SAC: steps between two draws of gSDE's noise; -1: once per round."""
    policy_delay: int | None = None
    """TD3: critic updates for each policy update."""
    target_policy_noise: float | None = None
    """TD3: standard deviation of the noise on target actions."""
    target_noise_clip: float | None = None
    """TD3: bound of that noise."""
    action_noise: Literal["none", "normal", "ornstein-uhlenbeck"] | None = None
    """Noise on top of the actions while training; TD3 and DDPG explore by it alone."""
    action_noise_std: float | None = None
    """Its standard deviation, for actions scaled to -1..1."""

    engine: Literal["fused", "jax"] | None = None
    """What computes updates: fused (by hand, for a CPU), or jax (needs the extra of that name)."""

    fac_paper: bool = False
    """The paper's text to the letter: equivalent transitions are dropped."""
    fac_warmup_steps: int | None = None
    """Transitions from which the filter learns important dimensions and ranges."""
    fac_dimension_threshold: float | None = None
    """A dimension is important from this share of the largest diagonal entry of R on (nu)."""
    fac_min_dimension_fraction: float | None = None
    """At least this share of the dimensions is important."""
    fac_bins: int | tuple[int, ...] | None = None
    """Bins of each important dimension (mu): one number, or one for each dimension."""
    fac_kernel: Literal["epanechnikov", "tophat", "gaussian"] | None = None
    """Kernel of the reward density."""
    fac_bandwidth: float | None = None
    """Its bandwidth (h)."""
    fac_half_width: float | None = None
    """Half width of the interval around a reward (beta)."""
    fac_density_threshold: float | None = None
    """A reward is new when less than this mass lies around it (epsilon)."""
    fac_decay: float | None = None
    """How slowly that threshold falls with the rewards of a cell (eta)."""
    fac_bounds: Bounds | None = None
    """Range of every dimension: auto, or JSON [[low, ...], [high, ...]]."""
    fac_outside: Literal["clip", "extend"] | None = None
    """States outside the range go to the edge cells, or to further cells."""
    fac_on_equivalent: Literal["replace", "discard"] | None = None
    """An equivalent transition replaces the oldest of its kind, or is dropped."""
    fac_warmup: Literal["keep", "filter", "observe"] | None = None
    """The warm-up's transitions are all kept, filtered when it ends, or only looked at."""
    fac_reward_scale: float | str | None = None
    """Rewards are divided by this; auto: their standard deviation in the warm-up."""
    random_rate: float = 0.4
    """Share that admission random keeps."""

    init_policy: Directory | None = None
    """Start with the networks of this run directory, or the actor of this policy file."""
    init_buffer: Data | None = None
    """Start with these transitions: a run directory, a saved buffer, an .npz file or arrays."""

    env_kwargs: Keywords = ""
    """Arguments of the environment, as JSON: {"include_cfrc_ext_in_observation": false}."""
    wrappers: tuple[Wrapper, ...] = ()
    """What wraps it, innermost first, for example gymnasium.wrappers:FlattenObservation."""
    normalize: Literal["none", "obs", "reward", "both"] = "none"
    """Learn from observations, rewards or both scaled by running statistics; kept raw."""
    max_episode_steps: int | None = None
    """Cut episodes off after so many steps; None: as the environment says."""
    envs: int = 1
    """Environments stepped together."""
    workers: Literal["sync", "async"] = "sync"
    """Several environments in this process, or each in its own."""
    worker_timeout: float = 60.0
    """Seconds after which a silent async worker counts as hanging."""

    eval_every: int | None = None
    """Steps between evaluations; 0: none; None: a twentieth of the run, at least 1,000."""
    eval_episodes: int = 10
    """Episodes of each evaluation while training."""
    eval_seed: int = 2_000_000
    """Seed of the first of them; the next has the next number."""
    final_episodes: int = 100
    """Episodes of the evaluation at the end; 0: none."""
    final_seed: int = 1_000_000
    """Seed of the first of them. The same episodes for every run make runs comparable."""
    log_every: int = 1000
    """Steps between two rows of metrics, at most (if a round is not longer)."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints; 0: only when interrupted and at the end."""
    keep_checkpoints: int = 2
    """Checkpoints kept while the run goes on."""
    save_best: bool = True
    """Keep the policy of the best evaluation as policy-best.safetensors."""
    stop_reward: float | None = None
    """End the run when an evaluation's mean reward reaches this."""
    stop_seconds: float | None = None
    """End the run after so many seconds."""
    save_buffer: bool = True
    """Keep the final buffer in the run directory."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: bool = False
    """Log to Weights & Biases too."""
    threads: int = 1
    """Threads for the networks; one is fastest up to about 256 units per layer."""
    quiet: bool = False
    """Print nothing but errors."""

    def to_dict(self) -> dict[str, Any]:
        """Give every field as a JSON value."""
        values = dict(vars(self))
        values["admission"] = admission_text(self.admission)
        if isinstance(self.init_buffer, Mapping):
            values["init_buffer"] = f"{CUSTOM}arrays"
        if isinstance(self.env_kwargs, Mapping):
            values["env_kwargs"] = dict(self.env_kwargs)
        values["env"] = environment_text(self.env)
        values["wrappers"] = [environment_text(wrapper) for wrapper in self.wrappers]
        for name in ("out", "init_policy", "init_buffer"):
            values[name] = None if values[name] is None else str(values[name])
        values["net_arch"] = None if self.net_arch is None else net_arch_to_json(self.net_arch)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Make a configuration from `to_dict`'s values."""
        if unknown := sorted(set(values) - {field.name for field in dataclasses.fields(cls)}):
            raise ConfigError(
                f"unknown settings {unknown}: written by another version of frugalrl?"
            )
        lists = {name: tuple(it) for name, it in values.items() if isinstance(it, list)}
        fields: dict[str, Any] = {**values, **lists}
        if fields.get("net_arch") is not None:
            fields["net_arch"] = net_arch_from(fields["net_arch"])
        return cls(**fields)

    @property
    def env_name(self) -> str:
        """The environment in a word: its id, or the name of what makes it."""
        return environment_text(self.env).removeprefix(CUSTOM)

    def environment_arguments(self) -> dict[str, Any]:
        """Give `env_kwargs` as a dictionary, parsed if it is JSON."""
        if isinstance(self.env_kwargs, Mapping):
            return dict(self.env_kwargs)
        try:
            value, why = json.loads(self.env_kwargs or "{}"), ""
        except json.JSONDecodeError as error:
            value, why = None, f" ({error})"
        if not isinstance(value, dict):
            raise ConfigError(
                f"env_kwargs={self.env_kwargs!r} is no JSON object{why}; write it like "
                "'{\"g\": 9.81}'"
            )
        return value


def environment_text(env: Any) -> str:
    """Name an environment or a wrapper: so that it can be found again where that is possible."""
    if isinstance(env, str):
        return env
    import gymnasium

    if isinstance(env, gymnasium.Env):
        return f"{CUSTOM}{env.spec.id if env.spec is not None else type(env.unwrapped).__name__}"
    name = getattr(env, "__qualname__", type(env).__name__)
    module = sys.modules.get(getattr(env, "__module__", None) or "")
    if module is not None and module.__name__ != "__main__" and getattr(module, name, None) is env:
        return f"{module.__name__}:{name}"
    return f"{CUSTOM}{name}"


def admission_text(admission: Any) -> str:
    """Name a filter: as a setting does where it is one of this library."""
    if isinstance(admission, str):
        return admission
    from frugalrl.admission.controls import AdmitAll, RandomAdmit
    from frugalrl.admission.frugal import FrugalFilter

    names = {AdmitAll: "none", RandomAdmit: "random", FrugalFilter: "fac"}
    return names.get(type(admission), f"{CUSTOM}{admission.name}")


Origin = Literal["given", "preset", "default"]

# Settings that are whole numbers, and the least that works.
_LEAST = {
    **dict.fromkeys(("max_episode_steps", "steps", "buffer_size", "envs", "eval_episodes"), 1),
    **dict.fromkeys(("log_every", "n_step", "threads", "keep_checkpoints"), 1),
    **dict.fromkeys(("seed", "eval_seed", "final_seed", "learning_starts", "eval_every"), 0),
    **dict.fromkeys(("final_episodes", "checkpoint_every"), 0),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(kind)
    for name, hint in get_type_hints(TrainConfig).items()
    for kind in (hint, *get_args(hint))
    if get_origin(kind) is Literal and name != "train_freq"  # which may be a number
}
OF_THE_FILTER = "fac_"
"""What the settings of `FrugalFilter` begin with: its name as an admission."""
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
    config = _with_numbers(config)
    if config.buffer_bytes is not None and config.buffer_size is not None:
        raise ConfigError(
            f"buffer_bytes={config.buffer_bytes!r} takes the place of "
            f"buffer_size={config.buffer_size}; set one of them"
        )
    preset = find_preset(config.env_name, config.algo) if config.preset == "auto" else {}
    steps = config.steps or preset.get("steps")
    if steps is None:
        raise ConfigError(
            f"steps is not set and there is no preset for {config.env_name} with {config.algo}: "
            "say how long to train, for example --steps 100000"
        )
    base = defaults(config.algo)
    base |= {"steps": steps, "eval_every": max(1000, steps // 20_000 * 1000)}
    given = {name: getattr(config, name) for name in base if getattr(config, name) is not None}
    origins: dict[str, Origin] = dict.fromkeys(base, "default")
    origins |= dict.fromkeys(preset, "preset")
    origins |= dict.fromkeys(given, "given")
    full = dataclasses.replace(
        config,
        **(base | preset | given),
        env_kwargs=config.environment_arguments(),
        out=None if config.out is None else Path(config.out),
    )
    origins |= dict.fromkeys(_filter_settings(full), "given")
    agent = agent_settings(full)
    _check_relations(full)
    used = _settings_of(make_admission(full, full.seed))
    full = dataclasses.replace(full, net_arch=agent.net_arch, **used)
    for name in _filter_settings(full):
        origins.setdefault(name, "default" if isinstance(config.admission, str) else "given")
    idle = [f"{it} has no effect with {full.algo}" for it in given if not concerns(full.algo, it)]
    return Resolved(full, origins, [*idle, *_filter_notes(full)])


def agent_settings(config: TrainConfig) -> AgentSettings:
    """Give the agent's share of a resolved configuration."""
    values = {it.name: getattr(config, it.name) for it in dataclasses.fields(AgentSettings)}
    if values["action_noise"] == "none":
        values["action_noise"] = None
    try:
        settings = AgentSettings(**values)
        check_engine(settings.engine)
        return settings
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _check_choices(config: TrainConfig) -> None:
    for name, choices in _CHOICES.items():
        value = getattr(config, name)
        if name == "admission" and not isinstance(value, str):
            if not callable(getattr(value, "offer", None)):
                raise ConfigError(
                    f"admission={value!r} is no filter; choose one of {choices} or pass "
                    "an object such as frugalrl.FrugalFilter()"
                )
        elif value is not None:
            check_choice(name, value, choices, ConfigError)


def _with_numbers(config: TrainConfig) -> TrainConfig:
    """Check numbers, and make them Python's: NumPy's, and 1e6 where a whole one is wanted."""
    import numpy as np

    values = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in vars(config).items()
    }
    try:
        for name, least in _LEAST.items():
            value = values[name]
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if value is not None:
                values[name] = integer_from(name, value, least)
        if values["stop_reward"] is not None:
            number_from("stop_reward", values["stop_reward"])
        if values["stop_seconds"] is not None:
            number_from("stop_seconds", values["stop_seconds"], "a number above 0", is_positive)
        share = "a number above 0 and up to 1"
        number_from("random_rate", values["random_rate"], share, lambda rate: 0.0 < rate <= 1.0)
        number_from("worker_timeout", values["worker_timeout"], "a number of seconds", is_positive)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None
    return dataclasses.replace(config, **values)


def _check_relations(config: Any) -> None:
    """Check what one setting asks of another, in a configuration that leaves nothing open."""
    every, updates = config.train_freq, config.gradient_steps
    if every != "episode" and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise ConfigError(f"train_freq={every!r} must be a number of steps from 1, or 'episode'")
    if not isinstance(updates, int) or (updates < 1 and updates != -1):
        raise ConfigError(f"gradient_steps={updates!r} must be at least 1, or -1 for one per step")
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
    if config.admission != "fac":
        own = {} if isinstance(config.admission, str) else _settings_of(config.admission)
        given = {**({"fac_paper": True} if config.fac_paper else {}), **_filter_settings(config)}
        for name, value in given.items():
            if value != own.get(name):
                raise ConfigError(
                    f"{name}={value!r} has no effect with admission={config.admission!r}; "
                    "use admission='fac' (--admission fac)"
                )
    if config.wandb:
        try:
            import wandb as _  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "wandb=True needs Weights & Biases, which is not installed: pip install wandb"
            ) from error


_FOR_SAC = {
    *("ent_coef", "target_entropy", "target_update_interval"),
    *("use_sde", "log_std_init", "sde_sample_freq"),
}
_FOR_TD3 = {"policy_delay", "target_policy_noise", "target_noise_clip"}


def concerns(algo: str, name: str) -> bool:
    """Tell whether a setting means something to an algorithm."""
    return (algo == "sac" or name not in _FOR_SAC) and (algo == "td3" or name not in _FOR_TD3)


def _filter_notes(config: Any) -> list[str]:
    """Say what the filter's warm-up means for this run, where that may surprise."""
    if admission_text(config.admission) != "fac":
        return []
    warmup, steps, random_steps = config.fac_warmup_steps, config.steps, config.learning_starts
    if warmup >= steps:
        return [
            f"the filter's warm-up of {warmup:,} steps is not shorter than the run of {steps:,}: "
            "nothing will be filtered (lower it with --fac-warmup-steps)"
        ]
    if warmup > random_steps:
        return [
            f"the filter's warm-up of {warmup:,} steps is longer than the {random_steps:,} random "
            "ones (learning_starts): the policy acts in the rest of it, so the important "
            "dimensions (kappa) and ranges come from the policy too"
        ]
    return []


def _filter_settings(config: TrainConfig) -> dict[str, Any]:
    """Give the settings that are arguments of the filter and are set."""
    return {
        name: value
        for name, value in vars(config).items()
        if name.startswith(OF_THE_FILTER) and name != "fac_paper" and value is not None
    }


def make_admission(config: TrainConfig, seed: int) -> AdmissionFilter:
    """Make the filter, or take the one that was given."""
    if not isinstance(config.admission, str):
        return config.admission
    from frugalrl.admission.controls import AdmitAll, RandomAdmit
    from frugalrl.admission.frugal import FrugalFilter

    if config.admission == "none":
        return AdmitAll()
    if config.admission == "random":
        return RandomAdmit(rate=config.random_rate, seed=seed)
    settings = _filter_settings(config)
    arguments = {name.removeprefix(OF_THE_FILTER): value for name, value in settings.items()}
    bounds = arguments.get("bounds")
    if isinstance(bounds, str) and bounds != "auto":
        try:
            arguments["bounds"] = json.loads(bounds)
        except json.JSONDecodeError:
            raise ConfigError(
                f"fac_bounds={bounds!r} is neither auto nor JSON [[low, ...], [high, ...]]"
            ) from None
    try:
        return (FrugalFilter.paper if config.fac_paper else FrugalFilter)(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"a --fac setting cannot work: {error}") from None


def _settings_of(used: Any) -> dict[str, Any]:
    """Give the settings that a filter of this library was made with."""
    kind = admission_text(used)
    if kind == "random":
        return {"random_rate": used.rate}
    settings = dataclasses.asdict(used.settings) if kind == "fac" else {}
    return {f"{OF_THE_FILTER}{name}": value for name, value in settings.items()}
