"""Everything that defines a run, in one dataclass that the command line reads too."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from frugalrl.agents.settings import NetArch, net_arch_from, net_arch_to_json
from frugalrl.training.errors import ConfigError

Algo = Literal["sac", "td3", "ddpg"]
SamplerName = Literal["uniform", "prioritized", "large_batch"]

CUSTOM = "custom:"
"""Before the name of a filter that only its own code can make."""

# Python callers may pass objects where the command line passes text; tyro reads the second branch.
if TYPE_CHECKING:
    import gymnasium

    from frugalrl.admission.protocol import AdmissionFilter

    Env = str | Callable[..., gymnasium.Env[Any, Any]] | gymnasium.Env[Any, Any]
    Wrapper = str | Callable[..., gymnasium.Env[Any, Any]]
    Admission = Literal["none", "fac", "diverse", "random"] | AdmissionFilter
    Keywords = Mapping[str, Any] | str
    Bounds = str | Sequence[Sequence[float]]
    Directory = Path | str
    Data = Path | str | Mapping[str, Any]
    Widths = Sequence[int] | Mapping[str, Sequence[int]] | NetArch | str
else:
    Env = Wrapper = str
    Admission = Literal["none", "fac", "diverse", "random"]
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
    """What the buffer keeps: all, what the frugal filter admits, rare ones longer, or a share."""
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
    """TD3, DDPG: exploration noise."""
    action_noise_std: float | None = None
    """TD3, DDPG: its standard deviation, for actions scaled to -1..1."""

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
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if not isinstance(self.admission, str):
            values["admission"] = f"{CUSTOM}{self.admission.name}"
        if not isinstance(self.env, str) or any(not isinstance(w, str) for w in self.wrappers):
            from frugalrl.training.environments import environment_text

            values["env"] = environment_text(self.env)
            values["wrappers"] = tuple(map(environment_text, self.wrappers))
        values["wrappers"] = list(values["wrappers"])
        for name in ("out", "init_policy"):
            values[name] = None if values[name] is None else str(values[name])
        if self.init_buffer is not None:
            arrays = isinstance(self.init_buffer, Mapping)
            values["init_buffer"] = f"{CUSTOM}arrays" if arrays else str(self.init_buffer)
        values["net_arch"] = None if self.net_arch is None else net_arch_to_json(self.net_arch)
        if isinstance(self.env_kwargs, Mapping):
            values["env_kwargs"] = dict(self.env_kwargs)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Make a configuration from `to_dict`'s values."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(
                f"unknown settings {unknown}: written by another version of frugalrl?"
            )
        fields = dict(values)
        if fields.get("out") is not None:
            fields["out"] = Path(fields["out"])
        fields["wrappers"] = tuple(fields.get("wrappers") or ())
        if fields.get("net_arch") is not None:
            fields["net_arch"] = net_arch_from(fields["net_arch"])
        if isinstance(fields.get("fac_bins"), list):
            fields["fac_bins"] = tuple(fields["fac_bins"])
        return cls(**fields)

    @property
    def env_name(self) -> str:
        """The environment in a word: its id, or the name of what makes it."""
        if isinstance(self.env, str):
            return self.env.removeprefix(CUSTOM)
        from frugalrl.training.environments import environment_text

        return environment_text(self.env).removeprefix(CUSTOM)

    def environment_arguments(self) -> dict[str, Any]:
        """Give `env_kwargs` as a dictionary, parsed if it is JSON."""
        if isinstance(self.env_kwargs, Mapping):
            return dict(self.env_kwargs)
        if not self.env_kwargs:
            return {}
        return _json_object("env_kwargs", self.env_kwargs)


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name}={text!r} is no JSON ({error}); write it like '{{\"g\": 9.81}}'"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}={text!r} is no JSON object; write it like '{{\"g\": 9.81}}'")
    return value
