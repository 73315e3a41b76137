"""What to keep at equal size: reward over bytes, and each rule against chance and a ring."""

from __future__ import annotations

import numpy as np

from frugalrl.bench.aggregate import BASELINE, MethodSummary, Summary, TaskKey, generator_for
from frugalrl.bench.methods import Method, split_variant
from frugalrl.bench.report.curves import slug
from frugalrl.bench.report.figure import Figure, Points
from frugalrl.bench.report.paper_tables import METHOD, TASK, task_name
from frugalrl.bench.report.table import (
    Column,
    Entry,
    Table,
    digits_for,
    number,
    show,
    show_interval,
)
from frugalrl.bench.statistics import Comparison, Estimate, compare_means

CONTROLS = ("random-slot", "small")


def rule_of(name: str) -> tuple[str, float | None]:
    """Split a name into the rule and its budget: `small@share=0.05` is small with 0.05."""
    base, changes = split_variant(name)
    share = changes.pop("share", None)
    changes.pop("of", None)
    rest = ",".join(f"{key}={value}" for key, value in changes.items())
    return f"{base}@{rest}" if rest else base, None if share is None else float(share)


def has_budgets(summary: Summary) -> bool:
    """Whether some method was given a share of the steps."""
    return any(rule_of(name)[1] is not None for name in summary.results.methods)


def size_key(method: Method) -> str | None:
    """Say which methods have buffers of the same size; None for one that is like no other."""
    share = rule_of(method.name)[1]
    if share is not None:
        return f"{100 * share:g} % of the steps"
    if method.needs is not None:
        return f"that of {method.source}"
    return f"that of {method.name}" if method.frugal else None


def paired(
    mine: MethodSummary, other: MethodSummary, measure: str = "rewards"
) -> Comparison | None:
    """Compare two methods on the seeds that both have, by `rewards` or `late`."""
    found, others = getattr(mine, measure), getattr(other, measure)
    seeds = sorted(found.keys() & others.keys())
    if not seeds:
        return None
    return compare_means(
        {seed: found[seed] for seed in seeds},
        {seed: others[seed] for seed in seeds},
        generator_for(*mine.task, mine.method, other.method, "equal size", measure),
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
            rows += [_row(summary, task, key, entry, controls) for entry in entries if controls]
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


def reward_over_bytes(summary: Summary, task: TaskKey, *, late: bool = False) -> Figure:
    """Draw the final reward over bytes, or that of the second half of training: a line per rule."""

    def reward(entry: MethodSummary) -> Estimate:
        return entry.late_reward if late else entry.reward

    rules: dict[str, list[MethodSummary]] = {}
    for name in summary.results.methods:
        entry = summary.get(task, name)
        if entry is not None and np.isfinite([reward(entry).value, entry.bytes]).all():
            rules.setdefault(rule_of(name)[0], []).append(entry)
    full = rules.get(BASELINE, [])
    traces = []
    for rule, entries in rules.items():
        # With room for everything, a rule for a given size is the baseline.
        points = entries + full if rule in (*CONTROLS, "diverse") else entries
        points = sorted(points, key=lambda entry: entry.bytes)
        method = summary.results.method(rule)
        bounded = all(reward(entry).has_interval for entry in points)
        low, high = (
            (np.array([getattr(reward(entry), side) for entry in points]) if bounded else None)
            for side in ("low", "high")
        )
        traces.append(
            Points(
                method.label,
                np.array([entry.bytes for entry in points]) / 1e6,
                np.array([reward(entry).value for entry in points]),
                method.color,
                "solid" if len(points) > 1 else "dot",
                low,
                high,
            )
        )
    seeds = {len(entry.seeds) for entries in rules.values() for entry in entries}
    return Figure(
        id=f"{'late' if late else 'bytes'}-{slug(task)}",
        title=f"{task_name(task)}: {'reward while training' if late else 'reward'} over bytes",
        x_title="bytes of the buffer, MB",
        y_title="reward, second half of training" if late else "final reward",
        traces=traces,
        caption=f"Mean over {_range(seeds)} seeds with its 95 % bootstrap interval; a point per "
        "budget. The lines of rules for a given size end in the baseline, which has room for "
        "everything."
        + (" The reward is the mean of the evaluations in the second half of training." * late),
        group="budget",
        x_scale="log",
    )


def budget_sentence(summary: Summary) -> str:
    """Say which reward which bytes gave, for the smallest budget of each task."""
    parts = []
    for task in summary.results.tasks:
        full = summary.get(task, BASELINE)
        shares = [rule_of(name)[1] for name in summary.results.methods if summary.get(task, name)]
        least = min((share for share in shares if share is not None), default=None)
        if full is None or least is None:
            continue
        digits = digits_for(full.reward.value)
        found = []
        for name in summary.results.methods:
            entry = summary.get(task, name)
            if entry is not None and rule_of(name)[1] == least:
                label = summary.results.method(rule_of(name)[0]).label
                amount = show_interval(entry.reward, digits)
                found.append(f"{label} {amount} from {show(entry.bytes / 1e6)} MB")
        parts.append(
            f"{task_name(task)}: with {100 * least:g} % of the steps {', '.join(found)}; the full "
            f"buffer {show_interval(full.reward, digits)} from {show(full.bytes / 1e6)} MB"
        )
    return ". ".join(parts) + "."


def _by_size(summary: Summary, task: TaskKey) -> dict[str, list[MethodSummary]]:
    groups: dict[str, list[MethodSummary]] = {}
    for name in summary.results.methods:
        entry, key = summary.get(task, name), size_key(summary.results.method(name))
        if entry is not None and key is not None:
            groups.setdefault(key, []).append(entry)
    return groups


def _row(
    summary: Summary,
    task: TaskKey,
    key: str,
    entry: MethodSummary,
    controls: dict[str, MethodSummary],
) -> list[Entry]:
    digits = digits_for(entry.reward.value)
    return [
        Entry(task_name(task), task_name(task)),
        Entry(key, key),
        Entry(summary.results.method(rule_of(entry.method)[0]).label, entry.method),
        number(len(entry.seeds), 0),
        number(entry.size, 0),
        number(entry.bytes / 1e6, 2),
        Entry(show_interval(entry.reward, digits), entry.reward.value),
        *_differences(entry, controls, "rewards", digits),
        Entry(show_interval(entry.late_reward, digits), entry.late_reward.value),
        *_differences(entry, controls, "late", digits),
    ]


def _differences(
    entry: MethodSummary, controls: dict[str, MethodSummary], measure: str, digits: int
) -> list[Entry]:
    """Compare a rule with each control."""
    entries = []
    for control in CONTROLS:
        other = controls.get(control)
        found = None if other is None or other is entry else paired(entry, other, measure)
        if found is None:
            entries.append(Entry("–"))
            continue
        value = found.difference.value
        emphasis = ("good" if value > 0 else "bad") if found.clear else ""
        text = show_interval(found.difference, digits, sign=True)
        entries.append(Entry(text, value, emphasis=emphasis))
    return entries


def _range(numbers: set[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low} to {high}"
