"""The demo: two runs side by side, a table, a report."""

from __future__ import annotations

from frugalrl import cli
from frugalrl.commands.demo import table, verdict


def final(size: int, bytes_: int, rewards: list[float]) -> dict:
    return {
        "final": {"rewards": rewards, "reward_mean": sum(rewards) / len(rewards)},
        "buffer": {"size": size, "bytes": bytes_, "filter_bytes": 700_000},
        "train_seconds": 61.4,
    }


def test_the_table_lines_up_and_the_verdict_is_honest():
    finals = {
        "SAC": final(20_000, 800_000, [-150.0, -140.0]),
        "FAC-SAC": final(11_000, 1_300_000, [-150.0, -130.0]),
    }
    lines = table(finals)
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[:2] == ["SAC", "-145.0"]
    assert "20,000" in lines[1]
    assert "1.30 MB" in lines[2]
    words = " ".join(verdict(finals))
    assert "45% fewer" in words
    assert "more bytes" in words
    assert "no evidence" in words
    finals["FAC-SAC"]["buffer"]["bytes"] = 400_000
    assert "more bytes" not in " ".join(verdict(finals))


def test_the_demo_ends_with_the_report(tmp_path, capfd):
    out = tmp_path / "demo"
    assert cli.main(["demo", "--steps", "400", "--out", str(out)]) == 0
    printed = capfd.readouterr().out
    assert "FAC-SAC" in printed
    assert printed.rstrip().endswith(f"report: {out / 'report.html'}")
    assert (
        "<svg" in (out / "report.html").read_text()
        or "plotly" in (out / "report.html").read_text().lower()
    )
