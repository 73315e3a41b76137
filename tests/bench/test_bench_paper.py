"""The published tables and what recomputing their derived columns finds."""

import math

import pytest

from frugalrl.bench import measures, paper


def test_every_table_is_complete() -> None:
    assert len(paper.table("benchmarks")) == 9
    for name in ("full", "control_cost", "laber"):
        rows = paper.table(name)
        assert len(rows) == 18
        assert {row["algorithm"] for row in rows} == {"SAC", "TD3"}


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("Pendulum-v1", "Pendulum"),
        ("MountainCarContinuous-v0", "MCC"),
        ("LunarLanderContinuous-v3", "LLC"),
        ("pybullet_envs/ReacherBulletEnv-v0", "Reacher"),
        ("Walker2d-v5", "Walker"),
        ("Ant-v4", "Ant"),
        ("Reacher-v5", None),
        ("CartPole-v1", None),
    ],
)
def test_environments_are_matched_by_name_and_not_by_version(env: str, name: str | None) -> None:
    assert paper.benchmark_name(env) == name


def test_published_rows_are_found() -> None:
    row = paper.published("full", "Hopper-v5", "sac")
    assert row is not None
    assert row["buffer_fac"] == "290327"
    benchmark = paper.published("benchmarks", "Hopper-v5")
    assert benchmark is not None
    assert benchmark["important_dimensions"] == "4"
    assert paper.published("full", "CartPole-v1", "sac") is None
    assert paper.published("full", "Hopper-v5", "ddpg") is None


def test_the_misprints_are_all_that_recomputing_finds() -> None:
    found = []
    full = {(row["benchmark"], row["algorithm"]): row for row in paper.table("full")}
    rows = [(row, "baseline", "Comparison with SAC and TD3") for row in paper.table("full")]
    rows += [(row, "laber", "Comparison with LaBER") for row in paper.table("laber")]
    for row, other, where in rows:
        label = f"{row['benchmark']} ({row['algorithm']})"
        points, rewards = (
            (float(row[f"{what}_{other}"]), float(row[f"{what}_fac"])) for what in ("cp", "reward")
        )
        # LaBER's buffer is the baseline's: the paper says so below the table.
        both = full[row["benchmark"], row["algorithm"]]
        sizes = float(both["buffer_baseline"]), float(both["buffer_fac"])
        shifted = measures.reward_change(*measures.translate_rewards(*rewards))
        efficiency = measures.sample_efficiency(rewards[0], sizes[0], rewards[1], sizes[1])
        for column, key, recomputed in (
            ("Delta CP", "delta_cp_percent", measures.reduction(*points)),
            ("buffer cut", "buffer_cut_percent", measures.reduction(*sizes)),
            ("Delta R", "delta_reward_percent", measures.reward_change(*rewards)),
            ("P", "sample_efficiency_P", efficiency),
        ):
            kind = kind_of(row[key], recomputed) if key in row else "agrees"
            if column == "Delta R" and kind == "misprint":
                kind = "translated" if kind_of(row[key], shifted) == "agrees" else kind
            if kind != "agrees":
                found.append((where, label, column, row[key], f"{recomputed:.6f}", kind))
    assert [tuple(row.values()) for row in paper.table("misprints")] == found


def kind_of(printed: str, recomputed: float) -> str:
    if not printed:
        return "agrees" if recomputed == 0.0 else "left blank"
    unit = 10.0 ** -len(printed.partition(".")[2])
    cut = math.trunc(recomputed / unit) * unit
    distance = abs(float(printed) - recomputed)
    slack = 1e-9 * max(1.0, abs(recomputed))
    if distance <= unit / 2 + slack or abs(float(printed) - cut) <= slack:
        return "agrees"
    return "last digit" if distance < unit else "misprint"


def test_misprints_found_by_hand_are_listed() -> None:
    found = {(m["row"], m["column"], m["printed"]): m for m in paper.table("misprints")}
    # 19.96 / 151743 over 19.18 / 300000 = 2.057...
    reacher = found["Reacher (SAC)", "P", "2.17"]
    assert float(reacher["recomputed"]) == pytest.approx(2.0574, abs=1e-4)
    assert reacher["kind"] == "misprint"
    # 114.86 / 61289 over 47.45 / 1000000 = 39.4957.
    swimmer = found["Swimmer (TD3)", "P", "46.75"]
    assert float(swimmer["recomputed"]) == pytest.approx(39.4957, abs=1e-4)
    # A dash hides that FAC converged later.
    assert found["Swimmer (TD3)", "Delta CP", ""]["kind"] == "left blank"
    # -180.17 to -144.66: 35.51 of 180.17 is 19.7 %; of the translated 144.66 it is 24.54 %.
    pendulum = found["Pendulum (SAC)", "Delta R", "24.54"]
    assert pendulum["kind"] == "translated"
    assert float(pendulum["recomputed"]) == pytest.approx(19.709, abs=1e-3)


def test_right_entries_are_not_listed() -> None:
    rows = {(m["row"], m["column"]) for m in paper.table("misprints")}
    assert ("Hopper (SAC)", "Delta CP") not in rows  # 20.3907, printed 20.39
    assert ("Swimmer (SAC)", "buffer cut") not in rows  # 83.2156, printed cut to 83.21
    assert ("Reacher (TD3)", "buffer cut") not in rows  # 0, printed 0
    assert len(paper.table("misprints")) == 20
