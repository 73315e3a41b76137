"""Bytes that a buffer takes for the transitions of a policy that learns, on real environments.

SAC learns each task for some steps, one update per four steps. The stream of transitions that it
met is then put into every contender: Stable-Baselines3's ReplayBuffer, ours without a filter
(float32 and float16), with the frugal filter, and, with room for 5 % of the stream, a ring and
random eviction. Bytes are those of the arrays (`nbytes`), the filter's included. `unshared` is the
share of kept transitions whose next state no other one shares: what a coder of next states as
differences could work on.

    python benchmarks/bytes.py [--steps N] [--tasks Hopper-v5 ...] [--out FILE]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import frugalrl
from _measure import conditions, print_table, write_json

ANT_27 = {"include_cfrc_ext_in_observation": False}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "Hopper-v5": ("Hopper-v5", {}),
    "Walker2d-v5": ("Walker2d-v5", {}),
    "Ant-v5 (27)": ("Ant-v5", ANT_27),
    "Ant-v5 (105)": ("Ant-v5", {}),
    "Humanoid-v5": ("Humanoid-v5", {}),
}
PACKAGES = ("frugalrl", "numpy", "stable_baselines3", "gymnasium", "mujoco")
COLUMNS = ("buffer", "transitions", "MB", "bytes each", "of SB3's", "of ours", "unshared")


def learn(env: str, env_kwargs: dict[str, Any], steps: int) -> frugalrl.ReplayBuffer:
    """Train for some steps and give the buffer, which holds every transition."""
    config = frugalrl.TrainConfig(
        env=env, env_kwargs=env_kwargs, steps=steps, preset="none", learning_starts=steps // 5,
        train_freq=4, gradient_steps=1, net_arch=(64, 64), batch_size=128, buffer_size=steps,
        eval_every=0, final_episodes=0, quiet=True,
    )  # fmt: skip
    result = frugalrl.train(config)
    return result.buffer


def contenders(steps: int) -> dict[str, dict[str, Any]]:
    """Arguments of our buffers, by name."""
    small = {"capacity": steps // 20}
    warmup = {"warmup_steps": steps // 5}
    return {
        "everything": {},
        "everything, float16": {"dtype": "float16"},
        "FAC": {"admission": frugalrl.FrugalFilter(**warmup)},
        'FAC, warmup="filter"': {"admission": frugalrl.FrugalFilter(**warmup, warmup="filter")},
        "5 %, ring": small,
        "5 %, random eviction": {**small, "eviction": "random"},
    }


def unshared(buffer: frugalrl.ReplayBuffer) -> float:
    """Give the share of transitions whose next state is no other transition's state."""
    batch = buffer.transitions()
    states = {row.tobytes() for row in batch.observations}
    return float(np.mean([row.tobytes() not in states for row in batch.next_observations]))


def measure(task: str, steps: int) -> list[dict[str, Any]]:
    """Put the stream of one task into every contender."""
    from stable_baselines3.common.buffers import ReplayBuffer as Theirs

    env, env_kwargs = TASKS[task]
    source = learn(env, env_kwargs, steps)
    stream = source.transitions()
    spaces = {"observation_space": source.observation_space, "action_space": source.action_space}
    theirs = Theirs(len(source), source.observation_space, source.action_space, device="cpu")
    arrays = [value for value in vars(theirs).values() if isinstance(value, np.ndarray)]
    bytes_theirs = sum(array.nbytes for array in arrays)
    rows = [
        {"task": task, "buffer": "Stable-Baselines3", "transitions": steps, "bytes": bytes_theirs}
    ]
    for name, arguments in contenders(steps).items():
        buffer = frugalrl.ReplayBuffer(**{"capacity": steps, **spaces, **arguments})
        for row in zip(*stream[:6], strict=True):  # one at a time, as a training loop does
            buffer.add(*row)
        rows.append(
            {
                "task": task,
                "buffer": name,
                "transitions": len(buffer),
                "bytes": buffer.nbytes,
                "filter_bytes": int(buffer.admission.nbytes),
                "unshared": round(unshared(buffer), 3),
            }
        )
    everything = next(row["bytes"] for row in rows if row["buffer"] == "everything")
    for row in rows:
        row["of_sb3"] = round(row["bytes"] / bytes_theirs, 3)
        row["of_ours"] = round(row["bytes"] / everything, 3)
    return rows


def shown(row: dict[str, Any]) -> list[str]:
    """Write a row for the table."""
    each = row["bytes"] / row["transitions"]
    return [
        row["buffer"], f"{row['transitions']:,}", f"{row['bytes'] / 1e6:.2f}",
        f"{each:.0f}", f"{row['of_sb3']:.1%}", f"{row['of_ours']:.1%}",
        f"{row['unshared']:.0%}" if "unshared" in row else "",
    ]  # fmt: skip


def main() -> None:
    """Measure every task and write the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--out")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for task in options.tasks:
        rows += measure(task, options.steps)
        print_table(task, COLUMNS, [shown(row) for row in rows if row["task"] == task])
    if options.out:
        write_json(options.out, {"conditions": conditions(PACKAGES), "rows": rows})


if __name__ == "__main__":
    main()
