"""A run in lines of text: what it will do, how far it is, how it ended."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.training.config import CUSTOM, OF_THE_FILTER, Resolved, admission_text, concerns

if TYPE_CHECKING:
    from frugalrl.replay.buffer import ReplayBuffer
    from frugalrl.training.session import TrainResult

_EVERY = 0.25  # seconds between two pictures
_LINE_EVERY = 60.0  # seconds between two lines of a log
_WIDE = 140  # columns for title, bar and all numbers
_FEW_EPISODES = 10  # a bootstrap interval of fewer misses the true mean more than one time in ten


class Progress:
    """Shows how far a run is, on one line that renews itself or on a new line every minute.

    The line is live if `visible`; None: if the error stream is a terminal, else one per minute.
    """

    def __init__(self, visible: bool | None = None, title: str = "training") -> None:
        live = sys.stderr.isatty() if visible is None else visible
        self.visible = live or visible is None
        self._live = live
        self._title = title
        self._next = 0.0 if live else time.monotonic() + _LINE_EVERY
        # A few recent moments, so that the rate is the present one.
        self._marks: list[tuple[float, int]] = []
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            console = Console(stderr=True, force_terminal=True)
            # On a narrow terminal every number comes before the picture, on two lines if need be.
            picture = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn())
            self._bar = Bar(
                *(picture if console.width >= _WIDE else ()),
                TextColumn("{task.fields[text]}", table_column=Column(no_wrap=False)),
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, text="starting")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def due(self) -> bool:
        """Whether it is time for a new picture."""
        return self.visible and time.monotonic() >= self._next

    def show(
        self, env_steps: int, steps: int, buffer: ReplayBuffer, eval_reward: float | None = None
    ) -> None:
        """Renew the line, `env_steps` of `steps` being done."""
        from frugalrl.compiling import COMPILATION

        now = time.monotonic()
        self._next = now + (_EVERY if self._live else _LINE_EVERY)
        # Without the time for compiling, which says nothing of the steps to come.
        self._marks = [*self._marks[-40:], (now - COMPILATION.seconds, env_steps)]
        text = describe(env_steps, steps, self.rate(), buffer, eval_reward)
        self.note(text, total=steps, completed=env_steps)
        if self.visible and not self._live:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)

    def note(self, text: str, **progress: int) -> None:
        """Show an activity in place of the numbers."""
        if self._bar is not None:
            self._bar.update(self._task, text=text, refresh=True, **progress)

    def rate(self) -> float | None:
        """Give the steps per second of the last moments, None before there are two."""
        (begin, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - begin) if end > begin else None


def describe(
    env_steps: int, steps: int, rate: float | None, buffer: ReplayBuffer, eval_reward: float | None
) -> str:
    """Put how far a run is into words."""
    parts = [f"{env_steps:,}/{steps:,} steps"]
    if rate:
        parts += [f"{rate:,.0f}/s", f"{duration((steps - env_steps) / rate)} left"]
    if eval_reward is not None:
        parts.append(f"eval {eval_reward:,.1f}")
    parts.append(f"stored {buffer.stats.stored:,}/{buffer.stats.offered:,}")
    parts.append(_megabytes(buffer.nbytes))
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Write a time span: 45s, 12m30s, 3h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def configuration_lines(resolved: Resolved) -> list[str]:
    """Say what will be run, and where each setting comes from."""
    config = resolved.config
    admission = admission_text(config.admission).removeprefix(CUSTOM)
    head = f"{config.env_name}  {config.algo}  admission {admission}  seed {config.seed}"
    lines = [head if config.out is None else f"{head}  ->  {config.out}"]
    groups: dict[str, list[str]] = {"given": [], "preset": [], "default": []}
    for name, origin in resolved.origins.items():
        without_effect = (
            not concerns(config.algo, name)
            or (name == "buffer_size" and config.buffer_bytes is not None)
            or (name.startswith(OF_THE_FILTER) and admission != "fac")
            or (name == "action_noise_std" and config.action_noise == "none")
        )
        if not without_effect:
            groups[origin].append(f"{name} {_value_text(getattr(config, name))}")
    named = set(resolved.origins) | {"env", "algo", "admission", "seed", "out"}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in named and value not in (field.default, None, {}):
            groups["given"].append(f"{field.name} {_value_text(value)}")
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    for group, settings in groups.items():
        if settings:
            text = f"  {group + ':':<9}{', '.join(settings)}"
            lines += textwrap.wrap(text, width, subsequent_indent=" " * 11, break_on_hyphens=False)
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
    """Say how far rewards of episodes spread; an interval only where it is wide enough."""
    count = len(rewards)
    if count < 2:
        return "over 1 episode"
    deviation = f"sd {np.std(rewards, ddof=1):,.1f}"
    if count < _FEW_EPISODES:
        return f"over {count} episodes; {deviation}"
    low, high = mean_interval(rewards)
    return (
        f"95 % interval of the mean over {count} episodes: {low:,.1f} to {high:,.1f}; {deviation}"
    )


def mean_interval(values: Any) -> tuple[float, float]:
    """Give a 95 % bootstrap interval of the mean, the same every time for the same values."""
    # SciPy has a bootstrap too, but a run would end with a second of importing it.
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(sample), size=(2000, len(sample)))
    low, high = np.quantile(sample[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def _value_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"
