"""frugalrl demo: the same reward from a fraction of the buffer's bytes, and what else gives it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frugalrl.commands.arguments import parse

if TYPE_CHECKING:
    from frugalrl.bench.aggregate import Summary

DESCRIPTION = """Train SAC on MountainCarContinuous-v0 with an ordinary buffer, with the frugal
filter, and with two buffers of the filter's size that choose blindly: a ring, and one that
overwrites at random. Two runs at a time; then a table and a report with plots. Takes about two
minutes on two cores, after compiling once."""

ENV = "MountainCarContinuous-v0"
METHODS = ("baseline", "fac", "small", "random-slot")
WARMUP_STEPS = 2_000


@dataclass(frozen=True)
class Options:
    """Show what a frugal buffer does."""

    out: Path = Path("runs/demo")
    """Where runs and report go; the same again goes on where it stopped."""
    steps: int = 20_000
    """Steps of each run."""
    seed: int = 0
    """Seed of all runs."""
    open: bool = False
    """Open the report in the browser."""


def main(arguments: list[str]) -> int:
    """Run the demo."""
    options = parse(Options, arguments, "demo", DESCRIPTION)
    from dataclasses import replace

    from frugalrl.bench.command import execute
    from frugalrl.bench.plan import comparison

    suite = replace(
        comparison(ENV, "sac", options.steps, METHODS),
        name="demo",
        seeds=(options.seed,),
        evaluations=20,
        settings={"eval_episodes": 3, "final_episodes": 50, "checkpoint_every": 0},
        frugal={"fac_warmup_steps": min(WARMUP_STEPS, options.steps // 2)},
    )
    print(f"{len(METHODS)} runs of SAC on {ENV}, {options.steps:,} steps each", flush=True)
    return execute(
        suite,
        options.out,
        jobs=min(2, os.cpu_count() or 1),
        open_report=options.open,
        command=shlex.join(["frugalrl", "demo", *arguments]),
        closing=closing_lines,
    )


def closing_lines(summary: Summary) -> list[str]:
    """Put the results into a table, and say what it does and does not show."""
    from frugalrl.bench.command import result_lines
    from frugalrl.bench.report.table import show

    lines = result_lines(summary, words=False)
    found = [summary.get(task, name) for task in summary.results.tasks for name in METHODS]
    if None in found or len(found) != len(METHODS):
        return lines
    plain, frugal, ring, chance = (entry for entry in found if entry is not None)
    saved = 1 - frugal.bytes / plain.bytes
    amount = f"{abs(saved):.0%} {'fewer' if saved >= 0 else 'more'} bytes"
    rewards = [entry.reward.value for entry in (plain, frugal, ring, chance)]
    words = [
        f"The frugal buffer ended with {frugal.size / plain.size:.0%} of the transitions and "
        f"{amount}, its filter included.",
        f"Reward: {show(rewards[1], 1)} against {show(rewards[0], 1)}. Of the same size, a ring "
        f"got {show(rewards[2], 1)} and overwriting at random {show(rewards[3], 1)}.",
    ]
    if min(rewards[2:]) >= rewards[1] - 0.05 * abs(rewards[0]):
        words.append("So here a small buffer is enough, whatever it keeps.")
    words.append("One seed is no evidence about a method: `frugalrl compare` trains with more.")
    return [*lines, "", *words]
