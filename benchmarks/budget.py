"""Reward over the bytes of the buffer: table and figure of what `frugalrl bench budget` left.

Reads finished runs, so it can be called while others are still going on. Rewards are those of the
second half of training: means over seeds with 95 % bootstrap intervals; differences are paired by
seed. The table goes to the terminal as Markdown, the figure (a panel per task) to a file.
What Stable-Baselines3's ReplayBuffer takes for as many transitions follows from its arrays: state
and next state as the environment gives them, the action as float32, and reward, end and time limit
as float32. It makes the same runs to the bit, so its line is the ring's, moved to the right.

    python benchmarks/budget.py [results/budget results/budget-quick ...] [--figure FILE.svg]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from frugalrl.bench import statistics
from frugalrl.bench.aggregate import MethodSummary, generator_for, summarize
from frugalrl.bench.methods import rule_and_share
from frugalrl.bench.results import read_results

LABELS = {
    "baseline": "all transitions",
    "baseline@dtype=float16": "all transitions, float16",
    "small": "ring",
    "small@dtype=float16": "ring, float16",
    "random-slot": "random eviction",
    "random-slot@dtype=float16": "random eviction, float16",
    "fac": "FrugalFilter",
    "fac@eviction=random": "FrugalFilter, random eviction",
    "fac-paper": "FrugalFilter.paper",
    "reservoir": "newest and a sample",
}
NOT_DRAWN = ("baseline@dtype=float16", "fac@eviction=random", "fac-paper", "reservoir")
"""Rules of which the figure says nothing: run on few tasks, for the paper's claims, or gone."""
SB3 = "ring of Stable-Baselines3"
COLORS = {
    "baseline": "#444444",
    "small": "#7a5fd3",
    "small@dtype=float16": "#1b9e77",
    "random-slot": "#c1440e",
    "random-slot@dtype=float16": "#e6a117",
    "fac": "#2166d1",
}
COLUMNS = (
    "task", "buffer", "seeds", "MB", "SB3's MB", "final reward", "second half",
    "less all transitions'", "less the ring's", "less random eviction's",
)  # fmt: skip
SHORT_COLUMNS = (
    "task", "seeds", "MB: Stable-Baselines3", "all transitions", "a fifth", "of which",
    "reward: all transitions", "a fifth", "difference",
)  # fmt: skip


def main() -> None:
    """Print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, default=[Path("results/budget")])
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--fifths", action="store_true", help="a row per task: a fifth in float16")
    arguments = parser.parse_args()
    tasks = [task for directory in arguments.results for task in read_tasks(directory)]
    if arguments.fifths:
        print(f"| {' | '.join(SHORT_COLUMNS)} |\n|---|--:|--:|--:|--:|---|--:|--:|--:|")
        for task, entries in tasks:
            print(*fifth_rows(task, entries), sep="\n", end="")
    else:
        print(f"| {' | '.join(COLUMNS)} |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
        for task, entries in tasks:
            print(*table_rows(task, entries), sep="\n")
    if arguments.figure is not None:
        draw(tasks, arguments.figure)


def read_tasks(directory: Path) -> Iterator[tuple[str, list[MethodSummary]]]:
    """Give each task's finished methods, smallest buffers first and rules in a fixed order."""
    summary = summarize(read_results(directory))
    order = list(LABELS)
    for task in summary.results.tasks:
        entries = [entry for (key, _), entry in summary.by_method.items() if key == task]
        known = [entry for entry in entries if rule(entry) in LABELS]
        name = task[0] if task[1] == "sac" else f"{task[0]}, {task[1].upper()}"
        yield name, sorted(known, key=lambda e: (-share(e), order.index(rule(e))))


def rule(entry: MethodSummary) -> str:
    """Name the rule of a method, without its size."""
    return rule_and_share(entry.method)[0]


def share(entry: MethodSummary) -> float:
    """Give the part of the run's transitions that a buffer of given size has room for."""
    return rule_and_share(entry.method)[1] or 1.0


def sb3_megabytes(entry: MethodSummary) -> float:
    """Give what Stable-Baselines3's ReplayBuffer takes for as many transitions as are held."""
    kwargs = next(iter(entry.runs.values())).run.settings.get("env_kwargs", {})
    kwargs = json.loads(kwargs) if isinstance(kwargs, str) else kwargs  # from a command line
    try:
        env = gymnasium.make(entry.task[0], **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise SystemExit(f'{entry.task[0]} is needed: pip install ".[train,envs]"') from error
    observation, action = env.observation_space, env.action_space
    states = 2 * int(np.prod(observation.shape)) * observation.dtype.itemsize
    each = states + 4 * int(np.prod(action.shape)) + 3 * 4
    env.close()
    return entry.size * each / 1e6


def table_rows(task: str, entries: list[MethodSummary]) -> Iterator[str]:
    """Write a task's rows of the table."""
    digits = 2 if max(abs(entry.late_reward.value) for entry in entries) < 50 else 0
    for number, entry in enumerate(entries):
        size = "" if share(entry) == 1.0 else f", {share(entry):.0%}"
        differences = []
        for other in ("baseline", "small", "random-slot"):
            found = [e for e in entries if rule(e) == other]
            if other != "baseline":
                found = [e for e in found if size and share(e) == share(entry)]
            if found and found[0] is not entry:
                differences.append(written(less(task, entry, found[0], other), digits, "+"))
            else:
                differences.append("")
        columns = [
            task if number == 0 else "",
            LABELS[rule(entry)] + size,
            str(len(entry.seeds)),
            f"{entry.bytes / 1e6:.2f}",
            f"{sb3_megabytes(entry):.2f}",
            written(entry.reward, digits),
            written(entry.late_reward, digits),
            *differences,
        ]
        yield "|" + "".join(f" {column} |" if column else " |" for column in columns)


def fifth_rows(task: str, entries: list[MethodSummary]) -> Iterator[str]:
    """Write what a fifth of the transitions in float16 is worth; nothing where it was not run."""
    full = next(entry for entry in entries if rule(entry) == "baseline")
    digits = max(0, 2 - int(np.log10(abs(full.late_reward.value))))
    for name, which in (("small", "the newest"), ("random-slot", "random ones")):
        for entry in entries:
            if rule(entry) == f"{name}@dtype=float16" and share(entry) == 0.2:
                sizes = [sb3_megabytes(full), full.bytes / 1e6, entry.bytes / 1e6]
                rewards = [f"{e.late_reward.value:,.{digits}f}" for e in (full, entry)]
                difference = written(less(task, entry, full, "baseline"), digits, "+")
                columns = [task, len(entry.seeds), *(f"{size:.2f}" for size in sizes)]
                yield f"| {' | '.join(map(str, [*columns, which, *rewards, difference]))} |\n"


def less(task: str, entry: MethodSummary, other: MethodSummary, name: str) -> statistics.Estimate:
    """Estimate by how much a method is above another, seed by seed."""
    seeds = sorted(set(entry.late) & set(other.late))
    paired = [entry.late[seed] - other.late[seed] for seed in seeds]
    return statistics.estimate_mean(paired, generator_for(task, entry.method, name))


def written(estimate: statistics.Estimate, digits: int, sign: str = "") -> str:
    """Write an estimate with its interval."""
    text = f"{estimate.value:{sign},.{digits}f}"
    if estimate.interval is not None:
        text += " [{:,.{digits}f}, {:,.{digits}f}]".format(*estimate.interval, digits=digits)
    return text


def draw(tasks: list[tuple[str, list[MethodSummary]]], path: Path) -> None:
    """Draw reward over bytes, a panel per task and a line per rule."""
    height = -(-len(tasks) // 4)
    width = -(-len(tasks) // height)
    figure, grid = plt.subplots(
        height, width, figsize=(2.9 * width, 2.5 * height), squeeze=False, layout="constrained"
    )
    for axes, (task, entries) in zip(grid.flat, tasks, strict=False):
        full = [entry for entry in entries if rule(entry) == "baseline"]
        for number, name in enumerate(LABELS):
            points = [entry for entry in entries if rule(entry) == name]
            if not points or name in NOT_DRAWN:
                continue
            # With room for everything every rule for a given size is the full buffer.
            points += full if name in ("small", "random-slot") else []
            points.sort(key=lambda entry: entry.bytes)
            rewards = np.array([entry.late_reward.value for entry in points])
            bounds = np.array([e.late_reward.interval or (np.nan, np.nan) for e in points]).T
            # Rules of one size stand a little apart, so that each interval can be seen.
            apart = [1.0 if share(entry) == 1.0 else 1.05 ** (number - 3) for entry in points]
            axes.errorbar(
                np.array([entry.bytes / 1e6 for entry in points]) * apart,
                rewards,
                np.abs(bounds - rewards),
                label=LABELS[name],
                color=COLORS[name],
                marker="o",
                markersize=4,
                linewidth=1.3,
                elinewidth=0.9,
                capsize=2,
                zorder=3 if name == "baseline" else 2,
            )
        ring = [entry for entry in entries if rule(entry) in ("baseline", "small")]
        ring.sort(key=lambda entry: entry.bytes)
        axes.plot(
            [sb3_megabytes(entry) for entry in ring],
            [entry.late_reward.value for entry in ring],
            "o:",
            label=SB3,
            color="#999999",
            markersize=3,
            linewidth=1.1,
            zorder=1,
        )
        axes.set_xscale("log")
        sizes = [entry.bytes / 1e6 for entry in ring]
        axes.set_xticks(sizes, [f"{size:.2g}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        seeds = sorted({len(entry.seeds) for entry in entries if rule(entry) not in NOT_DRAWN})
        many = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
        axes.set_title(f"{task}, {many} seeds", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e6e6")
    for axes in grid.flat[len(tasks) :]:
        axes.axis("off")
    figure.supxlabel("bytes of the buffer, MB", fontsize=9)
    figure.supylabel("reward, second half of training", fontsize=9)
    lines = {
        label: line
        for axes in grid.flat
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    shown = [label for label in (*LABELS.values(), SB3) if label in lines]
    figure.legend(
        [lines[label] for label in shown],
        shown,
        loc="outside upper center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
