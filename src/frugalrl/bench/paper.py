"""The paper's published tables, their derived columns recomputed, and the misprints found so.

Singh and Saha, "Frugal Actor-Critic", AAMAS 2024: the tables of benchmarks, of the comparison with
SAC and TD3, of control cost and of the comparison with LaBER, as printed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from frugalrl.bench import measures

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
    source = resources.files("frugalrl.bench").joinpath(f"data/paper_{name}.csv")
    return tuple(csv.DictReader(source.read_text(encoding="utf-8").splitlines()))


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
    found = [
        *_recomputed("full", "baseline", "Comparison with SAC and TD3"),
        *_recomputed("laber", "laber", "Comparison with LaBER"),
    ]
    return [entry for entry in found if entry.kind != "agrees"]


def _recomputed(name: str, other: str, where: str) -> Iterator[Misprint]:
    """Judge every derived entry of a table that compares FAC with another method."""
    full = {(row["benchmark"], row["algorithm"]): row for row in table("full")}
    for row in table(name):
        label = f"{row['benchmark']} ({row['algorithm']})"
        points, rewards = (
            (float(row[f"{what}_{other}"]), float(row[f"{what}_fac"])) for what in ("cp", "reward")
        )
        # LaBER's buffer is the baseline's: the paper says so below the table.
        both = full[row["benchmark"], row["algorithm"]]
        sizes = float(both["buffer_baseline"]), float(both["buffer_fac"])
        gain = measures.convergence_gain(*points)
        yield _judge(where, label, "Delta CP", row["delta_cp_percent"], gain)
        if "buffer_cut_percent" in row:
            cut = measures.buffer_cut(*sizes)
            yield _judge(where, label, "buffer cut", row["buffer_cut_percent"], cut)
        change = measures.reward_change(*rewards)
        entry = _judge(where, label, "Delta R", row["delta_reward_percent"], change)
        shifted = measures.reward_change(*measures.translate_rewards(*rewards))
        if entry.kind == "misprint" and _kind(entry.printed, shifted) == "agrees":
            entry = replace(entry, kind="translated")
        yield entry
        efficiency = measures.sample_efficiency(rewards[0], sizes[0], rewards[1], sizes[1])
        yield _judge(where, label, "P", row["sample_efficiency_P"], efficiency)


def _judge(table: str, row: str, column: str, printed: str, recomputed: float) -> Misprint:
    return Misprint(table, row, column, printed, recomputed, _kind(printed, recomputed))


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
