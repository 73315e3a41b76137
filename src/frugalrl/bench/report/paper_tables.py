"""The paper's four tables with our numbers beside the published ones, and its misprints."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from frugalrl.bench import measures, paper
from frugalrl.bench.aggregate import (
    BASELINE,
    FAC,
    FRUGAL,
    MethodSummary,
    Summary,
    TaskKey,
    buffer_mean,
)
from frugalrl.bench.report.table import PUBLISHED_BELOW, Column, Entry, Table, number, show
from frugalrl.training.presets import find_preset

TASK = Column("Task", numeric=False)
METHOD = Column("Method", numeric=False)
_MEANING = (
    "CP, the convergence point: the step from which the mean of the last 100 training episodes "
    "stays within 10 % of its best; a run that never settles counts as its length. |R|: "
    "transitions in the buffer at the end. R: mean reward of the final episodes as the paper "
    "measured it, the policy acting with its own randomness, the last step's reward left out; the "
    "full reward of the deterministic policy beside it. P: reward per stored transition, relative."
)


def task_name(task: TaskKey) -> str:
    """Write a task as the paper does."""
    return f"{task[0]} ({task[1].upper()})"


def full_table(summary: Summary) -> Table | None:
    """Build the paper's main table: convergence, buffer, reward, P against the baseline."""
    rows = [
        [*_head(summary, task, frugal.method), *_comparison(other, frugal, printed, "baseline")]
        for task, other, frugal, printed in _pairs(summary, BASELINE, "full")
    ]
    return Table(
        "full",
        "FAC against the baseline",
        "The paper's main table, a row for its method and a row for ours: our number above, the "
        f"published one (one run) below. {_MEANING} The paper's ± is the spread of one policy's "
        "100 episodes, ours that of the seeds.",
        [TASK, METHOD, *_comparison_columns("B", "the baseline")],
        rows,
        "paper",
    )


def laber_table(summary: Summary) -> Table | None:
    """Build the paper's comparison of FAC with LaBER."""
    rows = [
        [*_head(summary, task, frugal.method), *_comparison(other, frugal, printed, "laber")]
        for task, other, frugal, printed in _pairs(summary, "laber", "laber")
    ]
    return Table(
        "laber",
        "FAC against LaBER",
        f"Our number above, the published one below. {_MEANING} LaBER's batch size here is the "
        "baseline's; the released code used a quarter of it.",
        [TASK, METHOD, *_comparison_columns("L", "LaBER")],
        rows,
        "paper",
    )


def control_cost_table(summary: Summary) -> Table | None:
    """Build the paper's table of control cost."""
    rows = []
    for task, baseline, frugal, printed in _pairs(summary, BASELINE, "control_cost"):
        entries = [
            entry
            for found, side in ((baseline, "baseline"), (frugal, "fac"))
            for entry in (
                _spread(
                    found.paper_control_cost,
                    found.paper_control_cost_sd,
                    printed.get(f"cost_{side}"),
                    printed.get(f"cost_{side}_sd"),
                ),
                number(found.control_cost, 2),
            )
        ]
        rows.append([*_head(summary, task, frugal.method), *entries])
    return Table(
        "control-cost",
        "Control cost",
        "Sum over an episode of the squared norm of the action: mean ± spread over seeds, with the "
        "policy acting with its own randomness as in the paper, and without; the published number "
        "below, its ± "
        "over episodes.",
        [
            TASK,
            METHOD,
            Column("Baseline", "as the paper measured"),
            Column("deterministic", "the baseline's policy without randomness"),
            Column("FAC", "as the paper measured"),
            Column("deterministic", "FAC's policy without randomness"),
        ],
        rows,
        "paper",
    )


def benchmarks_table(summary: Summary) -> Table | None:
    """Build the paper's table of benchmarks, with the important dimensions found here."""
    rows = []
    for task in summary.results.tasks:
        runs = summary.results.select(task, FAC) or summary.results.select(task, BASELINE)
        printed = paper.published("benchmarks", task[0]) or {}
        keys = ("observations", "actions", "important_dimensions")
        found = [number(buffer_mean(runs, key), 0) for key in keys]
        if all(entry.value is None for entry in found):
            continue
        dims = next((r.buffer.get("dimensions") for r in runs.values()), None) or []
        pairs = zip(found, keys, strict=True)
        rows.append(
            [
                _task_entry(summary, task),
                *(_beside(entry, printed.get(key)) for entry, key in pairs),
                Entry(", ".join(map(str, dims)) or "–"),
            ]
        )
    return Table(
        "benchmarks",
        "Benchmarks",
        "Sizes of the spaces and number of important dimensions κ, published numbers below; the "
        "last column names those of the first seed. The paper's Humanoid has 376 observations, as "
        "Humanoid-v4 has; Humanoid-v5 has 348. The paper's table gives Reacher 11, the environment "
        "it names (PyBullet's) has 9.",
        [
            TASK,
            Column("Observations"),
            Column("Actions"),
            Column("κ", "important dimensions"),
            Column("Which", "indices of the important dimensions, first seed", numeric=False),
        ],
        rows,
        "paper",
    )


def published_table(summary: Summary) -> Table:
    """Tabulate the published rows of tasks that were not run here."""
    ran = {(paper.benchmark_name(env), algo.upper()) for env, algo in summary.results.tasks}
    rows = []
    for row in paper.table("full"):
        if (row["benchmark"], row["algorithm"]) in ran:
            continue
        columns = list(row.items())[2:]
        entries = [Entry(text or "–", float(text) if text else None) for _, text in columns]
        label = f"{row['benchmark']} ({row['algorithm']})"
        rows.append([Entry(label, label), *entries])
    names = ["CP B", "CP F", "Δ CP %", "|R| B", "|R| F", "Δ |R| %"]
    names += ["R B", "sd", "R F", "sd", "Δ R %", "P"]
    return Table(
        "published",
        "Published rows for tasks not run here",
        "As printed in the paper.",
        [TASK, *(Column(name) for name in names)],
        rows,
        "paper",
        folded=True,
    )


def misprints_table() -> Table:
    """Tabulate the paper's derived numbers that do not follow from its raw ones."""
    rows = [
        [
            Entry(entry.table, entry.table),
            Entry(entry.row, entry.row),
            Entry(entry.column, entry.column),
            Entry(entry.printed or "–"),
            number(entry.recomputed, 3),
            Entry(entry.kind, entry.kind),
        ]
        for entry in paper.misprints()
    ]
    return Table(
        "misprints",
        "Numbers of the paper that do not follow from its own",
        "Derived columns recomputed from the raw columns of the same row. 'last digit': rounded "
        "the wrong way; 'left blank': a dash hides a loss; 'translated': only follows if rewards "
        "are first shifted as for P, which the other table does not do.",
        [
            Column("Table", numeric=False),
            Column("Row", numeric=False),
            Column("Column", numeric=False),
            Column("Printed"),
            Column("Recomputed"),
            Column("Kind", numeric=False),
        ],
        rows,
        "paper",
        folded=True,
    )


def _pairs(
    summary: Summary, against: str, table: str
) -> Iterator[tuple[TaskKey, MethodSummary, MethodSummary, paper.Row]]:
    """Pair each frugal method with what it is compared with; give the published row too.

    The published row is that of the paper's method: beside ours it stands only where the paper's
    was not run.
    """
    for task in summary.results.tasks:
        other = summary.get(task, against)
        found = [entry for name in FRUGAL if (entry := summary.get(task, name))]
        for place, frugal in enumerate(found if other else []):
            printed = paper.published(table, *task) if place == 0 else None
            assert other is not None
            yield task, other, frugal, printed or {}


def _head(summary: Summary, task: TaskKey, method: str) -> list[Entry]:
    return [_task_entry(summary, task), Entry(summary.results.method(method).label, method)]


def _comparison_columns(letter: str, other: str) -> list[Column]:
    return [
        Column(f"CP {letter}", f"convergence point of {other}, in steps"),
        Column("CP F", "convergence point of FAC, in steps"),
        Column("Δ CP %", "how much earlier FAC converges, mean of the seeds' differences"),
        Column(f"|R| {letter}", f"transitions in the final buffer of {other}"),
        Column("|R| F", "transitions in FAC's final buffer"),
        Column("Δ |R| %", "cut of the buffer"),
        Column(f"R {letter}", f"reward of {other}, as the paper measured"),
        Column("R F", "reward of FAC, as the paper measured"),
        Column("Δ R %", "change of reward"),
        Column("P", "reward per stored transition, FAC's over the other's"),
        Column(f"full reward {letter}", f"reward of {other}: deterministic, whole episodes"),
        Column("full reward F", "reward of FAC: deterministic, whole episodes"),
    ]


def _comparison(
    other: MethodSummary, frugal: MethodSummary, printed: paper.Row, side: str
) -> list[Entry]:
    shared = [seed for seed in other.convergence if seed in frugal.convergence]
    gain = measures.convergence_gain(
        float(np.mean([other.convergence[seed] for seed in shared])) if shared else math.nan,
        float(np.mean([frugal.convergence[seed] for seed in shared])) if shared else math.nan,
    )
    change = measures.reward_change(other.paper_reward, frugal.paper_reward)
    efficiency = measures.sample_efficiency(
        other.paper_reward, other.size, frugal.paper_reward, frugal.size
    )
    cut = measures.buffer_cut(other.size, frugal.size)
    reward = f"reward_{side}"
    return [
        _beside(settled(other), _grouped(printed.get(f"cp_{side}"))),
        _beside(settled(frugal), _grouped(printed.get("cp_fac"))),
        _beside(number(gain, 2), printed.get("delta_cp_percent")),
        _beside(number(other.size, 0), _grouped(printed.get("buffer_baseline"))),
        _beside(number(frugal.size, 0), _grouped(printed.get("buffer_fac"))),
        _beside(number(cut, 2), printed.get("buffer_cut_percent")),
        _spread(
            other.paper_reward,
            other.paper_reward_sd,
            printed.get(reward),
            printed.get(f"{reward}_sd"),
        ),
        _spread(
            frugal.paper_reward,
            frugal.paper_reward_sd,
            printed.get("reward_fac"),
            printed.get("reward_fac_sd"),
        ),
        _beside(number(change, 2, sign=True), printed.get("delta_reward_percent")),
        _beside(number(efficiency, 2), printed.get("sample_efficiency_P")),
        number(other.reward.value, 2),
        number(frugal.reward.value, 2),
    ]


def settled(entry: MethodSummary) -> Entry:
    """Write a convergence point, and how many runs had one."""
    total = len(entry.convergence)
    text = show(entry.convergence_mean, 0)
    if entry.settled < total:
        text = f"{text} ({entry.settled} of {total} settled)"
    return Entry(text, entry.convergence_mean)


def _task_entry(summary: Summary, task: TaskKey) -> Entry:
    """Name a task; the line below it says that the published number is below, and of how long."""
    name = task_name(task)
    if not paper.benchmark_name(task[0]):
        return Entry(name, name)
    steps = {result.run.steps for result in summary.results.runs if result.run.task == task}
    published = find_preset(*task).get("steps")
    longer = published is not None and steps != {published}
    return Entry(name, name, f"paper: {published:,} steps" if longer else PUBLISHED_BELOW)


def _spread(value: float, sd: float, printed: str | None, printed_sd: str | None) -> Entry:
    text = show(value) + (f" ± {show(sd)}" if math.isfinite(sd) else "")
    below = f"{printed} ± {printed_sd}" if printed and printed_sd else None
    return _beside(Entry(text, value if math.isfinite(value) else None), below)


def _beside(entry: Entry, printed: str | None) -> Entry:
    if printed is None:
        return entry
    shown = (printed or "–").replace("-", "−")
    return Entry(entry.text, entry.value, shown, entry.emphasis)


def _grouped(printed: str | None) -> str | None:
    return f"{int(printed):,}" if printed else printed
