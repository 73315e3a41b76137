"""The demo: four runs, a table, honest words, a report."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from frugalrl import cli
from frugalrl.commands import demo


def words_of(monkeypatch, rewards: list[float], frugal_bytes: int) -> str:
    """What the demo says of four made-up runs."""
    sizes = {"baseline": (20_000, 700_000), "fac": (2_000, frugal_bytes)}
    entries = {
        name: SimpleNamespace(
            size=sizes.get(name, (2_000, 80_000))[0],
            bytes=sizes.get(name, (2_000, 80_000))[1],
            reward=SimpleNamespace(value=reward),
        )
        for name, reward in zip(demo.METHODS, rewards, strict=True)
    }
    summary = SimpleNamespace(
        results=SimpleNamespace(tasks=["task"]), get=lambda task, name: entries[name]
    )
    monkeypatch.setattr("frugalrl.bench.command.result_lines", lambda *_, **__: ["table"])
    return " ".join(demo.closing_lines(summary))


def test_the_words_follow_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    same = words_of(monkeypatch, [94.0, 93.0, 94.0, 92.0], 140_000)
    assert "10% of the transitions and 80% fewer bytes" in same
    assert "a small buffer is enough, whatever it keeps" in same
    assert "no evidence" in same
    better = words_of(monkeypatch, [94.0, 93.0, 20.0, 92.0], 1_400_000)
    assert "100% more bytes" in better
    assert "whatever it keeps" not in better


def test_the_demo_ends_with_a_table_and_the_report(tmp_path, capfd) -> None:
    out = tmp_path / "demo"
    assert cli.main(["demo", "--steps", "1400", "--out", str(out)]) == 0
    printed = capfd.readouterr().out
    for method in demo.METHODS:
        assert f"\n{method} " in printed
    assert printed.rstrip().endswith(f"report: {out / 'report.html'}")
    assert (out / "report.html").is_file()
