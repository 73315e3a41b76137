"""A run in lines of text."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

import numpy as np

from frugalrl.training.progress import duration
from frugalrl.training.resolve import Resolved
from frugalrl.training.result import TrainResult

_SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "sac": (
        *("ent_coef", "target_entropy", "target_update_interval"),
        *("use_sde", "log_std_init", "sde_sample_freq"),
    ),
    "td3": ("policy_delay", "target_policy_noise", "target_noise_clip"),
    "ddpg": (),
}
_ONLY_FOR_SOME = {name for names in _SETTINGS_OF.values() for name in names}


def concerns(algo: str, name: str) -> bool:
    """Tell whether a setting means something to an algorithm."""
    return name not in _ONLY_FOR_SOME or name in _SETTINGS_OF[algo]


def configuration_lines(resolved: Resolved) -> list[str]:
    """Say what will be run, and where each setting comes from."""
    config = resolved.config
    admission = config.admission if isinstance(config.admission, str) else config.admission.name
    head = f"{config.env_name}  {config.algo}  admission {admission}  seed {config.seed}"
    lines = [head if config.out is None else f"{head}  ->  {config.out}"]
    groups: dict[str, list[str]] = {"given": [], "preset": [], "default": []}
    for name, origin in resolved.origins.items():
        if not concerns(config.algo, name):
            continue
        if name == "buffer_size" and config.buffer_bytes is not None:
            continue
        if name.startswith("fac_") and admission != "fac":
            continue
        if name == "action_noise_std" and config.action_noise == "none":
            continue
        groups[origin].append(f"{name} {_show(getattr(config, name))}")
    named = set(resolved.origins) | {"env", "algo", "admission", "seed", "out"}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in named and value not in (field.default, None, {}):
            groups["given"].append(f"{field.name} {_show(value)}")
    for group, settings in groups.items():
        if settings:
            text = f"  {group + ':':<9}{', '.join(settings)}"
            lines += textwrap.wrap(text, 100, subsequent_indent=" " * 11)
    lines += [f"  note: {note}" for note in resolved.notes]
    return lines


def result_lines(result: TrainResult) -> list[str]:
    """Say how a run ended."""
    stats = result.buffer.stats
    lines = [
        f"{result.env_steps:,} steps in {duration(result.train_seconds)} of training "
        f"({result.env_steps / max(result.train_seconds, 1e-9):,.0f} steps/s), "
        f"{duration(result.wall_seconds)} in all, "
        f"peak memory {_megabytes(result.peak_memory_bytes)}"
    ]
    if result.final is not None:
        final = result.final
        rate = final.success_rate
        lines.append(
            f"final policy: reward {final.mean:,.1f} ({spread(final.rewards)}), "
            f"control cost {final.control_costs.mean():,.1f}"
            + ("" if rate is None else f", success rate {rate:.0%}")
        )
    lines.append(
        f"buffer: {len(result.buffer):,} transitions in {_megabytes(result.buffer.nbytes)}; "
        f"offered {stats.offered:,}, stored {stats.stored:,}, replaced {stats.replaced:,}, "
        f"dropped {stats.dropped:,}, evicted {stats.evicted:,}"
    )
    if stats.rejected_nonfinite:
        lines.append(f"refused {stats.rejected_nonfinite:,} transitions that were not finite")
    if result.directory is not None:
        lines.append(f"files: {result.directory}")
    return lines


def spread(rewards: Any) -> str:
    """Say how far rewards of episodes spread; an interval only from 3 of them on."""
    count = len(rewards)
    if count < 3:
        return f"over {count} episode{'s' if count > 1 else ''}"
    low, high = mean_interval(rewards)
    return (
        f"95 % interval of the mean over {count} episodes: {low:,.1f} to {high:,.1f}; "
        f"sd {np.std(rewards):,.1f}"
    )


def mean_interval(values: Any, level: float = 0.95, draws: int = 2000) -> tuple[float, float]:
    """Give a bootstrap interval of the mean, the same every time for the same values."""
    sample = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(0)
    means = sample[generator.integers(len(sample), size=(draws, len(sample)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
