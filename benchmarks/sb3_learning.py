"""Does Stable-Baselines3's SAC learn as well with a frugal buffer? Pendulum-v1, five seeds a side.

Both sides are trained by `benchmarks/parity.py` with the same settings, seeds and evaluation
episodes; the plain side is parity's own. Every run is one small JSON file, so that the comparison
can be stopped and continued:

    python benchmarks/sb3_learning.py           # runs what is missing, then writes the summary
    python benchmarks/sb3_learning.py --summary # only the summary of what is there
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import parity

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "adapters"
ALGO, ENV = "sac", "Pendulum-v1"
# The paper's numbers are FrugalFilter's defaults: 10,000 of the 20,000 steps are warm-up.
SIDES: dict[str, dict[str, Any]] = {
    "replace": {"on_equivalent": "replace"},
    "discard": {"on_equivalent": "discard"},
}


def run_path(side: str, seed: int) -> Path:
    return RESULTS / "runs" / f"sb3-{ALGO}-fac-{side}-{ENV}-{seed}.json"


def run(side: str, seed: int) -> None:
    """Train once with admission and write the run's file, unless it exists."""
    from frugalrl.adapters.sb3 import FrugalReplayBuffer

    path = run_path(side, seed)
    if path.exists():
        return
    made: list[FrugalReplayBuffer] = []

    class Remembered(FrugalReplayBuffer):
        def __init__(self, *positional: Any, **named: Any) -> None:
            super().__init__(*positional, **named)
            made.append(self)

    settings = {
        **parity.SETTINGS[ALGO, ENV],
        "replay_buffer_class": Remembered,
        "replay_buffer_kwargs": SIDES[side],
    }
    started = time.perf_counter()
    result = parity.train_sb3(ALGO, ENV, seed, settings)
    seconds = time.perf_counter() - started
    means = [mean for _, mean in result["curve"]]
    record = {
        "side": side,
        "seed": seed,
        "settings": parity.SETTINGS[ALGO, ENV],
        "admission": SIDES[side],
        "versions": result["versions"],
        "seconds": round(seconds, 1),
        "final_mean": sum(result["final"]) / len(result["final"]),
        "area_under_curve": sum(means) / len(means),
        "curve": [[steps, round(mean, 3)] for steps, mean in result["curve"]],
        "final": [round(reward, 3) for reward in result["final"]],
        "buffer": {**asdict(made[0].stats), "held": len(made[0]), "bytes": made[0].nbytes},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(temporary, path)
    print(f"{path.name}: final {record['final_mean']:.1f}, held {len(made[0])}, {seconds:.0f} s")


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean and Student's 95 % interval."""
    import numpy as np
    from scipy import stats

    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return mean, mean - half, mean + half


def after_warmup(curve: list[list[float]], warmup: int = 10_000) -> float:
    """Return the mean reward of the evaluations that the filter had a hand in."""
    late = [mean for steps, mean in curve if steps > warmup]
    return sum(late) / len(late)


def read(paths: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def summarise() -> None:
    """Print the table and write it, as Markdown and JSON."""
    runs = {"plain": read([parity.run_path("sb3", ALGO, ENV, seed) for seed in parity.SEEDS])}
    for side in SIDES:
        runs[side] = read([run_path(side, seed) for seed in parity.SEEDS])
    rows, table = [], {}
    for side, records in runs.items():
        if len(records) < 2:
            continue
        final = interval([record["final_mean"] for record in records])
        area = interval([record["area_under_curve"] for record in records])
        held = [record.get("buffer", {}).get("held", record.get("steps")) for record in records]
        late = interval([after_warmup(record["curve"]) for record in records])
        row = {"seeds": len(records), "final": final, "after_warmup": late}
        row["area_under_curve"] = area
        table[side] = {**row, "held": sum(held) / len(held)}
        if side != "plain" and "plain" in table:
            for measure in ("final", "after_warmup", "area_under_curve"):
                low, high = table["plain"][measure][1:]
                table[side][f"{measure}_within_plain"] = low <= row[measure][0] <= high
        rows.append(
            f"| {'plain ReplayBuffer' if side == 'plain' else f'FrugalReplayBuffer, {side}'} "
            f"| {len(records)} | {final[0]:.1f} [{final[1]:.1f}, {final[2]:.1f}] "
            f"| {late[0]:.1f} [{late[1]:.1f}, {late[2]:.1f}] "
            f"| {area[0]:.1f} [{area[1]:.1f}, {area[2]:.1f}] | {table[side]['held']:,.0f} |"
        )
    lines = [
        f"# Stable-Baselines3 SAC on {ENV}, {parity.STEPS[ENV]:,} steps: mean [95 % interval]",
        "",
        "| buffer | seeds | final reward | mean of the curve after the warm-up | mean of the curve "
        "| transitions held |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"Made by `python benchmarks/sb3_learning.py`; settings: `{parity.SETTINGS[ALGO, ENV]}`,",
        "the filter's own settings are its defaults. While its warm-up lasts (10,000 steps)",
        "everything is kept, so the first half of a run is the plain run to the bit; what the",
        "filter does shows in the second half only.",
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "learning.md").write_text("\n".join(lines) + "\n")
    (RESULTS / "learning.json").write_text(json.dumps(table, indent=1) + "\n")
    print("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--summary", action="store_true", help="run nothing")
    parser.add_argument("--side", nargs="+", choices=tuple(SIDES), default=["replace"])
    parser.add_argument("--one", nargs=2, metavar=("SIDE", "SEED"), help="run only this")
    options = parser.parse_args()
    if options.one:
        run(options.one[0], int(options.one[1]))
        return 0
    failed = 0
    if not options.summary:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        for side in options.side:
            for seed in parity.SEEDS:
                if not run_path(side, seed).exists():
                    command = [sys.executable, __file__, "--one", side, str(seed)]
                    done = subprocess.run(command, env={**os.environ, **threads}, check=False)
                    failed += done.returncode != 0
    summarise()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
