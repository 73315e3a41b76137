"""Shared by the tests of faults: tiny runs, and a table of what was tried when all have run."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))

import training_worlds

training_worlds.register()


def pytest_terminal_summary(terminalreporter, config) -> None:
    """Print cases tried and passed, file by file, where only faults were asked for."""
    if not config.getoption("--faults-table"):
        return
    tried: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call" or outcome != "passed":
                path, _, name = report.nodeid.partition("::")
                case = name.partition("[")[0].removeprefix("test_").replace("_", " ")
                tried[f"{Path(path).stem.removeprefix('test_')}: {case}"][outcome] += 1
    terminalreporter.write_sep("=", "faults")
    for name, counts in sorted(tried.items()):
        total = sum(counts.values())
        terminalreporter.write_line(f"{name:<90} {total:>4} tried {counts['passed']:>4} passed")
    total = sum(sum(counts.values()) for counts in tried.values())
    passed = sum(counts["passed"] for counts in tried.values())
    terminalreporter.write_line(f"{'all':<90} {total:>4} tried {passed:>4} passed")
