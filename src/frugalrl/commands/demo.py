"""frugalrl demo: the reward with FAC's filter, and from a fifth of the buffer."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from frugalrl.commands.arguments import GridOptions, parse

if TYPE_CHECKING:
    from frugalrl.bench.aggregate import Summary

ENV = "Pendulum-v1"
_SHARE = 0.2
DEMO_METHODS = ("baseline", "fac", f"random-slot@share={_SHARE}", f"small@share={_SHARE}")
_WARMUP_STEPS = 2_000
_EPISODES, _FINAL_EPISODES = 5, 50


@dataclass(frozen=True)
class Options:
    """Train SAC on Pendulum-v1 with an ordinary buffer, with FAC's filter and with small buffers.

    These two hold a fifth of the transitions: one overwrites at random, the other the oldest.
    Two runs at a time; then a table and a report with plots. Takes about two minutes on two cores,
    after compiling once.
    """

    out: Path = Path("runs/demo")
    """Where runs and report go; the same again goes on where it stopped."""
    steps: int = 20_000
    """Steps of each run."""
    seeds: int = 2
    """Runs of each method."""
    open: bool = False
    """Open the report in the browser."""


def main(arguments: list[str]) -> int:
    """Run the demo."""
    options = parse(Options, arguments, "demo")
    from frugalrl.bench.suites import comparison, parse_seeds
    from frugalrl.commands.grids import run_grid

    suite = replace(
        comparison(ENV, "sac", options.steps, DEMO_METHODS),
        name="demo",
        seeds=parse_seeds(options.seeds),
        evaluations=20,
        settings={
            "eval_episodes": _EPISODES,
            "final_episodes": _FINAL_EPISODES,
            "checkpoint_every": 0,
        },
        frugal={"fac_warmup_steps": min(_WARMUP_STEPS, options.steps // 2)},
    )
    runs = len(DEMO_METHODS) * options.seeds
    print(f"{runs} runs of SAC on {ENV}, {options.steps:,} steps each", flush=True)
    how = GridOptions(jobs=min(2, os.cpu_count() or 1), open=options.open)
    return run_grid(how, suite, options.out, ["demo", *arguments], closing=closing_lines)


def closing_lines(summary: Summary) -> list[str]:
    """Put the results into a table, and say what it does and does not show."""
    from frugalrl.bench.report.table import show
    from frugalrl.commands.grids import summary_lines

    lines = summary_lines(summary, words=False)
    found = [summary.get(task, name) for task in summary.results.tasks for name in DEMO_METHODS]
    entries = [entry for entry in found if entry is not None]
    if len(entries) != len(DEMO_METHODS):
        return lines
    plain, fac, _, ring = entries
    late = [show(entry.late_reward.value, 1) for entry in entries]
    return [
        *lines,
        "",
        f"Reward over the second half of training: {late[0]} with all transitions.",
        f"From {ring.size / plain.size:.0%} of them, {ring.bytes / plain.bytes:.0%} of the bytes: "
        f"{late[3]} from a ring, {late[2]} where chance chooses what is overwritten.",
        f"FAC, which sets its size itself, kept {fac.size / plain.size:.0%} of the transitions in "
        f"{fac.bytes / plain.bytes:.0%} of the bytes: {late[1]}.",
        f"The final reward is that of {_FINAL_EPISODES} episodes, that of the second half of "
        f"{_EPISODES} others, the same each time.",
        f"{len(plain.seeds)} seeds are little evidence: `frugalrl bench budget-quick` has ten.",
    ]
