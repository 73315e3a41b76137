"""Settings of an agent, in Stable-Baselines3's words and with its defaults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from typing import Any

from frugalrl.checks import check_choice, integer_from, is_positive, number_from

ALGORITHMS = ("sac", "td3", "ddpg")
SAMPLER_NAMES = ("uniform", "prioritized", "large_batch")
ENGINES = ("fused", "jax")
ACTION_NOISES = ("normal", "ornstein-uhlenbeck")
LOSSES = {
    "sac": ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss"),
    "td3": ("critic_loss", "actor_loss"),
    "ddpg": ("critic_loss", "actor_loss"),
}
"""What an algorithm's updates say about themselves, in order."""


@dataclass(frozen=True)
class NetArch:
    """Widths of the hidden layers where actor and critics differ."""

    pi: tuple[int, ...]
    """The actor's."""
    qf: tuple[int, ...]
    """Every critic's."""

    def __str__(self) -> str:
        return " and ".join("x".join(map(str, widths)) for widths in (self.pi, self.qf))


@dataclass(frozen=True)
class AgentSettings:
    """How an agent learns and explores. ``AgentSettings.defaults(algo)`` gives SB3's defaults.

    A field means what ``TrainConfig`` says of the field of its name; without action noise,
    ``action_noise`` is None.
    """

    algo: str = "sac"
    learning_rate: float | str = 3e-4
    batch_size: int = 256
    tau: float = 0.005
    gamma: float = 0.99
    net_arch: tuple[int, ...] | NetArch = (256, 256)
    ent_coef: float | str = "auto"
    target_entropy: float | str = "auto"
    target_update_interval: int = 1
    use_sde: bool = False
    log_std_init: float = -3.0
    sde_sample_freq: int = -1
    policy_delay: int = 2
    target_policy_noise: float = 0.2
    target_noise_clip: float = 0.5
    action_noise: str | None = None
    action_noise_std: float = 0.1
    sampler: str = "uniform"
    engine: str = "fused"

    def __post_init__(self) -> None:
        object.__setattr__(self, "net_arch", net_arch_from(self.net_arch))
        check_choice("algo", self.algo, ALGORITHMS)
        check_choice("sampler", self.sampler, SAMPLER_NAMES)
        check_choice("engine", self.engine, ENGINES)
        if self.action_noise is not None:
            check_choice("action_noise", self.action_noise, ACTION_NOISES)
        for name in ("batch_size", "policy_delay", "target_update_interval"):
            integer_from(name, getattr(self, name), 1)
        for name in ("target_policy_noise", "target_noise_clip", "action_noise_std"):
            number_from(name, getattr(self, name), "a number from 0", lambda x: 0 <= x < math.inf)
        number_from("tau", self.tau, "a number above 0 and up to 1", lambda x: 0 < x <= 1)
        number_from("gamma", self.gamma, "a number from 0 to 1", lambda x: 0 <= x <= 1)
        if self.use_sde and self.algo != "sac":
            raise ValueError(f"use_sde=True is for algo='sac', got algo={self.algo!r}")
        self.learning_rate_at(1.0)
        self.initial_entropy_coefficient()
        if self.target_entropy != "auto":
            use = "a finite number or 'auto'"
            _parse("target_entropy", self.target_entropy, use, math.isfinite)

    @classmethod
    def defaults(cls, algo: str, **overrides: Any) -> AgentSettings:
        """Return Stable-Baselines3's defaults for an algorithm, with some of them overridden."""
        values: dict[str, Any] = {"algo": algo}
        if algo != "sac":
            values |= {"learning_rate": 1e-3, "net_arch": (400, 300)}
        if algo == "ddpg":
            values |= {"policy_delay": 1, "target_policy_noise": 0.1, "target_noise_clip": 0.0}
        return cls(**(values | overrides))

    @property
    def actor_arch(self) -> tuple[int, ...]:
        """Widths of the actor's hidden layers."""
        return self.net_arch.pi if isinstance(self.net_arch, NetArch) else self.net_arch

    @property
    def critic_arch(self) -> tuple[int, ...]:
        """Widths of every critic's hidden layers."""
        return self.net_arch.qf if isinstance(self.net_arch, NetArch) else self.net_arch

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
        if self.ent_coef == "auto":
            return 1.0
        use = "a finite number, 'auto' or 'auto_<number above 0>'"
        accepts = is_positive if self.learns_entropy_coefficient else math.isfinite
        return _parse("ent_coef", self.ent_coef, use, accepts, prefix="auto_")

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate when this fraction of the run (1 to 0) remains."""
        rate, use = self.learning_rate, "a number above 0 or 'lin_<number above 0>'"
        initial = _parse("learning_rate", rate, use, is_positive, prefix="lin_")
        return initial * progress if str(rate).startswith("lin_") else initial

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self) | {"net_arch": net_arch_to_json(self.net_arch)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AgentSettings:
        """Rebuild settings from ``to_dict``'s values."""
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise ValueError(f"unknown agent settings {sorted(unknown)}; known: {sorted(known)}")
        return cls(**values)


def net_arch_from(value: Any) -> tuple[int, ...] | NetArch:
    """Read ``net_arch``: widths, a dictionary of the actor's and the critics', or its JSON text.

    Raises:
        ValueError: It is none of these.
    """
    try:
        given = json.loads(value) if isinstance(value, str) else value
        if isinstance(given, Mapping):
            given = NetArch(**given)
        if not isinstance(given, NetArch):
            return _widths(given)
        pi, qf = _widths(given.pi), _widths(given.qf)
        return pi if pi == qf else NetArch(pi, qf)
    except (TypeError, ValueError):
        raise ValueError(
            f"net_arch={value!r} is no list of widths from 1; use (64, 64) for all networks or "
            '{"pi": [64, 64], "qf": [256, 256]} for the actor and the critics'
        ) from None


def net_arch_to_json(value: Any) -> Any:
    """Give ``net_arch``, in whatever form, as a list or a dictionary of two."""
    arch = net_arch_from(value)
    if isinstance(arch, NetArch):
        return {"pi": list(arch.pi), "qf": list(arch.qf)}
    return list(arch)


def _widths(value: Iterable[int]) -> tuple[int, ...]:
    widths = tuple(integer_from("net_arch", width, 1) for width in value)
    if not widths:
        raise ValueError("no layer")
    return widths


def check_engine(engine: str) -> None:
    """Raise where the packages of an engine are missing.

    Raises:
        ModuleNotFoundError: With the command that installs them.
    """
    for package in ("jax", "optax"):
        if engine == "jax" and find_spec(package) is None:
            raise ModuleNotFoundError(
                f"engine={engine!r} needs {package}, which is not installed: "
                "pip install \"frugalrl[jax]\", or use engine='fused', which needs neither",
                name=package,
            )


def _parse(
    name: str, value: Any, use: str, accepts: Callable[[float], bool], prefix: str = ""
) -> float:
    """Read a number, or the text of one, which may have a prefix, from a setting."""
    try:
        number = float(value.removeprefix(prefix) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = math.nan
    if not accepts(number):
        raise ValueError(f"{name}={value!r} is out of range; use {use}")
    return number
