"""What the results say, in two sentences, and what weakens them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from frugalrl.bench.aggregate import BASELINE, FAC, FRUGAL, MethodSummary, Summary, task_name
from frugalrl.bench.methods import rule_and_share
from frugalrl.bench.report.table import digits_for, show, show_interval
from frugalrl.bench.statistics import FEW_SEEDS, MIN_SEEDS_FOR_INTERVAL

_MANY_TESTS = 8
"""Of which one would look clear by chance more than one time in three."""
_CONTROLS = {
    "random-slot": "overwriting at random in a buffer of the same size",
    "small": "a ring of the same size",
}


def verdict(summary: Summary) -> str:
    """Say in two sentences what FAC did against the baseline, and whether controls did as well."""
    if not summary.by_method:
        problems = summary.results.problems
        failed = sum(problem.state == "failed" for problem in problems)
        return (
            f"None of the {len(problems)} runs of this grid has a result: {failed} failed, "
            f"{len(problems) - failed} did not finish. There is nothing to compare; what went "
            "wrong is listed below."
        )
    fewest, most = summary.seed_counts
    strength = f"With {_seeds(fewest, most)} the evidence is weak."
    if fewest >= FEW_SEEDS:
        strength = f"There are {_seeds(fewest, most)} per method."
    elif most >= FEW_SEEDS:
        strength = f"{strength[:-1]} where they are fewer than {FEW_SEEDS}."
    methods = summary.results.methods
    budgets = _budgets(summary)
    if budgets:
        return f"{budgets} {strength}"
    judged = next((name for name in (FAC, *FRUGAL) if name in methods), FAC)
    pairs = [
        (fac, baseline)
        for task in summary.results.tasks
        if (fac := summary.get(task, judged)) and (baseline := summary.get(task, BASELINE))
    ]
    if pairs:
        label = summary.results.method(judged).label
        one = len(pairs) == 1
        first = _one_task(*pairs[0], label) if one else _many_tasks(summary, pairs, label)
        return f"{first} {_controls(summary, [fac for fac, _ in pairs])}"
    ablation = _ablation(summary)
    if ablation:
        return f"{ablation} {strength}"
    return (
        f"These results hold {len(summary.results.runs)} runs of {', '.join(methods)}, but not "
        f"both FAC and its baseline on one task, so they cannot compare the two. {strength}"
    )


def warnings(summary: Summary) -> list[str]:
    """List what a reader must know before believing a number."""
    notes = []
    fewest, most = summary.seed_counts
    who = "Each" if fewest == most else "Some"
    if 0 < fewest < MIN_SEEDS_FOR_INTERVAL:
        notes.append(
            f"{who} method has only {_seeds(fewest)}: no interval is shown for it, and nothing can "
            "be concluded from it."
        )
    elif 0 < fewest < FEW_SEEDS:
        notes.append(
            f"The evidence is weak: {who.lower()} method has only {_seeds(fewest)}, fewer than "
            f"{FEW_SEEDS}. Intervals from so few are too narrow."
        )
    unequal = []
    for task in summary.results.tasks:
        entries = summary.entries(task)
        usual, _ = Counter(entry.seeds for entry in entries).most_common(1)[0]
        odd = [f"{entry.method} {len(entry.seeds)}" for entry in entries if entry.seeds != usual]
        if odd:
            unequal.append(f"{task_name(task)}: {', '.join(odd)}, the others {len(usual)}")
    if unequal:
        named = "; ".join(unequal)
        notes.append(
            "Where two methods have different seeds their difference is not paired, but at equal "
            f"size, where it is over the seeds that both have: {named}."
        )
    tests = sum(
        entry.against_reference is not None and entry.against_reference.welch_p is not None
        for entry in summary.by_method.values()
    )
    if tests >= _MANY_TESTS:
        notes.append(
            f"{tests} differences are judged at the 5 % level, none corrected for their number: if "
            f"none was real, about {tests / 20.0:.0f} would look clear all the same."
        )
    ends = dict.fromkeys(summary.results.tasks, 0.0)
    for result in summary.results.runs:
        ends[result.run.task] = max(ends[result.run.task], result.curve[0].max(initial=0.0))
    short = [
        result.run.name
        for result in summary.results.runs
        if result.curve[0].max(initial=0.0) < ends[result.run.task]
    ]
    if short:
        notes.append(
            "Evaluations are missing, so their second half is the mean of what is there, or of the "
            f"other seeds: {', '.join(short)}."
        )
    problems = summary.results.problems
    if problems:
        states = Counter(problem.state for problem in problems)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        total = len(problems) + len(summary.results.runs)
        notes.append(f"{len(problems)} of {total} runs have no result: {counts}.")
    scored = summary.scores.get(BASELINE, summary.results.tasks)
    left = ", ".join(task_name(task) for task in summary.results.tasks if task not in scored)
    if left:
        notes.append(f"Left out of the scores over tasks, for want of a reference: {left}.")
    commits = {str(result.done.get("commit")) for result in summary.results.runs}
    if len(commits) > 1:
        notes.append(f"The runs come from {len(commits)} different versions of the code.")
    return notes


def _budgets(summary: Summary) -> str:
    """Say for each task and budget which rules end clearly above or below the full buffer."""
    parts = []
    for task in summary.results.tasks:
        full = summary.get(task, BASELINE)
        budgets = [(*rule_and_share(entry.method), entry) for entry in summary.entries(task)]
        shares = sorted({share for _, share, _ in budgets if share is not None}, reverse=True)
        if full is None or not shares:
            continue
        digits = digits_for(full.reward.value)
        reward, size = show_interval(full.reward, digits), show(full.bytes / 1e6)
        parts.append(f"{task_name(task)}: the full buffer ends at {reward} from {size} MB.")
        told: dict[str, list[str]] = {}
        for share in shares:
            sides: dict[str, list[str]] = {"above": [], "below": []}
            for rule, own, entry in budgets:
                compared = entry.against_reference
                if own == share and compared is not None and compared.clear:
                    side = sides["above" if compared.difference.value > 0.0 else "below"]
                    apart = show_interval(compared.difference, digits, sign=True)
                    label = summary.results.method(rule).label
                    side.append(f"{label} ({apart} from {show(entry.bytes / 1e6)} MB)")
            clear = [
                f"clearly {side} it: {', '.join(them)}" for side, them in sides.items() if them
            ]
            words = "; ".join(clear) or "no rule is told apart from it"
            told.setdefault(words, []).append(f"{100 * share:g} %")
        for words, same in told.items():
            parts.append(f"With {' and '.join(same)} of the steps {words}.")
    return " ".join(parts)


def _one_task(fac: MethodSummary, baseline: MethodSummary, label: str) -> str:
    text = (
        f"On {task_name(fac.task)} with {_seeds(len(fac.seeds))} {label} ended with "
        f"{show(100.0 * fac.size / baseline.size, 0)} % of the baseline's transitions "
        f"({show(100.0 * fac.bytes / baseline.bytes, 0)} % of its bytes, the filter's own included)"
    )
    if fac.against_reference is None:
        return f"{text}."
    difference = fac.against_reference.difference
    digits = digits_for(baseline.reward.value)
    text += f", and its final reward differs by {show_interval(difference, digits, sign=True)}"
    gained = baseline.reward.value - baseline.mean("random_reward")
    if gained > 0.0:
        share = 100.0 * abs(difference.value) / gained
        text += f", {show(share, 1)} % of what learning gained"
    if difference.interval is None:
        return f"{text}: too few seeds to tell."
    higher = difference.value > 0
    if fac.against_reference.clear:
        return f"{text}: clearly {'higher' if higher else 'lower'}."
    welch = fac.against_reference.welch_p
    if not difference.excludes(0.0) or welch is None:
        return f"{text}: no difference can be told from chance."
    side = "an advantage" if higher else "a loss"
    return f"{text}: {side} seed by seed that Welch's test (p = {show(welch)}) does not confirm."


def _ablation(summary: Summary) -> str:
    """Say what other parameters did, where there is the filter as it is to compare with."""
    clear: dict[str, list[str]] = {"higher": [], "lower": []}
    shares = []
    several = len(summary.results.tasks) > 1
    for (task, method), entry in summary.by_method.items():
        found, fac = entry.against_reference, summary.get(task, FAC)
        if not method.startswith(f"{FAC}@") or found is None or fac is None:
            continue
        shares.append(100.0 * entry.size / fac.size)
        if found.clear:
            where = f" on {task_name(task)}" if several else ""
            side = "higher" if found.difference.value > 0 else "lower"
            clear[side].append(method.partition("@")[2] + where)
    if not shares:
        return ""
    parts = []
    for side, names in clear.items():
        if names:
            few = f" ({', '.join(names)})" if len(names) <= 3 else ""
            parts.append(f"{len(names)}{few} ended clearly {side}")
    told = f"{' and '.join(parts)} than" if parts else "none can be told in final reward from"
    least, most = show(min(shares), 0), show(max(shares), 0)
    held = least if least == most else f"{least} to {most}"
    many = "pairs of task and method" if several else "methods"
    return (
        f"Of {len(shares)} {many} with a changed parameter {told} FAC as it is; their buffers "
        f"hold {held} % of its transitions."
    )


def _many_tasks(
    summary: Summary, pairs: list[tuple[MethodSummary, MethodSummary]], label: str
) -> str:
    shares = [100.0 * fac.size / base.size for fac, base in pairs]
    text = (
        f"Over {len(pairs)} tasks {label} ended with {show(float(np.median(shares)), 0)} % of the "
        f"baseline's transitions (median; {show(min(shares), 0)} to {show(max(shares), 0)} %)"
    )
    chance = summary.improvement(pairs[0][0].method)
    if chance is None:
        return f"{text}; their rewards have no common scale to compare them on."
    judged = "too few seeds to tell" if chance.interval is None else "no clear difference"
    if chance.excludes(0.5):
        judged = "better than even" if chance.value > 0.5 else "worse than even"
    return (
        f"{text}, and a run of {label} beats one of the baseline's with probability "
        f"{show_interval(chance)}: {judged}."
    )


def _controls(summary: Summary, facs: list[MethodSummary]) -> str:
    fewest, _ = summary.seed_counts
    seeds = _seeds(fewest)
    weak = f"; with {seeds} the evidence is weak" if fewest < FEW_SEEDS else ""
    outcomes: dict[str, list[int]] = {}
    for name, words in _CONTROLS.items():
        signs = [_beats(fac, it) for fac in facs if (it := summary.get(fac.task, name))]
        if signs:
            outcomes[words] = signs
    if not outcomes:
        return (
            "Neither control was run (random-slot, small), so this says "
            f"nothing about whether it matters what is kept{weak}."
        )
    if fewest < MIN_SEEDS_FOR_INTERVAL:
        return f"With {seeds} it cannot be told from its controls ({', '.join(outcomes)})."
    same = [words for words, signs in outcomes.items() if not any(signs)]
    if same == list(_CONTROLS.values()):
        parts = [f"neither {same[0]} nor {same[1]} did measurably worse"]
    else:
        told = sorted(outcomes.items(), key=lambda item: any(item[1]))  # those alike first
        parts = [f"{words} did {_outcome(signs)}" for words, signs in told]
    meaning = "so these results do not show that it matters what is kept"
    if all(sum(signs) > 0 and min(signs) >= 0 for signs in outcomes.values()):
        meaning = "which speaks for what FAC keeps"
    text = f"{' and '.join(parts)}, {meaning}{weak}."
    return text[0].upper() + text[1:]


def _outcome(signs: list[int]) -> str:
    worse, better = signs.count(1), signs.count(-1)
    if not worse and not better:
        return "not do measurably worse"
    if len(signs) == 1:
        return "worse" if worse else "better"
    if worse == len(signs):
        return "worse on all of them"
    return f"worse on {worse}, better on {better} of them"


def _beats(fac: MethodSummary, control: MethodSummary) -> int:
    """Tell whether FAC's reward is above a control's (1), below (-1), or not to be told apart."""
    found = fac.against(control, "rewards")
    return int(math.copysign(1, found.difference.value)) if found and found.clear else 0


def _seeds(count: int, most: int | None = None) -> str:
    if most not in (None, count):
        return f"{count} to {most} seeds"
    return f"{count} seed{'s' * (count != 1)}"
