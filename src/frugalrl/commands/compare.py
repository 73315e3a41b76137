"""frugalrl compare: several methods on one task, with a report."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from frugalrl.commands.arguments import BackendOptions, parse

DESCRIPTION = """Train several methods on one task and write a report about them.

  frugalrl compare Pendulum-v1 --algo sac --methods baseline,fac,small,random-slot --seeds 5

Killed and started again with the same options it does only what is missing. Methods: baseline,
fac, fac-paper, laber, per, fac+laber, fac+per, and the controls small, random-slot and random-drop.
Parameters follow an @: fac@epsilon=0.1,mu=70, small@share=0.05, small@of=fac-paper."""


@dataclass(frozen=True)
class Options(BackendOptions):
    """Compare methods on one task."""

    env: Annotated[str, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id."""
    algo: str = "sac"
    """sac, td3 or ddpg."""
    methods: str = "baseline,fac,laber"
    """What to compare, separated by commas."""
    seeds: str = "5"
    """Number of seeds, or the seeds themselves: 0,1,2."""
    steps: int | None = None
    """Length of a run; None takes the preset's."""
    evaluations: int = 25
    """Points on a learning curve."""
    set: tuple[str, ...] = ()
    """Settings of every run, as name=value: learning_starts=500 fac_bins=70."""
    out: Path | None = None
    """Results directory; None: results/ENV-ALGO."""
    jobs: int = 1
    """Runs at a time on this machine, each on its own core."""
    dry_run: bool = False
    """Only list the runs, and estimate their time from a short calibration."""
    keep_buffers: bool = False
    """Keep every run's final buffer."""
    open: bool = False
    """Open the report in the browser."""


def main(arguments: list[str]) -> int:
    """Compare."""
    options = parse(Options, arguments, "compare", DESCRIPTION)
    from frugalrl.bench.command import execute
    from frugalrl.bench.suites import comparison, method_names, parse_seeds, with_settings

    suite = comparison(options.env, options.algo, options.steps, method_names(options.methods))
    suite = replace(suite, seeds=parse_seeds(options.seeds), evaluations=options.evaluations)
    name = re.sub(r"[^\w.-]", "_", f"{options.env}-{options.algo}").lower()
    out = options.out or Path("results") / name
    return execute(
        with_settings(suite, options.set),
        out,
        jobs=options.jobs,
        dry_run=options.dry_run,
        keep_buffers=options.keep_buffers,
        open_report=options.open,
        command=shlex.join(["frugalrl", "compare", *arguments]),
        backend=options.make_backend(out, keep_buffers=options.keep_buffers),
    )
