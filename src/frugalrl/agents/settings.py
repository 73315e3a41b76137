"""Settings of an agent, in Stable-Baselines3's words and with its defaults."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from typing import Any

ALGORITHMS = ("sac", "td3", "ddpg")
SAMPLERS = ("uniform", "prioritized", "large_batch")
ENGINES = ("fused", "jax")
ACTION_NOISES = (None, "normal", "ornstein-uhlenbeck")
LOSSES = {
    "sac": ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss"),
    "td3": ("critic_loss", "actor_loss"),
    "ddpg": ("critic_loss", "actor_loss"),
}
"""What an algorithm's updates say about themselves, in order."""


@dataclass(frozen=True)
class AgentSettings:
    """How an agent learns and explores. ``AgentSettings.defaults(algo)`` gives SB3's defaults."""

    algo: str = "sac"
    """``sac``, ``td3`` or ``ddpg``."""
    learning_rate: float | str = 3e-4
    """Step size of every optimizer; ``"lin_7.3e-4"`` falls linearly to zero over the run."""
    batch_size: int = 256
    """Transitions a gradient update learns from."""
    tau: float = 0.005
    """Share of the new parameters that enters the target networks at every update."""
    gamma: float = 0.99
    """Discount factor."""
    net_arch: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    ent_coef: float | str = "auto"
    """SAC's entropy coefficient: fixed, learned (``"auto"``), or learned from ``"auto_0.1"``."""
    target_entropy: float | str = "auto"
    """Entropy that a learned coefficient aims at; ``"auto"`` is minus the number of actions."""
    target_update_interval: int = 1
    """SAC: gradient updates of one call between two updates of the target networks."""
    use_sde: bool = False
    """SAC: explore by generalised state-dependent exploration (gSDE)."""
    log_std_init: float = -3.0
    """Initial logarithm of gSDE's standard deviations."""
    sde_sample_freq: int = -1
    """Steps between two exploration matrices of gSDE; -1: one for every rollout."""
    policy_delay: int = 2
    """TD3: critic updates for every update of the actor and of the targets."""
    target_policy_noise: float = 0.2
    """TD3: standard deviation of the noise on the target actor's action."""
    target_noise_clip: float = 0.5
    """TD3: bound of that noise."""
    action_noise: str | None = None
    """Noise added to the actions taken: None, ``"normal"`` or ``"ornstein-uhlenbeck"``."""
    action_noise_std: float = 0.1
    """Standard deviation of the action noise, where actions span [-1, 1]."""
    sampler: str = "uniform"
    """Which sampler draws the batches: ``uniform``, ``prioritized`` or ``large_batch``."""
    engine: str = "fused"
    """What computes updates: ``fused`` (by hand, for a CPU), or ``jax``, an extra of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "net_arch", tuple(int(width) for width in self.net_arch))
        _choose("algo", self.algo, ALGORITHMS)
        _choose("sampler", self.sampler, SAMPLERS)
        _choose("engine", self.engine, ENGINES)
        _choose("action_noise", self.action_noise, ACTION_NOISES)
        for name in ("batch_size", "policy_delay", "target_update_interval"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        for name in ("target_policy_noise", "target_noise_clip", "action_noise_std"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, got {getattr(self, name)!r}")
        if not 0 < self.tau <= 1:
            raise ValueError(f"tau must be in (0, 1], got {self.tau!r}")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {self.gamma!r}")
        if any(width < 1 for width in self.net_arch) or not self.net_arch:
            raise ValueError(f"net_arch must hold positive widths, got {self.net_arch!r}")
        if self.use_sde and self.algo != "sac":
            raise ValueError(f"use_sde=True is for algo='sac', got algo={self.algo!r}")
        self.learning_rate_at(1.0)
        self.initial_entropy_coefficient()
        if self.target_entropy != "auto":
            _number("target_entropy", self.target_entropy)

    @classmethod
    def defaults(cls, algo: str, **overrides: Any) -> AgentSettings:
        """Return Stable-Baselines3's defaults for an algorithm, with some of them overridden."""
        _choose("algo", algo, ALGORITHMS)
        values: dict[str, Any] = {"algo": algo}
        if algo != "sac":
            values |= {"learning_rate": 1e-3, "net_arch": (400, 300)}
        if algo == "ddpg":
            values |= {"policy_delay": 1, "target_policy_noise": 0.1, "target_noise_clip": 0.0}
        return cls(**(values | overrides))

    @property
    def critics(self) -> int:
        """How many critics the algorithm learns."""
        return 1 if self.algo == "ddpg" else 2

    @property
    def learns_entropy_coefficient(self) -> bool:
        """Whether the entropy coefficient is learned."""
        return isinstance(self.ent_coef, str) and self.ent_coef.startswith("auto")

    def initial_entropy_coefficient(self) -> float:
        """Return the entropy coefficient that learning starts from."""
        text = self.ent_coef
        if isinstance(text, str) and text.startswith("auto"):
            text = text[5:] if text.startswith("auto_") else (1.0 if text == "auto" else text)
            value = _number("ent_coef", text)
            if value <= 0:
                raise ValueError(f"ent_coef={self.ent_coef!r} must start above 0")
            return value
        return _number("ent_coef", text)

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate when this fraction of the run (1 to 0) remains."""
        rate = self.learning_rate
        if isinstance(rate, str) and rate.startswith("lin_"):
            return _positive("learning_rate", rate[4:], rate) * progress
        return _positive("learning_rate", rate, rate)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self) | {"net_arch": list(self.net_arch)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AgentSettings:
        """Rebuild settings from ``to_dict``'s values."""
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise ValueError(f"unknown agent settings {sorted(unknown)}; known: {sorted(known)}")
        return cls(**values)


def check_engine(engine: str) -> None:
    """Raise where the packages of an engine are missing.

    Raises:
        ModuleNotFoundError: With the command that installs them.
    """
    for package in ("jax", "optax") if engine == "jax" else ():
        if find_spec(package) is None:
            raise ModuleNotFoundError(
                f"engine={engine!r} needs {package}, which is not installed: "
                "pip install \"frugalrl[jax]\", or use engine='fused', which needs neither",
                name=package,
            )


def _choose(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number or 'auto', got {value!r}")
    return number


def _positive(name: str, value: Any, shown: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a positive number or 'lin_<number>', got {shown!r}")
    return number
