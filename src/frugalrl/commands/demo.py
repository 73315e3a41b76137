"""frugalrl demo: SAC with and without a frugal buffer, side by side."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frugalrl.commands.arguments import parse

DESCRIPTION = """Train SAC on Pendulum-v1 with an ordinary and with a frugal buffer, at the same
time on two cores, then print a table and write a report with plots. Takes about two minutes."""

ENV = "Pendulum-v1"
NAMES = {"baseline": "SAC", "fac": "FAC-SAC"}


@dataclass(frozen=True)
class Options:
    """Show what a frugal buffer does."""

    out: Path = Path("runs/demo")
    """Where runs and report go; the same again goes on where it stopped."""
    steps: int = 20_000
    """Steps of each run."""
    seed: int = 0
    """Seed of both runs."""
    open: bool = False
    """Open the report in the browser."""


def main(arguments: list[str]) -> int:
    """Run the demo."""
    options = parse(Options, arguments, "demo", DESCRIPTION)
    from dataclasses import replace

    from frugalrl.bench.command import execute
    from frugalrl.bench.plan import comparison
    from frugalrl.bench.results import read_results

    suite = replace(
        comparison(ENV, "sac", options.steps, tuple(NAMES)),
        name="demo",
        seeds=(options.seed,),
        evaluations=20,
    )
    print(f"training SAC and FAC-SAC on {ENV}, {options.steps:,} steps each ...", flush=True)
    command = shlex.join(["frugalrl", "demo", *arguments])
    jobs = min(len(NAMES), os.cpu_count() or 1)
    code = execute(suite, options.out, jobs=jobs, open_report=options.open, command=command)
    if code:
        return code
    runs = {result.run.method: result for result in read_results(options.out).runs}
    finals = {
        NAMES[method]: json.loads((runs[method].directory / "run" / "final.json").read_text())
        for method in NAMES
    }
    print("\n".join(["", *table(finals), "", *verdict(finals)]))
    print(f"report: {options.out / 'report.html'}")
    return 0


def table(finals: dict[str, dict[str, Any]]) -> list[str]:
    """Compare runs, one a line, by what their final.json says."""
    from frugalrl.training.report import mean_interval

    rows: list[Sequence[str]] = [("", "reward", "95 % interval", "buffer", "bytes", "training")]
    for name, final in finals.items():
        rewards = final["final"]["rewards"]
        low, high = mean_interval(rewards)
        rows.append(
            (
                name,
                f"{final['final']['reward_mean']:,.1f}",
                f"{low:,.1f} to {high:,.1f}",
                f"{final['buffer']['size']:,}",
                f"{final['buffer']['bytes'] / 1e6:,.2f} MB",
                f"{final['train_seconds']:,.0f} s",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def verdict(finals: dict[str, dict[str, Any]]) -> list[str]:
    """Say what the table does and does not show."""
    plain, frugal = (final["buffer"] for final in finals.values())
    cut = 1 - frugal["size"] / plain["size"]
    episodes = len(next(iter(finals.values()))["final"]["rewards"])
    lines = [f"The frugal buffer holds {cut:.0%} fewer transitions."]
    if frugal["bytes"] > plain["bytes"]:
        lines.append(
            f"It takes more bytes all the same: observations are so small here that the filter's "
            f"own {frugal['filter_bytes'] / 1e6:.2f} MB\noutweigh what it saves."
        )
    return [
        *lines,
        f"The intervals are over {episodes} evaluation episodes of one trained policy each: one "
        "seed is no evidence\nabout a method. `frugalrl compare` trains with more.",
    ]
