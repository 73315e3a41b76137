"""The report's tables: rewards, rules at equal size, the paper's own, resources and theorems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from frugalrl.bench import measures, paper, statistics
from frugalrl.bench.aggregate import (
    BASELINE,
    FAC,
    FRUGAL,
    MethodSummary,
    Summary,
    TaskKey,
    generator_for,
    task_name,
)
from frugalrl.bench.contents import GRADIENTS
from frugalrl.bench.measures import finite_mean
from frugalrl.bench.methods import CONTROLS, Method, rule_and_share
from frugalrl.bench.report.table import (
    NOTHING,
    PUBLISHED_BELOW,
    Column,
    Entry,
    Row,
    Table,
    digits_for,
    number,
    p_value,
    show,
    show_interval,
)
from frugalrl.bench.statistics import Comparison, Estimate
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
_tables: list[Callable[[Summary], Table]] = []


def all_tables(summary: Summary) -> list[Table]:
    """Make every table that these results can fill, in the report's order."""
    filled = [table for make in _tables if (table := make(summary)).rows]
    if len(summary.results.tasks) > 1:
        return filled
    for table in filled:
        # There is only one task: the title names it, and phones are narrow.
        for row in table.rows if {TASK, METHOD} <= set(table.columns) else ():
            row[METHOD] = replace(row[METHOD], published=row.pop(TASK).published)
    return filled


def _table(
    section: str, title: str, caption: str, *, folded: bool = False
) -> Callable[[Callable[[Summary], Iterable[Row]]], Callable[[Summary], Table]]:
    """Make one of the report's tables of a function that gives its rows; its name is the id."""

    def decorate(rows: Callable[[Summary], Iterable[Row]]) -> Callable[[Summary], Table]:
        name = rows.__name__.replace("_", "-")
        _tables.append(lambda s: Table(name, title, caption, list(rows(s)), section, folded))
        return _tables[-1]

    return decorate


@_table(
    "rewards",
    "Final reward of every method",
    "Mean and interquartile mean over seeds of the final policy's reward, with 95 % bootstrap "
    "intervals where there are at least three seeds. Differences are paired by seed where the "
    "seeds are the same, and coloured where both their interval and Welch's two-sided p tell the "
    "two apart. Convergence: mean step from which the mean of the last 100 training episodes stays "
    "within 10 % of its best; a run that never settles counts as its length.",
)
def methods(summary: Summary) -> Iterator[Row]:
    """Rewards of every method on every task, with intervals and the difference from baseline."""
    against = f"vs {_reference(summary).removeprefix('the ')}"
    settled = "mean convergence point; how many runs settled if not all"
    for entry in summary.by_method.values():
        digits = _digits(summary, entry)
        found = entry.against_reference
        yield {
            **_names(summary, entry),
            Column("Seeds"): number(len(entry.seeds), 0),
            Column("Mean reward"): _interval(entry.reward, digits),
            Column("IQM"): _interval(entry.iqm, digits),
            Column(against, "difference of the means; more is better"): _difference(found, digits),
            Column("p", "Welch's test"): p_value(found.welch_p if found else None),
            Column("Convergence", settled): _settled(entry),
        }


@_table(
    "rewards",
    "Over all tasks",
    "Scores are scaled so that 0 is a uniformly random policy and 1 the baseline's mean on "
    "the same task. Intervals from a bootstrap stratified by task.",
)
def over_tasks(summary: Summary) -> Iterator[Row]:
    """Normalised scores over tasks; nothing for a single task."""
    better = Column("P(better than baseline)", "probability of improvement; 0.5 is no difference")
    for name in filter(summary.scores.get, summary.results.methods):
        scores = list(summary.scores[name].values())
        generator = partial(generator_for, "suite", name)
        iqm = statistics.stratified_bootstrap(scores, statistics.pooled_iqm, generator("iqm"))
        mean = statistics.stratified_bootstrap(scores, statistics.pooled_mean, generator("mean"))
        chance = summary.improvement(name)
        yield {
            METHOD: Entry(summary.results.method(name).label, name),
            Column("Tasks"): number(len(scores), 0),
            Column("IQM"): _interval(iqm),
            Column("Mean"): _interval(mean),
            better: _colored(chance, clear=chance.excludes(0.5), even=0.5) if chance else NOTHING,
        }


@_table(
    "budget",
    "Does it matter what is kept? Rules at equal size",
    "Each rule against a buffer of the same size in which a random transition is overwritten, "
    "and against a ring of that size, which overwrites the oldest. Differences of the mean "
    "final reward are paired by seed, over the seeds that both have, with 95 % bootstrap "
    "intervals from three seeds on; coloured where Welch's test confirms them. Bytes count "
    "everything that the buffer holds, its filter included. Second half: mean of the "
    "evaluations in the second half of training; the final policy is but one moment of it.",
)
def equal_size(summary: Summary) -> Iterator[Row]:
    """Compare every rule with chance and with a ring that have as many places."""
    size_column = Column("Size", "what the buffer's size is", numeric=False)
    late_column = Column("Second half", "mean reward of the evaluations in it")
    groups: dict[tuple[TaskKey, str], list[MethodSummary]] = {}
    for (task, name), entry in summary.by_method.items():
        size = _size_of(summary.results.method(name))
        if size is not None:
            groups.setdefault((task, size), []).append(entry)
    for (task, size), entries in groups.items():
        rules = {rule_and_share(entry.method)[0]: entry for entry in entries}
        controls = [rules.get(name) for name in CONTROLS]
        for entry in entries if any(controls) else ():
            digits = _digits(summary, entry)
            label = summary.results.method(rule_and_share(entry.method)[0]).label
            yield {
                TASK: _task_entry(summary, task, {}),
                size_column: Entry(size, size),
                METHOD: Entry(label, entry.method),
                Column("Seeds"): number(len(entry.seeds), 0),
                Column("Transitions"): number(entry.size, 0),
                Column("MB"): number(entry.bytes / 1e6, 2),
                Column("Mean reward"): _interval(entry.reward, digits),
                **_against(entry, controls, "rewards", digits),
                late_column: _interval(entry.late_reward, digits),
                **_against(entry, controls, "late", digits),
            }


def _size_of(method: Method) -> str | None:
    """Say which methods have buffers of the same size; None for one that is like no other."""
    share = rule_and_share(method.name)[1]
    if share is not None:
        return f"{100 * share:g} % of the steps"
    if method.needs is not None:
        return f"that of {method.source}"
    return f"that of {method.name}" if method.frugal else None


def _against(
    entry: MethodSummary, controls: list[MethodSummary | None], measure: str, digits: int
) -> Row:
    about = "difference paired by seed; more is better"
    if measure == "late":
        about = "difference of the second half, paired by seed"
    return {
        Column(f"vs {name}", about): _difference(entry.against(other, measure), digits)
        for name, other in zip(("random slot", "ring"), controls, strict=True)
    }


@_table(
    "paper",
    "FAC against the baseline",
    "The paper's main table, a row for its method and a row for ours: our number above, the "
    f"published one (one run) below. {_MEANING} The paper's ± is the spread of one policy's "
    "100 episodes, ours that of the seeds.",
)
def full(summary: Summary) -> Iterator[Row]:
    """The paper's main table: convergence, buffer, reward, P against the baseline."""
    for pair in _pairs(summary, BASELINE, "full"):
        yield _comparison(*pair, "B", "the baseline")


@_table(
    "paper",
    "Control cost",
    "Sum over an episode of the squared norm of the action: mean ± spread over seeds, with the "
    "policy acting with its own randomness as in the paper, and without; the published number "
    "below, its ± over episodes.",
)
def control_cost(summary: Summary) -> Iterator[Row]:
    """The paper's table of control cost."""
    for row, other, fac, printed in _pairs(summary, BASELINE, "control_cost"):
        for name, entry in (("Baseline", other), ("FAC", fac)):
            cost = _beside(_spread(entry, "paper_control_cost"), printed, f"cost_{name.lower()}")
            plain = Column("deterministic", f"policy of {name} without randomness")
            row[Column(name, "as the paper measured")] = cost
            row[plain] = number(entry.mean("control_cost"), 2)
        yield row


@_table(
    "paper",
    "FAC against LaBER",
    f"Our number above, the published one below. {_MEANING} LaBER's batch size here is the "
    "baseline's; the released code used a quarter of it.",
)
def laber(summary: Summary) -> Iterator[Row]:
    """The paper's comparison of FAC with LaBER."""
    for pair in _pairs(summary, "laber", "laber"):
        yield _comparison(*pair, "L", "LaBER")


@_table(
    "paper",
    "Benchmarks",
    "Sizes of the spaces and number of important dimensions κ, published numbers below; the "
    "last column names those of the first seed. The paper's Humanoid has 376 observations, as "
    "Humanoid-v4 has; Humanoid-v5 has 348. The paper's table gives Reacher 11, the environment "
    "it names (PyBullet's) has 9.",
)
def benchmarks(summary: Summary) -> Iterator[Row]:
    """The paper's table of benchmarks, with the important dimensions found here."""
    columns = {
        Column("Observations"): "observations",
        Column("Actions"): "actions",
        Column("κ", "important dimensions"): "important_dimensions",
    }
    which = Column("Which", "indices of the important dimensions, first seed", numeric=False)
    for task in summary.results.tasks:
        entry = summary.get(task, FAC) or summary.get(task, BASELINE)
        printed = paper.published("benchmarks", task[0]) or {}
        if entry is not None and math.isfinite(entry.mean("buffer", "observations")):
            row: Row = {TASK: _task_entry(summary, task, printed)}
            for column, key in columns.items():
                row[column] = _beside(number(entry.mean("buffer", key), 0), printed, key)
            dimensions = next(iter(entry.runs.values())).buffer.get("dimensions") or []
            yield row | {which: Entry(", ".join(map(str, dimensions)) or "–")}


@_table(
    "resources",
    "Buffer, memory and time",
    "Means over seeds. Stored counts transitions that took a new slot; a replacement takes "
    "none. Memory is the peak of the whole process. Training time is without evaluation.",
)
def resources(summary: Summary) -> Iterator[Row]:
    """Buffer, bytes, memory and time of every method."""
    against = f"against {_reference(summary)}"
    for (task, name), entry in summary.by_method.items():
        other = summary.get(task, summary.reference)
        cut = measures.reduction(other.size, entry.size) if other else math.nan
        slower = entry.train_seconds / other.train_seconds - 1 if other else math.nan
        same = name == summary.reference
        yield {
            **_names(summary, entry),
            Column("Buffer", "transitions at the end"): number(entry.size, 0),
            Column("Cut %", against): number(cut, 1),
            Column("Stored %", "of the transitions offered"): number(100 * entry.stored_share, 1),
            Column("Buffer MB"): number(entry.bytes / 1e6, 2),
            Column("Peak memory MB"): number(entry.mean("peak_memory_bytes") / 1e6, 0),
            Column("Training s"): number(entry.train_seconds, 1),
            Column("Time %", against): NOTHING if same else number(100 * slower, 1, sign=True),
        }


@_table(
    "theorems",
    "What the theorems speak of, measured",
    "Two transitions are equivalent in the same cell and the same reward bin, 2β wide. ζ: "
    "surplus equivalents in a minibatch; the factor (b + ζ² + ζ)/b assumes that they all "
    "repeat one element, the pair factor (b + equivalent pairs)/b does not. λ: surplus "
    "equivalents in the buffer. Entropy over classes in nats, against log m; the theorem's gap "
    "(λ + 1) log(λ + 1)/m assumes one repeated element too. All methods of a task and seed are "
    "judged by the same cells, made from the same random steps.",
)
def theorems(summary: Summary) -> Iterator[Row]:
    """What the theorems speak of, measured on the final buffers."""
    columns = {
        ("cells",): (Column("Cells"), 0),
        ("minibatch", "zeta"): (Column("ζ", "mean over 200 minibatches"), 1),
        ("minibatch", "factor"): (Column("Factor", "(b + ζ² + ζ)/b"), 2),
        ("minibatch", "pair_factor"): (Column("Pair factor"), 3),
        ("measures", "surplus"): (Column("λ"), 0),
        ("measures", "entropy"): (Column("Entropy"), 3),
        ("measures", "entropy_limit"): (Column("log m"), 3),
        ("measures", "gap"): (Column("Gap", "log m minus the entropy"), 3),
        ("measures", "theorem_gap"): (Column("Theorem's gap", "(λ + 1) log(λ + 1)/m"), 3),
    }
    for entry in summary.by_method.values():
        if math.isfinite(entry.mean("buffer", "measures", "entropy_limit")):
            yield _names(summary, entry) | {
                column: number(entry.mean("buffer", *keys), digits)
                for keys, (column, digits) in columns.items()
            }


@_table(
    "theorems",
    "What the theorems predict, and what was measured",
    "Theorem 1 says that the minibatch gradient of the baseline's buffer varies (b + ζ² + ζ)/b "
    "times as much as that of FAC's. Measured: the variance of the critics' gradient over "
    f"{GRADIENTS} minibatches each, at the baseline's final parameters, on the baseline's "
    "buffer and on what FAC keeps of the same transitions. Theorem 2 says that FAC raises the "
    "entropy of the buffer by (λ + 1) log(λ + 1)/m. Measured: the entropy of its final buffer "
    "less that of the baseline's.",
)
def predictions(summary: Summary) -> Iterator[Row]:
    """What the theorems predict of FAC beside what was measured."""
    columns = (
        Column("Variance, predicted", "theorem 1: baseline over FAC"),
        Column("Variance, measured", "baseline over FAC; 1: no difference"),
        Column("Entropy, predicted", "theorem 2: FAC less baseline, nats"),
        Column("Entropy, measured", "FAC less baseline, nats"),
    )
    for task in summary.results.tasks:
        baseline = summary.get(task, BASELINE)
        if baseline is None:
            continue
        found = [result.buffer.get("gradients") for result in baseline.runs.values()]
        ratios = [both["baseline"] / both["fac"] for both in found if both and both["fac"] > 0.0]
        factor = number(baseline.mean("buffer", "minibatch", "factor"), 2)
        rise = number(baseline.mean("buffer", "measures", "theorem_gap"), 3, sign=True)
        before = baseline.mean("buffer", "measures", "entropy")
        for entry in summary.entries(task, FRUGAL):
            risen = entry.mean("buffer", "measures", "entropy") - before
            of_fac = [factor, number(finite_mean(ratios), 3)]
            variance = of_fac if entry.method == FAC else [NOTHING, NOTHING]
            shown = [*variance, rise, number(risen, 3, sign=True)]
            if math.isfinite(risen):
                yield _names(summary, entry) | dict(zip(columns, shown, strict=True))


@_table("paper", "Published rows for tasks not run here", "As printed in the paper.", folded=True)
def published(summary: Summary) -> Iterator[Row]:
    """The published rows of tasks that were not run here."""
    ran = {(paper.benchmark_name(env), algo.upper()) for env, algo in summary.results.tasks}
    names = ("CP B", "CP F", "Δ CP %", "|R| B", "|R| F", "Δ |R| %", "R B", "sd B", "R F", "sd F")
    columns = [Column(name) for name in (*names, "Δ R %", "P")]
    for benchmark, algorithm, *printed in (row.values() for row in paper.table("full")):
        if (benchmark, algorithm) not in ran:
            label = f"{benchmark} ({algorithm})"
            row: Row = {TASK: Entry(label, label)}
            for column, text in zip(columns, printed, strict=True):
                row[column] = Entry(_printed(text), float(text) if text else None)
            yield row


@_table(
    "paper",
    "Numbers of the paper that do not follow from its own",
    "Derived columns recomputed from the raw columns of the same row. 'last digit': rounded "
    "the wrong way; 'left blank': a dash hides a loss; 'translated': only follows if rewards "
    "are first shifted as for P, which the other table does not do.",
    folded=True,
)
def misprints(_: Summary) -> Iterator[Row]:
    """The paper's derived numbers that do not follow from its raw ones."""
    for entry in paper.table("misprints"):
        yield {
            Column("Table", numeric=False): Entry(entry["table"], entry["table"]),
            Column("Row", numeric=False): Entry(entry["row"], entry["row"]),
            Column("Column", numeric=False): Entry(entry["column"], entry["column"]),
            Column("Printed"): Entry(entry["printed"] or "–"),
            Column("Recomputed"): number(float(entry["recomputed"]), 3),
            Column("Kind", numeric=False): Entry(entry["kind"], entry["kind"]),
        }


def _pairs(
    summary: Summary, against: str, table: str
) -> Iterator[tuple[Row, MethodSummary, MethodSummary, paper.PublishedRow]]:
    """Give the beginning of a row, a frugal method and what it is compared with, the published row.

    That is the paper's method's: beside ours it stands only where the paper's was not run.
    """
    for task in summary.results.tasks:
        other = summary.get(task, against)
        printed = paper.published(table, *task) or {}
        for fac in summary.entries(task, FRUGAL):
            if other is not None:
                yield _names(summary, fac, printed), other, fac, printed
                printed = {}


def _comparison(
    row: Row,
    other: MethodSummary,
    fac: MethodSummary,
    printed: paper.PublishedRow,
    sign: str,
    name: str,
) -> Row:
    """Add to a row how FAC compares with another method, which has a sign in the headings."""

    def add(label: str, about: str, key: str, entry: Entry) -> None:
        row[Column(label, about)] = _beside(entry, printed, key)

    def both(label: str, about: str, key: str, shown: Callable[[MethodSummary], Entry]) -> None:
        add(f"{label} {sign}", f"{about} of {name}", f"{key}_{other.method}", shown(other))
        add(f"{label} F", f"{about} of FAC", f"{key}_{FAC}", shown(fac))

    shared = [seed for seed in other.convergence if seed in fac.convergence]
    points = [finite_mean([entry.convergence[s] for s in shared]) for entry in (other, fac)]
    earlier = "how much earlier FAC converges, mean of the seeds' differences"
    cut = measures.reduction(other.size, fac.size)
    rewards = other.mean("paper_reward"), fac.mean("paper_reward")
    change = number(measures.reward_change(*rewards), sign=True)
    efficiency = "reward per stored transition, FAC's over the other's"
    ratio = measures.sample_efficiency(rewards[0], other.size, rewards[1], fac.size)
    both("CP", "convergence point, in steps,", "cp", _settled)
    add("Δ CP %", earlier, "delta_cp_percent", number(measures.reduction(*points)))
    both("|R|", "transitions in the final buffer", "buffer", lambda it: number(it.size, 0))
    add("Δ |R| %", "cut of the buffer", "buffer_cut_percent", number(cut))
    both("R", "reward, as the paper measured,", "reward", _spread)
    add("Δ R %", "change of reward", "delta_reward_percent", change)
    add("P", efficiency, "sample_efficiency_P", number(ratio))
    both("full reward", "deterministic reward", "", lambda it: number(it.reward.value))
    return row


def _spread(entry: MethodSummary, key: str = "paper_reward") -> Entry:
    """Write mean ± spread over seeds of a measure."""
    mean, sd = number(entry.mean(key)), entry.sd(key)
    return replace(mean, text=f"{mean.text} ± {show(sd)}") if math.isfinite(sd) else mean


def _beside(entry: Entry, printed: paper.PublishedRow, key: str) -> Entry:
    """Put the published number, with its spread if it has one, below ours."""
    text = printed.get(key)
    if text is None:
        return entry
    spread = f" ± {printed[f'{key}_sd']}" if f"{key}_sd" in printed else ""
    return replace(entry, published=_printed(text) + spread)


def _printed(text: str) -> str:
    """Write a number as printed in the paper, but with our minus and thousands separated."""
    return f"{int(text):,}" if text.isdigit() else (text or "–").replace("-", "−")


def _task_entry(summary: Summary, task: TaskKey, printed: paper.PublishedRow) -> Entry:
    """Name a task; the line below it says that published numbers are below, and of how long."""
    name = task_name(task)
    if not printed:
        return Entry(name, name)
    steps = {result.run.steps for result in summary.results.runs if result.run.task == task}
    published = find_preset(*task).get("steps")
    longer = published is not None and steps != {published}
    return Entry(name, name, f"paper: {published:,} steps" if longer else PUBLISHED_BELOW)


def _names(
    summary: Summary, entry: MethodSummary, printed: paper.PublishedRow | None = None
) -> Row:
    """Begin a row: the task and the method."""
    label = summary.results.method(entry.method).label
    task = _task_entry(summary, entry.task, printed or {})
    return {TASK: task, METHOD: Entry(label, entry.method)}


def _digits(summary: Summary, entry: MethodSummary) -> int:
    """Choose the decimals of a task's rewards, the same for all of its methods."""
    return digits_for((summary.get(entry.task, summary.reference) or entry).reward.value)


def _interval(estimate: Estimate, digits: int = 2) -> Entry:
    return Entry(show_interval(estimate, digits), estimate.value)


def _colored(estimate: Estimate, digits: int = 2, *, clear: bool, even: float = 0.0) -> Entry:
    """Write a difference, or a chance whose even is not zero, coloured where it is clear."""
    emphasis = ("good" if estimate.value > even else "bad") if clear else ""
    text = show_interval(estimate, digits, sign=even == 0.0)
    return Entry(text, estimate.value, emphasis=emphasis)


def _difference(found: Comparison | None, digits: int) -> Entry:
    return _colored(found.difference, digits, clear=found.clear) if found else NOTHING


def _settled(entry: MethodSummary) -> Entry:
    """Write a convergence point, and how many runs had one."""
    points = entry.convergence.values()
    settled = sum(result.convergence is not None for result in entry.runs.values())
    rest = f" ({settled} of {len(points)} settled)" if settled < len(points) else ""
    mean = finite_mean(points)
    return Entry(show(mean, 0) + rest, mean)


def _reference(summary: Summary) -> str:
    return "the baseline" if summary.reference == BASELINE else "FAC"
