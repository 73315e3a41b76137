"""The demo: its runs, a table, honest words, a report."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from frugalrl import cli
from frugalrl.commands import demo


def test_the_words_follow_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = [(20_000, 800_000, -72.0), (5_000, 400_000, -71.5), (1_000, 48_000, -76.0)]
    made_up.append((1_000, 40_000, -101.0))
    entries = {
        name: SimpleNamespace(
            size=size, bytes=count, late_reward=SimpleNamespace(value=reward), seeds=(0, 1)
        )
        for name, (size, count, reward) in zip(demo.DEMO_METHODS, made_up, strict=True)
    }
    summary = SimpleNamespace(
        results=SimpleNamespace(tasks=["task"]), get=lambda task, name: entries[name]
    )
    monkeypatch.setattr("frugalrl.commands.grids.summary_lines", lambda *_, **__: ["table"])
    said = " ".join(demo.closing_lines(summary))
    assert "−72.0 with all transitions" in said
    assert "From 5% of them, 5% of the bytes: −101.0 from a ring, −76.0 where chance" in said
    assert "kept 25% of the transitions in 50% of the bytes: −71.5" in said
    assert "2 seeds are little evidence" in said


def test_the_demo_ends_with_a_table_and_the_report(tmp_path, capfd) -> None:
    out = tmp_path / "demo"
    assert cli.main(["demo", "--steps", "5200", "--seeds", "1", "--out", str(out)]) == 0
    printed = capfd.readouterr().out
    for method in demo.DEMO_METHODS:
        assert f"\n{method} " in printed
    assert printed.rstrip().endswith(f"report: {out / 'report.html'}")
    assert (out / "report.html").is_file()
