"""What a decision costs as one cell fills up: ours, and scikit-learn's density refitted each time.

One cell holds 1,000, 30,000, 100,000 and 1,000,000 rewards. Three kinds of decision are measured:
`new`, where the transition is stored; `equivalent`, where it replaces the oldest equivalent; and
`at the limit`, where the threshold is the typical density, which is where the rule drives a cell.
Each is measured through single-row calls and in batches of 256. The paper's way refits
scikit-learn's KernelDensity on all rewards of the cell and sums the density at five points, for
every transition.

    python benchmarks/admission.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from _measure import conditions, interleaved, print_table, spread, write_json
from frugalrl import FrugalFilter

SIZES = (1_000, 30_000, 100_000, 1_000_000)
KINDS = ("new", "equivalent", "at the limit")
BATCH = 256
DECISIONS = 16 * BATCH
_FIRST_DECISIONS = 9
STATE = np.full((BATCH, 1), 0.5)


def crowded(rewards: int, kind: str, spread_over: float, seed: int) -> FrugalFilter:
    """A filter whose one cell holds so many rewards, and whose next decisions are of one kind."""
    generator = np.random.Generator(np.random.PCG64(seed))
    # Everything is new while the cell fills; the threshold of the measured decisions comes after.
    f = FrugalFilter(
        warmup_steps=1, density_threshold=1e9, decay=float("inf"), bounds=([0.0], [1.0]), bins=1
    )
    values = generator.uniform(-spread_over, spread_over, size=rewards)
    f.admit(np.full((rewards, 1), 0.5), values)
    if kind != "new":
        # Rewards are spread evenly: the density is the share of the range within half a width.
        limit = 0.2 / spread_over if kind == "at the limit" else 0.0
        state = f.state_dict()
        state["settings"]["density_threshold"] = limit
        f = FrugalFilter.from_state_dict(state)
    return f


def ours(f: FrugalFilter, batch: int, spread_over: float) -> Callable[[], int]:
    """Decide about so many transitions that a cache, cold after the others' turn, is warm again."""
    generator = np.random.Generator(np.random.PCG64(1))
    states = STATE[:batch]

    def work() -> int:
        rewards = generator.uniform(-spread_over, spread_over, size=DECISIONS)
        for i in range(0, DECISIONS, batch):
            f.admit(states, rewards[i : i + batch])
        return DECISIONS

    return work


def scikit_learn(rewards: int, spread_over: float) -> Callable[[], int]:
    """Refit the density of the cell and sum it at five points, as the paper's code does."""
    from sklearn.neighbors import KernelDensity

    generator = np.random.Generator(np.random.PCG64(2))
    held = generator.uniform(-spread_over, spread_over, size=(rewards, 1))

    def work() -> int:
        reward = generator.uniform(-spread_over, spread_over)
        density = KernelDensity(kernel="epanechnikov", bandwidth=0.3).fit(held)
        points = np.linspace(reward - 0.2, reward + 0.2, 5).reshape(-1, 1)
        float(np.exp(density.score_samples(points)).sum() * 0.1)
        return 1

    return work


def first_decision() -> dict[str, float]:
    """Seconds from the start of a new process to its first decision, compiled code on disk."""
    code = (
        "import time, numpy as np, frugalrl\n"
        "f = frugalrl.FrugalFilter(warmup_steps=3)\n"
        "f.admit(np.eye(3), np.zeros(3)); f.admit(np.eye(3)[:1], np.zeros(1))\n"
        "print(time.time())\n"
    )
    seconds = []
    for _ in range(_FIRST_DECISIONS + 1):  # the first one compiles, if nobody has yet
        start = time.time()
        process = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        seconds.append(float(process.stdout) - start)
    q1, median, q3 = np.quantile(seconds[1:], [0.25, 0.5, 0.75])
    return {"median": float(median), "q1": float(q1), "q3": float(q3)}


def measure(spread_over: float, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Measure every contender at every size, all interleaved; by contender, then size."""
    contenders: dict[str, Callable[[], int]] = {}
    for size in SIZES:
        for kind in KINDS:
            for batch in (1, BATCH):
                f = crowded(size, kind, spread_over, seed=0)
                contenders[f"{kind}, batches of {batch}|{size}"] = ours(f, batch, spread_over)
        contenders[f"scikit-learn, refitted|{size}"] = scikit_learn(size, spread_over)
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, timing in interleaved(contenders, rounds).items():
        contender, size_text = name.split("|")
        table.setdefault(contender, {})[size_text] = timing
    return table


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", default="results/admission/admission.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for label, spread_over in (("dense, over 20 units", 10.0), ("sparse, over 200,000", 1e5)):
        table = measure(spread_over, arguments.rounds)
        results[label] = table
        rows = []
        for contender, by_size in table.items():
            first, last = by_size[str(SIZES[0])]["median"], by_size[str(SIZES[-1])]["median"]
            row = [contender, *(spread(by_size[str(size)]) for size in SIZES)]
            rows.append([*row, f"{last / first:.1f}x"])
        header = ["microseconds per decision", *(f"{size:,} rewards" for size in SIZES), "growth"]
        print_table(f"Rewards of one cell {label}: median (quartiles)", header, rows)
    first = first_decision()
    print(f"\nfirst decision of a new process: {first['median']:.2f} s")
    write_json(
        arguments.out,
        {
            "microseconds": results,
            "first_decision_seconds": first,
            "conditions": conditions(["frugalrl", "numba", "numpy", "scikit-learn"]),
        },
    )


if __name__ == "__main__":
    main()
