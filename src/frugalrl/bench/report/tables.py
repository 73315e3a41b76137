"""The report's tables: what the paper does not have, and the list of all."""

from __future__ import annotations

import math

import numpy as np

from frugalrl.bench import measures
from frugalrl.bench.aggregate import BASELINE, FRUGAL, Summary, buffer_mean
from frugalrl.bench.contents import GRADIENTS
from frugalrl.bench.report import paper_tables
from frugalrl.bench.report.budget import equal_size_table
from frugalrl.bench.report.paper_tables import METHOD, TASK, task_name
from frugalrl.bench.report.table import (
    Column,
    Entry,
    Table,
    digits_for,
    number,
    p_value,
    show_interval,
)


def all_tables(summary: Summary) -> list[Table]:
    """Make every table that these results can fill, in the report's order."""
    tables = [
        methods_table(summary),
        over_tasks_table(summary),
        equal_size_table(summary),
        paper_tables.full_table(summary),
        paper_tables.control_cost_table(summary),
        paper_tables.laber_table(summary),
        paper_tables.benchmarks_table(summary),
        resources_table(summary),
        theorems_table(summary),
        predictions_table(summary),
        paper_tables.published_table(summary),
        paper_tables.misprints_table(),
    ]
    return [table for table in tables if table is not None and table.rows]


def methods_table(summary: Summary) -> Table:
    """Rewards of every method on every task, with intervals and the difference from baseline."""
    rows = []
    reference = _reference(summary)
    for (task, name), entry in summary.methods.items():
        digits = digits_for((summary.get(task, summary.reference) or entry).reward.value)
        difference, chance = Entry("–"), Entry("–")
        if entry.against_reference is not None:
            found = entry.against_reference.difference
            clear = entry.against_reference.clear
            emphasis = ("good" if found.value > 0 else "bad") if clear else ""
            text = show_interval(found, digits, sign=True)
            difference = Entry(text, found.value, emphasis=emphasis)
            if entry.against_reference.welch_p is not None:
                chance = p_value(entry.against_reference.welch_p)
        rows.append(
            [
                Entry(task_name(task), task_name(task)),
                Entry(summary.results.method(name).label, name),
                number(len(entry.seeds), 0),
                Entry(show_interval(entry.reward, digits), entry.reward.value),
                Entry(show_interval(entry.iqm, digits), entry.iqm.value),
                difference,
                chance,
                paper_tables.settled(entry),
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
                Entry(show_interval(entry.iqm), entry.iqm.value),
                Entry(show_interval(entry.mean), entry.mean.value),
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


def resources_table(summary: Summary) -> Table:
    """Tabulate buffer, bytes, memory and time of every method."""
    rows = []
    for (task, name), entry in summary.methods.items():
        other = summary.get(task, summary.reference)
        cut = measures.buffer_cut(other.size, entry.size) if other else math.nan
        slower = entry.train_seconds / other.train_seconds - 1 if other else math.nan
        rows.append(
            [
                Entry(task_name(task), task_name(task)),
                Entry(summary.results.method(name).label, name),
                number(entry.size, 0),
                number(cut, 1),
                number(100 * entry.stored_share, 1),
                number(entry.bytes / 1e6, 2),
                number(entry.memory / 1e6, 0),
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
                Entry(task_name(task), task_name(task)),
                Entry(summary.results.method(name).label, name),
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
                    Entry(task_name(task), task_name(task)),
                    Entry(summary.results.method(name).label, name),
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


def _reference(summary: Summary) -> str:
    return "the baseline" if summary.reference == BASELINE else "FAC"
