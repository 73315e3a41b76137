"""frugalrl bench: a whole suite of experiments, with a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from frugalrl.commands.arguments import GridOptions, parse


@dataclass(frozen=True)
class Options(GridOptions):
    """Run a suite of experiments and write a report about it.

      frugalrl bench smoke                                    minutes, every method
      frugalrl bench paper --out results/paper --jobs 2 --only hopper,sac --scale 0.1 --dry-run
      frugalrl bench ablation --parameter epsilon --env Hopper-v5
      frugalrl bench paper --print > mine.toml                copy a suite, edit it, then:
      frugalrl bench mine.toml
      frugalrl bench paper --backend ray --address auto --storage s3://bucket/paper

    Killed and started again with the same options it does only what is missing.
    """

    suite: Annotated[str, tyro.conf.arg(metavar="SUITE")]
    """smoke, classic, paper, ablation, budget, budget-quick, small-actor, or a TOML file's path."""
    out: Path | None = None
    """Results directory; None: results/SUITE, after the file's name where the suite is a file."""
    only: str = ""
    """Tasks, algorithms and methods to keep, separated by commas: hopper,sac."""
    scale: float = 1.0
    """Multiplies the length of every run, its random start and the filter's warm-up."""
    seeds: str = ""
    """Number of seeds, or the seeds themselves: 0,1,2; empty: the suite's."""
    methods: str = ""
    """Other methods than the suite's, separated by commas."""
    parameter: str | None = None
    """What to vary: epsilon, eta, beta, mu, nu, kernel, bandwidth, on_equivalent, warmup."""
    values: tuple[str, ...] = ()
    """Its values; none: the suite's."""
    env: tuple[str, ...] = ()
    """Environments instead of the suite's."""
    algo: str | None = None
    """The algorithm for them; None: the suite's."""
    steps: int | None = None
    """Length of every run instead of the suite's."""
    print: bool = False
    """Print the suite's TOML and stop."""


def main(arguments: list[str]) -> int:
    """Run a suite."""
    options = parse(Options, arguments, "bench")
    from frugalrl.bench import suites
    from frugalrl.bench.errors import BenchError
    from frugalrl.bench.methods import PARAMETERS
    from frugalrl.commands.grids import run_grid

    if options.print:
        print(suites.suite_text(options.suite), end="")
        return 0
    suite = suites.load_suite(options.suite)
    if options.methods:
        suite = replace(suite, methods=suites.method_names(options.methods))
    if options.parameter is not None:
        suite = suites.with_sweep(suite, options.parameter, options.values)
    elif suite.sweeps or options.values:
        raise BenchError(f"say what to vary: --parameter {'|'.join(PARAMETERS)}")
    if options.env or options.algo:
        suite = suites.with_tasks(suite, options.env, options.algo)
    if options.steps is not None:
        tasks = tuple(replace(task, steps=options.steps) for task in suite.tasks)
        suite = replace(suite, tasks=tasks)
    if options.seeds:
        suite = replace(suite, seeds=suites.parse_seeds(options.seeds))
    if options.only:
        suite = suites.choose(suite, suites.method_names(options.only))
    out = options.out or Path("results") / Path(options.suite).stem
    return run_grid(options, suite, out, ["bench", *arguments], scale=options.scale)
