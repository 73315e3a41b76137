"""The published tables and what recomputing their derived columns finds."""

import pytest

from frugalrl.bench import paper


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


def test_misprints_found_by_hand_are_listed() -> None:
    found = {(m.row, m.column, m.printed): m for m in paper.misprints()}
    # 19.96 / 151743 over 19.18 / 300000 = 2.057...
    reacher = found["Reacher (SAC)", "P", "2.17"]
    assert reacher.recomputed == pytest.approx(2.0574, abs=1e-4)
    assert reacher.kind == "misprint"
    # 114.86 / 61289 over 47.45 / 1000000 = 39.4957.
    assert found["Swimmer (TD3)", "P", "46.75"].recomputed == pytest.approx(39.4957, abs=1e-4)
    # A dash hides that FAC converged later.
    dash = found["Swimmer (TD3)", "Delta CP", ""]
    assert dash.kind in {"left blank"}
    # -180.17 to -144.66: 35.51 of 180.17 is 19.7 %; of the translated 144.66 it is 24.54 %.
    pendulum = found["Pendulum (SAC)", "Delta R", "24.54"]
    assert pendulum.kind == "translated"
    assert pendulum.recomputed == pytest.approx(19.709, abs=1e-3)


def test_right_entries_are_not_listed() -> None:
    rows = {(m.row, m.column) for m in paper.misprints()}
    assert ("Hopper (SAC)", "Delta CP") not in rows  # 20.3907, printed 20.39
    assert ("Swimmer (SAC)", "buffer cut") not in rows  # 83.2156, printed cut to 83.21
    assert ("Reacher (TD3)", "buffer cut") not in rows  # 0, printed 0
    assert len(paper.misprints()) == 20
