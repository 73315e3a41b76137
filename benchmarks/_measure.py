"""Side-by-side measurements: interleaved rounds, medians with their spread, table and JSON."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def interleaved(
    contenders: Mapping[str, Callable[[], int]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Time contenders in turn, round after round, so that a noisy moment hits all alike.

    Args:
        contenders: by name, a function that does some work and says how many operations it was.
            A millisecond or so is best: long enough to time, short enough to be left alone.
        rounds: how many times each is measured, after one round that does not count.
        clock: `time.process_time` counts what this process has worked, whoever else is at work.

    Returns:
        By name, microseconds an operation: median, first and third quartile, least.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds + 1):
            # Another one begins each time: nobody always runs in the wake of the same neighbour.
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                start = clock()
                operations = contenders[name]()
                elapsed = clock() - start
                if turn:
                    times[name].append(elapsed / operations * 1e6)
    finally:
        gc.enable()
    return {name: summary(values) for name, values in times.items()}


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and least of some measurements."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high, "least": min(values)}


def spread(timing: Mapping[str, float] | None) -> str:
    """Write a measurement as median and quartiles."""
    if timing is None:
        return "-"
    return f"{timing['median']:.1f} ({timing['q1']:.1f}-{timing['q3']:.1f})"


def conditions(packages: Iterable[str]) -> dict[str, Any]:
    """Describe the machine, the versions and the commit that a measurement belongs to."""
    return {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        },
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "commit": _commit(),
        "command": shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with the first column to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a measurement where it can be read again."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=2) + "\n")
    print(f"\nwrote {target}")


def write_page(
    path: str | os.PathLike[str],
    heading: str,
    tables: Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    made_with: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write tables as a page of Markdown, with the conditions of each part."""
    lines = [f"# {heading}", ""]
    for title, header, rows in tables:
        cells = [header, ["---"] * len(header), *rows]
        lines += [f"{title}:", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
    lines += ["Made by, with the load when it began:", ""]
    for part, made in made_with.items():
        machine = made["machine"]
        lines.append(
            f"- {part}: `{made['command']}` at {str(made['commit'])[:9]}, {machine['cores']} cores "
            f"({machine['processor']}), load {machine['load']:.1f}"
        )
    Path(path).write_text("\n".join(lines) + "\n")
