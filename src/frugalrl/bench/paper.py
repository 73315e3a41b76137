"""The paper's published tables, their derived columns recomputed, and the misprints found so.

Singh and Saha, "Frugal Actor-Critic", AAMAS 2024: the tables of benchmarks, of the comparison with
SAC and TD3, of control cost and of the comparison with LaBER, as printed.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache

from frugalrl.bench import measures
from frugalrl.bench.methods import data_text

Row = dict[str, str]

BENCHMARKS = {
    "pendulum": "Pendulum",
    "mountaincarcontinuous": "MCC",
    "lunarlandercontinuous": "LLC",
    "swimmer": "Swimmer",
    "reacherbulletenv": "Reacher",
    "hopper": "Hopper",
    "walker2d": "Walker",
    "ant": "Ant",
    "humanoid": "Humanoid",
}
"""The paper's name of each environment, by the id's lower-case name without its version."""


@dataclass(frozen=True)
class Misprint:
    """A printed derived number that does not follow from the raw numbers of its own row."""

    table: str
    row: str
    column: str
    printed: str
    recomputed: float
    kind: str
    """`misprint`: off by a unit of the last printed digit or more; `last digit`: by less, though
    neither rounding nor cutting gives it; `left blank`: a dash where the number is not zero;
    `translated`: follows only if the rewards are first shifted as for P, unlike elsewhere."""


@cache
def table(name: str) -> tuple[Row, ...]:
    """Read a published table: `benchmarks`, `full`, `control_cost` or `laber`."""
    return tuple(csv.DictReader(data_text(f"paper_{name}.csv").splitlines()))


def benchmark_name(env: str) -> str | None:
    """Find the paper's name of an environment, whatever its version; None for others."""
    name = env.rsplit("/", 1)[-1].partition("-v")[0].lower()
    return BENCHMARKS.get(name)


def published(name: str, env: str, algo: str = "") -> Row | None:
    """Find the published row of an environment and algorithm, or None."""
    benchmark = benchmark_name(env)
    for row in table(name):
        if row["benchmark"] == benchmark and row.get("algorithm", "").lower() in ("", algo.lower()):
            return row
    return None


def misprints() -> list[Misprint]:
    """List every derived entry of the paper that its own row contradicts."""
    found = []
    full = {(row["benchmark"], row["algorithm"]): row for row in table("full")}
    rows = [(row, "baseline", "Comparison with SAC and TD3") for row in table("full")]
    rows += [(row, "laber", "Comparison with LaBER") for row in table("laber")]
    for row, other, where in rows:
        label = f"{row['benchmark']} ({row['algorithm']})"
        points, rewards = (
            (float(row[f"{what}_{other}"]), float(row[f"{what}_fac"])) for what in ("cp", "reward")
        )
        # LaBER's buffer is the baseline's: the paper says so below the table.
        both = full[row["benchmark"], row["algorithm"]]
        sizes = float(both["buffer_baseline"]), float(both["buffer_fac"])
        shifted = measures.reward_change(*measures.translate_rewards(*rewards))
        efficiency = measures.sample_efficiency(rewards[0], sizes[0], rewards[1], sizes[1])
        for column, key, recomputed in (
            ("Delta CP", "delta_cp_percent", measures.reduction(*points)),
            ("buffer cut", "buffer_cut_percent", measures.reduction(*sizes)),
            ("Delta R", "delta_reward_percent", measures.reward_change(*rewards)),
            ("P", "sample_efficiency_P", efficiency),
        ):
            kind = _kind(row[key], recomputed) if key in row else "agrees"
            if column == "Delta R" and kind == "misprint" and _kind(row[key], shifted) == "agrees":
                kind = "translated"
            if kind != "agrees":
                found.append(Misprint(where, label, column, row[key], recomputed, kind))
    return found


def _kind(printed: str, recomputed: float) -> str:
    try:
        number = float(printed)
    except ValueError:
        return "agrees" if recomputed == 0.0 else "left blank"
    unit = 10.0 ** -len(printed.partition(".")[2])
    cut = math.trunc(recomputed / unit) * unit
    distance = abs(number - recomputed)
    slack = 1e-9 * max(1.0, abs(recomputed))
    if distance <= unit / 2 + slack or abs(number - cut) <= slack:
        return "agrees"
    return "last digit" if distance < unit else "misprint"
