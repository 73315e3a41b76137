"""Measure environment steps per second, one update per step with the newest policy, side by side.

Every measurement is a process of its own, held to as many CPUs as it may have threads; contestants
take turns, so that what else the machine does hits all of them:

    python benchmarks/throughput.py            # writes results/throughput
    python benchmarks/throughput.py --short    # a minute or two, writes nothing

Each library trains SAC with its own loop: ours through ``frugalrl.train`` with evaluation off, the
others through ``learn``. The clock runs from some updates after learning began to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "throughput"
CONTESTANTS = ("frugal", "frugal+fac", "sbx", "sb3")
TASKS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"net_arch": [64, 64], "steps": 2000, "short": 1200},
    "Hopper-v5": {"net_arch": [256, 256], "steps": 500, "short": 250},
}
WARMUP = 1000  # random steps, from which FAC learns its grid
SETTLE = 100  # updates before the clock starts: compilation, caches
PACKAGES = ("frugalrl", "numpy", "scipy", "numba", "sbx-rl", "jax", "stable-baselines3", "torch")


def time_frugal(env: str, threads: int, updates: int, admission: str) -> dict[str, Any]:
    """Train with this library; time how long the buffer takes, too."""
    import frugalrl
    from frugalrl.replay.buffer import ReplayBuffer

    spent = [0.0, 0]
    add = ReplayBuffer.add

    def timed(*arguments: Any, **keywords: Any) -> Any:
        started = time.perf_counter()
        outcome = add(*arguments, **keywords)
        spent[0] += time.perf_counter() - started
        spent[1] += 1
        if spent[1] == WARMUP + SETTLE:
            spent[0] = 0.0
        return outcome

    ReplayBuffer.add = timed  # type: ignore[method-assign]
    config = frugalrl.TrainConfig(
        env=env,
        admission=admission,  # type: ignore[arg-type]
        steps=WARMUP + SETTLE + updates,
        preset="none",
        learning_starts=WARMUP,
        fac_warmup_steps=WARMUP if admission == "fac" else None,
        net_arch=tuple(TASKS[env]["net_arch"]),
        batch_size=256,
        eval_every=0,
        final_episodes=0,
        log_every=SETTLE,
        threads=threads,
        quiet=True,
    )
    rows = frugalrl.train(config).metrics
    seconds = {row["env_steps"]: row["train_seconds"] for row in rows}
    elapsed = seconds[WARMUP + SETTLE + updates] - seconds[WARMUP + SETTLE]
    return {"steps_per_second": updates / elapsed, "add_seconds": spent[0] / updates}


def time_sb3(env: str, threads: int, updates: int, library: str) -> dict[str, Any]:
    """Train with Stable-Baselines3, or with SBX."""
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback

    if library == "sbx":
        from sbx import SAC
    else:
        import torch
        from stable_baselines3 import SAC

        torch.set_num_threads(threads)
    clock: list[float] = []

    class Clock(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps in (WARMUP + SETTLE, WARMUP + SETTLE + updates):
                clock.append(time.perf_counter())
            return True

    model = SAC(
        "MlpPolicy",
        gymnasium.make(env),
        learning_starts=WARMUP,
        batch_size=256,
        policy_kwargs={"net_arch": TASKS[env]["net_arch"]},
        seed=0,
        device="cpu",
    )
    model.learn(WARMUP + SETTLE + updates, callback=Clock(), log_interval=1000)
    return {"steps_per_second": updates / (clock[1] - clock[0])}


def sac_flops(spec: Any) -> int:
    """Count the multiplications and additions of the matrix products of one update of SAC."""
    actor, critic = (
        sum(n * m for n, m in pairwise(network.sizes)) for network in (spec.actor, spec.critic)
    )
    first = spec.critic.sizes[0] * spec.critic.sizes[1]
    n = spec.settings.critics
    targets = actor + n * critic
    # forward; twice that backward, less the first layer's gradient of its inputs
    critics = n * (3 * critic - first)
    actors = 3 * actor - spec.actor.sizes[0] * spec.actor.sizes[1]
    # into the critics, and back to the action's columns from the one that says least
    values = (n + 1) * critic - first + spec.action_size * spec.critic.sizes[1]
    return 2 * spec.settings.batch_size * (targets + critics + actors + values)


def time_update(env: str, threads: int) -> dict[str, Any]:
    """Time updates alone beside this machine's matrix products of the same size and larger."""
    from types import SimpleNamespace

    import gymnasium
    import numpy as np
    from threadpoolctl import threadpool_limits

    from frugalrl.agents import AgentSettings, make_agent

    world = gymnasium.make(env)
    width = TASKS[env]["net_arch"][0]
    settings = AgentSettings.defaults("sac", net_arch=TASKS[env]["net_arch"])
    agent = make_agent(settings, world.observation_space, world.action_space, 0)
    rng = np.random.default_rng(0)
    d, a, rows = world.observation_space.shape[0], world.action_space.shape[0], (1, 256)
    batch = SimpleNamespace(
        observations=rng.normal(size=(*rows, d)).astype(np.float32),
        actions=rng.uniform(-1, 1, (*rows, a)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        next_observations=rng.normal(size=(*rows, d)).astype(np.float32),
        terminated=np.zeros(rows, bool),
    )
    squares = {size: rng.normal(size=(size, size)).astype(np.float32) for size in (width, 512)}
    left = rng.normal(size=(256, width)).astype(np.float32)
    jobs = {
        "update": (lambda: agent.update(batch), sac_flops(agent.spec)),
        "sgemm_same_size": (lambda: left @ squares[width], 2 * 256 * width * width),
        "sgemm_512": (lambda: squares[512] @ squares[512], 2 * 512**3),
    }
    best = dict.fromkeys(jobs, float("inf"))
    with threadpool_limits(threads, "blas"):
        for _ in range(200):
            for name, (job, flops) in jobs.items():
                repeats = max(1, round(3e7 / flops))
                job()
                started = time.perf_counter()
                for _ in range(repeats):
                    job()
                best[name] = min(best[name], (time.perf_counter() - started) / repeats)
    return {name: flops / best[name] / 1e9 for name, (_, flops) in jobs.items()} | {
        "update_microseconds": best["update"] * 1e6,
        "update_megaflops": jobs["update"][1] / 1e6,
    }


def child(contestant: str, env: str, threads: int, updates: int) -> dict[str, Any]:
    """Do one measurement in this process."""
    if contestant == "update":
        return time_update(env, threads)
    if contestant.startswith("frugal"):
        admission = "fac" if contestant == "frugal+fac" else "none"
        return time_frugal(env, threads, updates, admission)
    return time_sb3(env, threads, updates, contestant)


def start(contestant: str, env: str, threads: int, updates: int) -> dict[str, Any]:
    """Do one measurement in a process of its own, on as many CPUs as threads."""
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    command = [sys.executable, __file__, "--child", contestant, env, str(threads), str(updates)]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, cpus)), *command],
        env={**os.environ, **dict.fromkeys(names, str(threads)), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(rounds: int, short: bool, threads: list[int]) -> list[dict[str, Any]]:
    """Let the contestants take turns."""
    found = []
    for round_ in range(rounds):
        for env, task in TASKS.items():
            for count in threads:
                for contestant in (*CONTESTANTS, "update"):
                    updates = task["short" if short else "steps"]
                    result = start(contestant, env, count, updates)
                    found.append(
                        {"contestant": contestant, "env": env, "threads": count, "round": round_}
                        | result
                    )
                    shown = ", ".join(f"{name} {value:.4g}" for name, value in result.items())
                    print(f"{env} {count} thread(s) {contestant}: {shown}", file=sys.stderr)
    return found


def summarise(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take medians over rounds: of speeds, and of the ratios within a round."""
    rows = []
    for env in TASKS:
        for threads in sorted({row["threads"] for row in found}):
            here = [row for row in found if (row["env"], row["threads"]) == (env, threads)]

            def median(contestant: str, key: str, rows: list[dict[str, Any]] = here) -> float:
                values = [row[key] for row in rows if row["contestant"] == contestant]
                return statistics.median(values)

            def times(other: str, rows: list[dict[str, Any]] = here) -> list[float]:
                # Within a round all ran in the same minutes, so noise that lasts cancels.
                speeds = {
                    (row["contestant"], row["round"]): row["steps_per_second"]
                    for row in rows
                    if "steps_per_second" in row
                }
                rounds = sorted({row["round"] for row in rows})
                return [speeds["frugal", k] / speeds[other, k] for k in rounds]

            speed = {name: median(name, "steps_per_second") for name in CONTESTANTS}
            added = median("frugal+fac", "add_seconds") - median("frugal", "add_seconds")
            row: dict[str, Any] = {"env": env, "threads": threads}
            row |= {f"{name}_steps_per_second": round(speed[name], 1) for name in CONTESTANTS}
            for other in ("sbx", "sb3"):
                ratios = times(other)
                row[f"times_{other}"] = round(statistics.median(ratios), 2)
                row[f"times_{other}_by_round"] = [round(ratio, 2) for ratio in ratios]
            row["fac_share_percent"] = round(100 * added * speed["frugal+fac"], 2)
            row["update_gflops"] = round(median("update", "update"), 1)
            row["sgemm_512_gflops"] = round(median("update", "sgemm_512"), 1)
            row["sgemm_same_size_gflops"] = round(median("update", "sgemm_same_size"), 1)
            row["share_of_sgemm_percent"] = round(
                100 * row["update_gflops"] / row["sgemm_512_gflops"]
            )
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the summary in Markdown."""
    names = (
        "environment",
        "threads",
        *CONTESTANTS,
        "/ SBX",
        "/ SB3",
        "FAC's share",
        "update GFLOP/s",
        "of sgemm",
    )
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [row["env"], row["threads"]]
        cells += [f"{row[f'{name}_steps_per_second']:.0f}" for name in CONTESTANTS]
        cells += [
            f"{row[f'times_{other}']:.2f}x ({min(row[f'times_{other}_by_round']):.1f}"
            f"-{max(row[f'times_{other}_by_round']):.1f})"
            for other in ("sbx", "sb3")
        ]
        cells += [f"{row['fac_share_percent']:.1f} %", row["update_gflops"]]
        cells += [f"{row['share_of_sgemm_percent']} %"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Describe where and with what this was measured."""
    info = Path("/proc/cpuinfo")
    models = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cpu": models[0] if models else platform.processor(),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit.stdout.strip(),
        "command": "python benchmarks/throughput.py " + " ".join(sys.argv[1:]),
    }


README = """# Throughput

Environment steps per second while training SAC: one step, one update of batch 256 with the newest
policy, evaluation off. Pendulum-v1 with 64x64 units, Hopper-v5 with 256x256. Medians of {rounds}
rounds in which the contestants took turns, each in a process of its own held to as many CPUs as
threads. */ SBX* and */ SB3* are medians of the ratios within a round, with the least and the most.
*FAC's share* is the time a step spends longer in the buffer with FAC than without, over the time of
a step. *Update GFLOP/s* counts the floating-point operations of an update's matrix products over
its best time; *of sgemm* compares with this machine's product of 512x512 matrices, measured in the
same process.

{table}

{cpu}, {cpus} CPUs, load {load:.1f} before; commit {commit}; `{command}`. All measurements:
[throughput.json](throughput.json).
"""


def main() -> None:
    """Read the command line and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="few steps, one round, no files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=4, metavar=("WHO", "ENV", "THREADS", "UPDATES"))
    options = parser.parse_args()
    if options.child:
        who, env, threads, updates = options.child
        print(json.dumps(child(who, env, int(threads), int(updates))))
        return
    about = machine()
    found = measure(1 if options.short else options.rounds, options.short, options.threads)
    rows = summarise(found)
    print(table(rows))
    if options.short:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    everything = {"machine": about, "summary": rows, "measurements": found}
    (options.out / "throughput.json").write_text(json.dumps(everything, indent=1) + "\n")
    (options.out / "README.md").write_text(
        README.format(
            rounds=options.rounds,
            table=table(rows),
            cpu=about["cpu"],
            cpus=about["cpus"],
            load=about["load_before"],
            commit=about["commit"][:12],
            command=about["command"].strip(),
        )
    )


if __name__ == "__main__":
    main()
