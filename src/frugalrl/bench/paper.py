"""The paper's published tables, and the derived numbers in them that do not follow from the others.

Singh and Saha, "Frugal Actor-Critic", AAMAS 2024: the tables of benchmarks, of the comparison with
SAC and TD3, of control cost and of the comparison with LaBER, as printed.
"""

from __future__ import annotations

import csv
from functools import cache

from frugalrl.bench.methods import data_text

PublishedRow = dict[str, str]


@cache
def table(name: str) -> tuple[PublishedRow, ...]:
    """Read a table: `benchmarks`, `full`, `control_cost` or `laber`, or the `misprints` in them.

    A misprint's kind is `misprint`: off by a unit of the last printed digit or more; `last digit`:
    by less, though neither rounding nor cutting gives it; `left blank`: a dash where the number is
    not zero; `translated`: follows if the rewards are first shifted as for P, unlike elsewhere.
    """
    return tuple(csv.DictReader(data_text(f"paper_{name}.csv").splitlines()))


def benchmark_name(env: str) -> str | None:
    """Find the paper's name of an environment, whatever its version; None for others."""
    name = env.rsplit("/", 1)[-1].partition("-v")[0].lower()
    return next(
        (row["benchmark"] for row in table("benchmarks") if row["environment"] == name), None
    )


def published(name: str, env: str, algo: str = "") -> PublishedRow | None:
    """Find the published row of an environment and algorithm, or None."""
    benchmark = benchmark_name(env)
    for row in table(name):
        if row["benchmark"] == benchmark and row.get("algorithm", "").lower() in ("", algo.lower()):
            return row
    return None
