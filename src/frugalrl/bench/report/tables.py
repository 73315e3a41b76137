"""The report's tables: rewards, rules at equal size, the paper's own, resources and theorems."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

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
    generator_for,
    task_name,
)
from frugalrl.bench.contents import GRADIENTS
from frugalrl.bench.methods import CONTROLS, Method, rule_of
from frugalrl.bench.report.table import (
    PUBLISHED_BELOW,
    Column,
    Entry,
    Table,
    digits_for,
    number,
    p_value,
    show,
    show_interval,
)
from frugalrl.bench.statistics import Comparison, Estimate, compare_means
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


def all_tables(summary: Summary) -> list[Table]:
    """Make every table that these results can fill, in the report's order."""
    tables = [
        methods_table(summary),
        over_tasks_table(summary),
        equal_size_table(summary),
        full_table(summary),
        control_cost_table(summary),
        laber_table(summary),
        benchmarks_table(summary),
        resources_table(summary),
        theorems_table(summary),
        predictions_table(summary),
        published_table(summary),
        misprints_table(),
    ]
    filled = [table for table in tables if table is not None and table.rows]
    return filled if len(summary.results.tasks) > 1 else [_without_task(table) for table in filled]


def _without_task(table: Table) -> Table:
    """Leave out the task where there is only one: the title names it, and phones are narrow."""
    if table.columns[0] != TASK or METHOD not in table.columns:
        return table
    rows = [[replace(row[1], published=row[0].published), *row[2:]] for row in table.rows]
    return replace(table, columns=table.columns[1:], rows=rows)


def methods_table(summary: Summary) -> Table:
    """Rewards of every method on every task, with intervals and the difference from baseline."""
    rows = []
    reference = _reference(summary)
    for (task, name), entry in summary.methods.items():
        digits = digits_for((summary.get(task, summary.reference) or entry).reward.value)
        found = entry.against_reference
        chance = None if found is None else found.welch_p
        rows.append(
            [
                *_names(summary, task, name),
                number(len(entry.seeds), 0),
                _interval(entry.reward, digits),
                _interval(entry.iqm, digits),
                _difference(found, digits),
                Entry("–") if chance is None else p_value(chance),
                _settled(entry),
            ]
        )
    return Table(
        "methods",
        "Final reward of every method",
        "Mean and interquartile mean over seeds of the final policy's reward, with 95 % bootstrap "
        f"intervals where there are at least three seeds. The difference from {reference} is "
        "paired by seed where the seeds are the same, and coloured where both its interval and "
        "Welch's two-sided p tell the two apart. Convergence: mean step from which the mean of the "
        "last 100 training episodes stays within 10 % of its best; a run that never settles counts "
        "as its length.",
        [
            TASK,
            METHOD,
            Column("Seeds"),
            Column("Mean reward"),
            Column("IQM"),
            Column(
                f"vs {reference.removeprefix('the ')}", "difference of the means; more is better"
            ),
            Column("p", "Welch's test"),
            Column("Convergence", "mean convergence point; how many runs settled if not all"),
        ],
        rows,
        "rewards",
    )


def over_tasks_table(summary: Summary) -> Table | None:
    """Normalised scores over tasks; None for a single task."""
    if not summary.over_tasks:
        return None
    rows = []
    for entry in summary.over_tasks:
        better = Entry("–")
        if entry.improvement is not None:
            found = entry.improvement
            emphasis = ("good" if found.value > 0.5 else "bad") if found.excludes(0.5) else ""
            better = Entry(show_interval(found), found.value, emphasis=emphasis)
        rows.append(
            [
                Entry(summary.results.method(entry.method).label, entry.method),
                number(entry.tasks, 0),
                _interval(entry.iqm),
                _interval(entry.mean),
                better,
            ]
        )
    return Table(
        "over-tasks",
        "Over all tasks",
        "Scores are scaled so that 0 is a uniformly random policy and 1 the baseline's mean on "
        "the same task. Intervals from a bootstrap stratified by task.",
        [
            METHOD,
            Column("Tasks"),
            Column("IQM"),
            Column("Mean"),
            Column("P(better than baseline)", "probability of improvement; 0.5 is no difference"),
        ],
        rows,
        "rewards",
    )


def equal_size_table(summary: Summary) -> Table:
    """Compare every rule with chance and with a ring that have as many places."""
    rows = []
    for task in summary.results.tasks:
        for key, entries in _by_size(summary, task).items():
            controls = {
                control: entry
                for entry in entries
                for control in CONTROLS
                if rule_of(entry.method)[0] == control
            }
            rows += [_equal_size_row(summary, key, e, controls) for e in entries if controls]
    return Table(
        "equal-size",
        "Does it matter what is kept? Rules at equal size",
        "Each rule against a buffer of the same size in which a random transition is overwritten, "
        "and against a ring of that size, which overwrites the oldest. Differences of the mean "
        "final reward are paired by seed, over the seeds that both have, with 95 % bootstrap "
        "intervals from three seeds on; coloured where Welch's test confirms them. Bytes count "
        "everything that the buffer holds, its filter included. *Second half* is the mean of the "
        "evaluations in the second half of training: the final policy is but one moment of it.",
        [
            TASK,
            Column("Size", "what the buffer's size is", numeric=False),
            METHOD,
            Column("Seeds"),
            Column("Transitions"),
            Column("MB"),
            Column("Mean reward"),
            Column("vs random slot", "difference paired by seed; more is better"),
            Column("vs ring", "difference paired by seed; more is better"),
            Column("Second half", "mean reward of evaluations in the second half of training"),
            Column("vs random slot", "difference of the second half, paired by seed"),
            Column("vs ring", "difference of the second half, paired by seed"),
        ],
        rows,
        "budget",
    )


def _by_size(summary: Summary, task: TaskKey) -> dict[str, list[MethodSummary]]:
    groups: dict[str, list[MethodSummary]] = {}
    for name in summary.results.methods:
        entry, key = summary.get(task, name), _size_key(summary.results.method(name))
        if entry is not None and key is not None:
            groups.setdefault(key, []).append(entry)
    return groups


def _size_key(method: Method) -> str | None:
    """Say which methods have buffers of the same size; None for one that is like no other."""
    share = rule_of(method.name)[1]
    if share is not None:
        return f"{100 * share:g} % of the steps"
    if method.needs is not None:
        return f"that of {method.source}"
    return f"that of {method.name}" if method.frugal else None


def _equal_size_row(
    summary: Summary, key: str, entry: MethodSummary, controls: dict[str, MethodSummary]
) -> list[Entry]:
    digits = digits_for(entry.reward.value)
    rule = rule_of(entry.method)[0]
    others = [controls.get(name) for name in CONTROLS]
    task, method = _names(summary, entry.task, rule)
    return [
        task,
        Entry(key, key),
        Entry(method.text, entry.method),
        number(len(entry.seeds), 0),
        number(entry.size, 0),
        number(entry.bytes / 1e6, 2),
        _interval(entry.reward, digits),
        *(_difference(_paired(entry, other), digits) for other in others),
        _interval(entry.late_reward, digits),
        *(_difference(_paired(entry, other, "late"), digits) for other in others),
    ]


def _paired(
    mine: MethodSummary, other: MethodSummary | None, measure: str = "rewards"
) -> Comparison | None:
    """Compare two methods by `rewards` or `late` on the seeds that both have; None without any."""
    if other is None or other is mine:
        return None
    found, others = getattr(mine, measure), getattr(other, measure)
    seeds = sorted(found.keys() & others.keys())
    if not seeds:
        return None
    return compare_means(
        {seed: found[seed] for seed in seeds},
        {seed: others[seed] for seed in seeds},
        generator_for(*mine.task, mine.method, other.method, "equal size", measure),
    )


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


def control_cost_table(summary: Summary) -> Table | None:
    """Build the paper's table of control cost."""
    rows = []
    for task, baseline, frugal, printed in _pairs(summary, BASELINE, "control_cost"):
        entries = [
            entry
            for found, side in ((baseline, "baseline"), (frugal, "fac"))
            for entry in (
                _spread(found, "paper_control_cost", printed, f"cost_{side}"),
                number(found.mean("control_cost"), 2),
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
    rewards = other.mean("paper_reward"), frugal.mean("paper_reward")
    efficiency = measures.sample_efficiency(rewards[0], other.size, rewards[1], frugal.size)
    cut = measures.buffer_cut(other.size, frugal.size)
    change = measures.reward_change(*rewards)
    return [
        _beside(_settled(other), _grouped(printed.get(f"cp_{side}"))),
        _beside(_settled(frugal), _grouped(printed.get("cp_fac"))),
        _beside(number(gain, 2), printed.get("delta_cp_percent")),
        _beside(number(other.size, 0), _grouped(printed.get("buffer_baseline"))),
        _beside(number(frugal.size, 0), _grouped(printed.get("buffer_fac"))),
        _beside(number(cut, 2), printed.get("buffer_cut_percent")),
        _spread(other, "paper_reward", printed, f"reward_{side}"),
        _spread(frugal, "paper_reward", printed, "reward_fac"),
        _beside(number(change, 2, sign=True), printed.get("delta_reward_percent")),
        _beside(number(efficiency, 2), printed.get("sample_efficiency_P")),
        number(other.reward.value, 2),
        number(frugal.reward.value, 2),
    ]


def _spread(entry: MethodSummary, key: str, printed: paper.Row, column: str) -> Entry:
    """Write mean ± spread over seeds of a measure, and the published one below."""
    value, sd = entry.mean(key), entry.sd(key)
    text = show(value) + (f" ± {show(sd)}" if math.isfinite(sd) else "")
    mean, spread = printed.get(column), printed.get(f"{column}_sd")
    below = f"{mean} ± {spread}" if mean and spread else None
    return _beside(Entry(text, value if math.isfinite(value) else None), below)


def _beside(entry: Entry, printed: str | None) -> Entry:
    if printed is None:
        return entry
    shown = (printed or "–").replace("-", "−")
    return Entry(entry.text, entry.value, shown, entry.emphasis)


def _grouped(printed: str | None) -> str | None:
    return f"{int(printed):,}" if printed else printed


def _task_entry(summary: Summary, task: TaskKey) -> Entry:
    """Name a task; the line below it says that the published number is below, and of how long."""
    name = task_name(task)
    if not paper.benchmark_name(task[0]):
        return Entry(name, name)
    steps = {result.run.steps for result in summary.results.runs if result.run.task == task}
    published = find_preset(*task).get("steps")
    longer = published is not None and steps != {published}
    return Entry(name, name, f"paper: {published:,} steps" if longer else PUBLISHED_BELOW)


def resources_table(summary: Summary) -> Table:
    """Tabulate buffer, bytes, memory and time of every method."""
    rows = []
    for (task, name), entry in summary.methods.items():
        other = summary.get(task, summary.reference)
        cut = measures.buffer_cut(other.size, entry.size) if other else math.nan
        slower = entry.train_seconds / other.train_seconds - 1 if other else math.nan
        rows.append(
            [
                *_names(summary, task, name),
                number(entry.size, 0),
                number(cut, 1),
                number(100 * entry.stored_share, 1),
                number(entry.bytes / 1e6, 2),
                number(entry.mean("peak_memory_bytes") / 1e6, 0),
                number(entry.train_seconds, 1),
                Entry("–") if name == summary.reference else number(100 * slower, 1, sign=True),
            ]
        )
    return Table(
        "resources",
        "Buffer, memory and time",
        "Means over seeds. Stored counts transitions that took a new slot; a replacement takes "
        "none. Memory is the peak of the whole process. Training time is without evaluation.",
        [
            TASK,
            METHOD,
            Column("Buffer", "transitions at the end"),
            Column("Cut %", f"against {_reference(summary)}"),
            Column("Stored %", "of the transitions offered"),
            Column("Buffer MB"),
            Column("Peak memory MB"),
            Column("Training s"),
            Column("Time %", f"against {_reference(summary)}"),
        ],
        rows,
        "resources",
    )


def theorems_table(summary: Summary) -> Table:
    """Tabulate what the theorems speak of, measured on the final buffers."""
    rows = []
    for task, name in summary.methods:
        runs = summary.results.select(task, name)
        limit = buffer_mean(runs, "measures", "entropy_limit")
        if not math.isfinite(limit):
            continue
        rows.append(
            [
                *_names(summary, task, name),
                number(buffer_mean(runs, "cells"), 0),
                number(buffer_mean(runs, "minibatch", "zeta"), 1),
                number(buffer_mean(runs, "minibatch", "factor"), 2),
                number(buffer_mean(runs, "minibatch", "pair_factor"), 3),
                number(buffer_mean(runs, "measures", "surplus"), 0),
                number(buffer_mean(runs, "measures", "entropy"), 3),
                number(limit, 3),
                number(buffer_mean(runs, "measures", "gap"), 3),
                number(buffer_mean(runs, "measures", "theorem_gap"), 3),
            ]
        )
    return Table(
        "theorems",
        "What the theorems speak of, measured",
        "Two transitions are equivalent in the same cell and the same reward bin, 2β wide. ζ: "
        "surplus equivalents in a minibatch; the factor (b + ζ² + ζ)/b assumes that they all "
        "repeat one element, the pair factor (b + equivalent pairs)/b does not. λ: surplus "
        "equivalents in the buffer. Entropy over classes in nats, against log m; the theorem's gap "
        "(λ + 1) log(λ + 1)/m assumes one repeated element too. All methods of a task and seed are "
        "judged by the same cells, made from the same random steps.",
        [
            TASK,
            METHOD,
            Column("Cells"),
            Column("ζ", "mean over 200 minibatches"),
            Column("Factor", "(b + ζ² + ζ)/b"),
            Column("Pair factor"),
            Column("λ"),
            Column("Entropy"),
            Column("log m"),
            Column("Gap", "log m minus the entropy"),
            Column("Theorem's gap", "(λ + 1) log(λ + 1)/m"),
        ],
        rows,
        "theorems",
    )


def predictions_table(summary: Summary) -> Table:
    """Tabulate what the theorems predict of FAC beside what was measured."""
    rows = []
    for task in summary.results.tasks:
        baseline = summary.results.select(task, BASELINE)
        before = buffer_mean(baseline, "measures", "entropy")
        ratios = [
            found["baseline"] / found["fac"]
            for result in baseline.values()
            if (found := result.buffer.get("gradients")) and found["fac"] > 0.0
        ]
        for name in (name for name in FRUGAL if summary.get(task, name)):
            after = buffer_mean(summary.results.select(task, name), "measures", "entropy")
            if not math.isfinite(after - before):
                continue
            ours = name == "fac"
            factor = buffer_mean(baseline, "minibatch", "factor")
            rows.append(
                [
                    *_names(summary, task, name),
                    number(factor if ours else math.nan, 2),
                    number(float(np.mean(ratios)) if ratios and ours else math.nan, 3),
                    number(buffer_mean(baseline, "measures", "theorem_gap"), 3, sign=True),
                    number(after - before, 3, sign=True),
                ]
            )
    return Table(
        "predictions",
        "What the theorems predict, and what was measured",
        "Theorem 1 says that the minibatch gradient of the baseline's buffer varies (b + ζ² + ζ)/b "
        "times as much as that of FAC's. Measured: the variance of the critics' gradient over "
        f"{GRADIENTS} minibatches each, at the baseline's final parameters, on the baseline's "
        "buffer and on what FAC keeps of the same transitions. Theorem 2 says that FAC raises the "
        "entropy of the buffer by (λ + 1) log(λ + 1)/m. Measured: the entropy of its final buffer "
        "less that of the baseline's.",
        [
            TASK,
            METHOD,
            Column("Variance, predicted", "theorem 1: baseline over FAC"),
            Column("Variance, measured", "baseline over FAC; 1: no difference"),
            Column("Entropy, predicted", "theorem 2: FAC less baseline, nats"),
            Column("Entropy, measured", "FAC less baseline, nats"),
        ],
        rows,
        "theorems",
    )


def _names(summary: Summary, task: TaskKey, method: str) -> list[Entry]:
    """Begin a row: the task and the method."""
    name = task_name(task)
    return [Entry(name, name), Entry(summary.results.method(method).label, method)]


def _interval(estimate: Estimate, digits: int = 2) -> Entry:
    return Entry(show_interval(estimate, digits), estimate.value)


def _difference(found: Comparison | None, digits: int) -> Entry:
    """Write a difference, coloured where it is clear."""
    if found is None:
        return Entry("–")
    value = found.difference.value
    emphasis = ("good" if value > 0 else "bad") if found.clear else ""
    return Entry(show_interval(found.difference, digits, sign=True), value, emphasis=emphasis)


def _settled(entry: MethodSummary) -> Entry:
    """Write a convergence point, and how many runs had one."""
    total = len(entry.convergence)
    text = show(entry.convergence_mean, 0)
    if entry.settled < total:
        text = f"{text} ({entry.settled} of {total} settled)"
    return Entry(text, entry.convergence_mean)


def _reference(summary: Summary) -> str:
    return "the baseline" if summary.reference == BASELINE else "FAC"
