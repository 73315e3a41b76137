"""The paper's four tables with our numbers beside the published ones, and its misprints."""

from __future__ import annotations

import math

from frugalrl.bench import measures, paper
from frugalrl.bench.aggregate import BASELINE, FAC, MethodSummary, Summary, TaskKey, buffer_mean
from frugalrl.bench.report.table import PUBLISHED_BELOW, Column, Entry, Table, number, show

TASK = Column("Task", numeric=False)


def task_name(task: TaskKey) -> str:
    """Write a task as the paper does."""
    return f"{task[0]} ({task[1].upper()})"


def full_table(summary: Summary) -> Table | None:
    """Build the paper's main table: convergence, buffer, reward, P of FAC against the baseline."""
    rows = []
    for task in summary.results.tasks:
        baseline, fac = summary.get(task, BASELINE), summary.get(task, FAC)
        if baseline is None or fac is None:
            continue
        printed = paper.published("full", *task) or {}
        rows.append([_task_entry(task), *_comparison(baseline, fac, printed, "baseline", True)])
    return Table(
        "full",
        "FAC against the baseline",
        "The paper's main table: ours above, the published number below. The paper's ± is the "
        "spread of one policy's 100 episodes, ours that of the seeds.",
        [TASK, *_comparison_columns("B", True)],
        rows,
        "paper",
    )


def laber_table(summary: Summary) -> Table | None:
    """Build the paper's comparison of FAC with LaBER."""
    rows = []
    for task in summary.results.tasks:
        laber, fac = summary.get(task, "laber"), summary.get(task, FAC)
        if laber is None or fac is None:
            continue
        printed = paper.published("laber", *task) or {}
        rows.append([_task_entry(task), *_comparison(laber, fac, printed, "laber", False)])
    return Table(
        "laber",
        "FAC against LaBER",
        "Ours above, the published number below. LaBER's batch size here is the baseline's; the "
        "released code used a quarter of it.",
        [TASK, *_comparison_columns("L", False)],
        rows,
        "paper",
    )


def control_cost_table(summary: Summary) -> Table | None:
    """Build the paper's table of control cost."""
    rows = []
    for task in summary.results.tasks:
        baseline, fac = summary.get(task, BASELINE), summary.get(task, FAC)
        if baseline is None or fac is None:
            continue
        printed = paper.published("control_cost", *task) or {}
        rows.append(
            [
                _task_entry(task),
                _spread(
                    baseline.control_cost,
                    baseline.control_cost_sd,
                    printed.get("cost_baseline"),
                    printed.get("cost_baseline_sd"),
                ),
                _spread(
                    fac.control_cost,
                    fac.control_cost_sd,
                    printed.get("cost_fac"),
                    printed.get("cost_fac_sd"),
                ),
            ]
        )
    return Table(
        "control-cost",
        "Control cost",
        "Sum over an episode of the squared norm of the action: mean ± spread over seeds; the "
        "published number below, its ± over episodes.",
        [TASK, Column("Baseline"), Column("FAC")],
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
                _task_entry(task),
                *(_beside(entry, printed.get(key)) for entry, key in pairs),
                Entry(", ".join(map(str, dims)) or "–"),
            ]
        )
    return Table(
        "benchmarks",
        "Benchmarks",
        "Sizes of the spaces and number of important dimensions κ, published numbers below; the "
        "last column names those of the first seed. The published Humanoid has 376 observations, "
        "today's 348.",
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


def _comparison_columns(other: str, with_size: bool) -> list[Column]:
    size = [
        Column(f"|R| {other}", "buffer size at the end"),
        Column("|R| F"),
        Column("Δ |R| %", "cut of the buffer"),
    ]
    return [
        Column(f"CP {other}", "convergence point, runs that settled"),
        Column("CP F"),
        Column("Δ CP %", "gain in convergence"),
        *(size if with_size else []),
        Column(f"R {other}", "final reward"),
        Column("R F"),
        Column("Δ R %", "change of reward"),
        Column("P", "reward a stored transition, relative"),
    ]


def _comparison(
    other: MethodSummary, fac: MethodSummary, printed: paper.Row, side: str, with_size: bool
) -> list[Entry]:
    gain = measures.convergence_gain(other.convergence_mean, fac.convergence_mean)
    change = measures.reward_change(other.reward.value, fac.reward.value)
    efficiency = measures.sample_efficiency(
        other.reward.value, other.size, fac.reward.value, fac.size
    )
    sizes = [
        _beside(number(other.size, 0), _grouped(printed.get("buffer_baseline"))),
        _beside(number(fac.size, 0), _grouped(printed.get("buffer_fac"))),
        _beside(
            number(measures.buffer_cut(other.size, fac.size), 2), printed.get("buffer_cut_percent")
        ),
    ]
    reward = f"reward_{side}"
    return [
        _beside(number(other.convergence_mean, 0), _grouped(printed.get(f"cp_{side}"))),
        _beside(number(fac.convergence_mean, 0), _grouped(printed.get("cp_fac"))),
        _beside(number(gain, 2), printed.get("delta_cp_percent")),
        *(sizes if with_size else []),
        _spread(
            other.reward.value, other.reward_sd, printed.get(reward), printed.get(f"{reward}_sd")
        ),
        _spread(
            fac.reward.value, fac.reward_sd, printed.get("reward_fac"), printed.get("reward_fac_sd")
        ),
        _beside(number(change, 2, sign=True), printed.get("delta_reward_percent")),
        _beside(number(efficiency, 2), printed.get("sample_efficiency_P")),
    ]


def _task_entry(task: TaskKey) -> Entry:
    return Entry(
        task_name(task), task_name(task), PUBLISHED_BELOW if paper.benchmark_name(task[0]) else None
    )


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
