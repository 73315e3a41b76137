"""frugalrl compare: several methods on one task, with a report."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from frugalrl.commands.arguments import GridOptions, parse


@dataclass(frozen=True)
class Options(GridOptions):
    """Train several methods on one task and write a report about them.

      frugalrl compare Pendulum-v1 --algo sac --methods baseline,fac,small,random-slot --seeds 5

    Killed and started again with the same options it does only what is missing. Methods: baseline,
    fac, fac-paper, fac-released, laber, per, fac+laber, fac+per, and the controls small,
    random-slot and random-drop. Parameters follow an @: fac@epsilon=0.1,mu=70, small@share=0.05,
    small@of=fac-paper.
    """

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
    out: Path | None = None
    """Results directory; None: results/ENV-ALGO."""


def main(arguments: list[str]) -> int:
    """Compare."""
    options = parse(Options, arguments, "compare")
    from frugalrl.bench.suites import comparison, method_names, parse_seeds
    from frugalrl.commands.grids import run_grid

    suite = comparison(options.env, options.algo, options.steps, method_names(options.methods))
    suite = replace(suite, seeds=parse_seeds(options.seeds), evaluations=options.evaluations)
    name = re.sub(r"[^\w.-]", "_", f"{options.env}-{options.algo}").lower()
    out = options.out or Path("results") / name
    return run_grid(options, suite, out, ["compare", *arguments])
