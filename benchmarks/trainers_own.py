"""The trainers' own tests, with our buffer swapped in.

    pip download --no-binary :all: --no-deps stable_baselines3 sb3_contrib sbx-rl
    python benchmarks/trainers_own.py DIRECTORY ... [--files test_run.py ...] [-k EXPRESSION]

No trainer installs its tests, but the source distributions of these three carry them: unpack those,
or give checkouts. Their own tests run with FrugalReplayBuffer (everything admitted) wherever an
algorithm or a test would make a ReplayBuffer, DictReplayBuffer or NStepReplayBuffer. A test that
fails must be an expected refusal, with the error that belongs to it; anything else is unexpected,
and so is an expected refusal that no longer happens. Stable-Baselines3's tests need ale-py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _measure import conditions, print_table, write_json, write_page

PACKAGES = ("stable-baselines3", "sb3-contrib", "sbx-rl", "torch", "jax", "gymnasium", "numpy")
RESULTS = Path(__file__).parents[1] / "results" / "adapters" / "trainers_own.json"
TITLE = "The trainers' own tests with our buffer"
COUNTS = ("passed", "with_our_buffer", "skipped")
HEADER = ("file", "passed", "with our buffer", "skipped", "refused as expected", "unexpected")


class Refusal(NamedTuple):
    """What our buffer does not do."""

    error: str
    """A part of the error by which the test fails."""
    reason: str


_BY_ROW = "by row and environment, which are not all kept"
EXPECTED_REFUSALS = {
    "test_buffers.py::test_buffer_dtypes": Refusal(
        "has no 'observations' by row", f"reads `observations` {_BY_ROW}"
    ),
    "test_save_load.py::test_save_load_replay_buffer": Refusal(
        "has no 'observations' by row", f"reads `observations` {_BY_ROW}"
    ),
    "test_sde.py::test_state_dependent_noise": Refusal(
        "has no 'actions' by row", f"reads `actions` {_BY_ROW}"
    ),
    "test_n_step_replay.py::test_nstep_no_terminations": Refusal(
        "DESIRED: array(0.9801)",
        "draws a step before the n - 1 after it are known, with a return over fewer; ours is "
        "offered when they are",
    ),
    "test_save_load.py::test_warn_buffer": Refusal(
        "assert 0 == 1",
        "waits for the warning that optimize_memory_usage cuts an episode off when `learn` is "
        "called again; ours has no need to",
    ),
}


class Result(NamedTuple):
    """What became of one test."""

    test: str
    """Its file and name, with its parameters."""
    outcome: str
    """"passed", "skipped" or "failed"."""
    buffers: int
    """How many of our buffers it made."""
    error: str
    """With which it failed."""

    @property
    def function(self) -> str:
        """The test without its parameters."""
        return self.test.partition("[")[0]


def run_tests(directory: Path, tests: Sequence[str], arguments: Sequence[str]) -> list[Result]:
    """Run some of a checkout's tests with the buffers swapped."""
    with tempfile.TemporaryDirectory() as work:
        report = Path(work, "report.xml")
        here = str(Path(__file__).parent)
        search = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rN", "-p", "no:cacheprovider"]
        command += ["-p", "swapped_buffers", f"--junitxml={report}", *arguments, *tests]
        ended = subprocess.run(command, cwd=directory, env={**os.environ, "PYTHONPATH": search})
        if ended.returncode not in (0, 1, 5):  # 5: nothing is selected
            raise SystemExit(f"pytest ended with {ended.returncode} in {directory}")
        return [result_of(case) for case in ET.parse(report).iter("testcase")]


def result_of(case: ET.Element) -> Result:
    """Read one test from pytest's report."""
    _, module, *classes = case.get("classname", "").split(".")
    test = "::".join([f"{module}.py", *classes, case.get("name", "")])
    made = sum(int(entry.get("value", 0)) for entry in case.iter("property"))
    errors = [entry.get("message", "") for entry in case if entry.tag in ("failure", "error")]
    outcome = "failed" if errors else "passed" if case.find("skipped") is None else "skipped"
    return Result(test, outcome, made, " ".join(" ".join(errors).split()))


def is_expected(result: Result) -> bool:
    """Tell whether a failure is a refusal that we expect."""
    refusal = EXPECTED_REFUSALS.get(result.function)
    return refusal is not None and refusal.error in result.error


def run_file(directory: Path, file: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one file of a checkout's tests; returns counts, and what was refused or unexpected."""
    results = {result.test: result for result in run_tests(directory, [f"tests/{file}"], arguments)}
    refused, unexpected = failures(results.values())
    if unexpected:
        # Some of their tests draw without a seed and fail now and then, with any buffer.
        again = run_tests(directory, [f"tests/{test}" for test in unexpected], [])
        results.update({result.test: result for result in again})
        refused, unexpected = failures(results.values())
    gone = {result.function for result in results.values()} & EXPECTED_REFUSALS.keys()
    gone -= {name.partition("[")[0] for name in [*refused, *unexpected]}
    unexpected += [f"{function} is refused no longer" for function in sorted(gone)]
    passed = [result for result in results.values() if result.outcome == "passed"]
    return {
        "passed": len(passed),
        "with_our_buffer": sum(result.buffers > 0 for result in passed),
        "skipped": len([result for result in results.values() if result.outcome == "skipped"]),
        "refused": refused,
        "unexpected": unexpected,
    }


def failures(results: Iterable[Result]) -> tuple[list[str], list[str]]:
    """List the tests that failed, as is expected and otherwise."""
    refused: list[str] = []
    unexpected: list[str] = []
    for result in results:
        if result.outcome == "failed" and is_expected(result):
            refused.append(result.test)
        elif result.outcome == "failed":
            print(f"{result.test}: {result.error}")
            unexpected.append(result.test)
    return refused, unexpected


def tables(files: dict[str, Any]) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Show what became of the tests, file by file, and the reasons of the refusals."""
    rows = [
        [
            name,
            *(str(row[key]) for key in COUNTS),
            str(len(row["refused"])),
            str(len(row["unexpected"])),
        ]
        for name, row in files.items()
    ]
    totals = [str(sum(int(row[column]) for row in rows)) for column in range(1, len(HEADER))]
    functions = {test.partition("[")[0] for row in files.values() for test in row["refused"]}
    reasons = [[name, EXPECTED_REFUSALS[name].reason] for name in sorted(functions)]
    return [
        ("Tests by file", HEADER, [*rows, ["all", *totals]]),
        ("Refused as expected", ("test", "why"), reasons),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns 1 if anything came out that should not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="+", type=Path, help="an unpacked source distribution")
    parser.add_argument("--files", nargs="+", help="names of files of tests; all without")
    parser.add_argument("-k", default="", help="which tests, as for pytest")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON to add the results to")
    options = parser.parse_args(arguments)
    began = conditions(PACKAGES)
    files: dict[str, Any] = {}
    for directory in options.directory:
        there = sorted(path.name for path in (directory / "tests").glob("test_*.py"))
        for file in options.files or there:
            row = run_file(directory.resolve(), file, ["-k", options.k])
            if any(row.values()):  # `-k` may have left nothing
                files[f"{directory.name}/{file}"] = {**row, "made_with": began}
    for title, header, rows in tables(files):
        print_table(title, header, rows)
    save(options.out, files)
    unexpected = [test for row in files.values() for test in row["unexpected"]]
    for test in unexpected:
        print(f"unexpected: {test}")
    return int(bool(unexpected))


def save(path: Path, files: dict[str, Any]) -> None:
    """Add files to those that were run before, and write the page beside them."""
    before = json.loads(path.read_text()) if path.exists() else {}
    content = dict(sorted({**before, **files}.items()))
    write_json(path, content)
    runs = {row["made_with"]["command"]: row["made_with"] for row in content.values()}
    made_with = {}
    for number, run in enumerate(runs.values(), 1):
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        made_with[f"{number}, {versions}"] = run
    write_page(path.with_suffix(".md"), TITLE, tables(content), made_with)


if __name__ == "__main__":
    sys.exit(main())
