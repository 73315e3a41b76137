"""Compare learning curves with Stable-Baselines3's, run by run.

Both sides train with the same settings, seeds and evaluation episodes. Every run is one process
and one small JSON file under ``results/parity/runs``, so that a grid can be stopped and continued:

    python benchmarks/parity.py grid --library sb3
    python benchmarks/parity.py grid --library frugal
    python benchmarks/parity.py grid --library frugal --algo sac --env MountainCarContinuous-v0
    python benchmarks/parity.py summarise

SAC on Pendulum-v1 has ten seeds per library, everything else five; ``--seed`` asks for some of
them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "parity"
RUNS = RESULTS / "runs"
EVALUATION_SEED = 10_000
FINAL_SEED = 20_000
EVALUATION_EPISODES = 10
FINAL_EPISODES = 20

HOPPER = {"learning_rate": 3e-4, "batch_size": 256, "learning_starts": 10_000}
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("sac", "Pendulum-v1"): {
        "learning_rate": 1e-3,
        "use_sde": True,
        "log_std_init": -2.0,
        "net_arch": [64, 64],
        "learning_starts": 100,
    },
    ("td3", "Pendulum-v1"): {
        "learning_rate": 5e-3,
        "net_arch": [256, 256],
        "learning_starts": 10_000,
        "action_noise": "normal",
        "action_noise_std": 0.1,
    },
    ("sac", "Hopper-v5"): {**HOPPER, "net_arch": [256, 256]},
    ("td3", "Hopper-v5"): {
        **HOPPER,
        "net_arch": [400, 300],
        "action_noise": "normal",
        "action_noise_std": 0.1,
    },
}
GOAL = "MountainCarContinuous-v0"
SETTINGS["sac", GOAL] = {
    "learning_rate": 3e-4,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "batch_size": 512,
    "tau": 0.01,
    "gamma": 0.9999,
    "train_freq": 32,
    "gradient_steps": 32,
    "ent_coef": 0.1,
    "use_sde": True,
    "log_std_init": -3.67,
    "net_arch": [64, 64],
}
NAMES = {"sb3": "Stable-Baselines3", "frugal": "Frugal"}
SEEDS = {("sac", "Pendulum-v1"): range(10)}  # others: the first five
STEPS = {"Pendulum-v1": 20_000, "Hopper-v5": 50_000, GOAL: 50_000}
EVALUATE_EVERY = {"Pendulum-v1": 1_000, "Hopper-v5": 2_500, GOAL: 2_500}


def run_path(library: str, algo: str, env: str, seed: int) -> Path:
    """Return the file that holds one run's numbers."""
    return RUNS / f"{library}-{algo}-{env}-{seed}.json"


def evaluate(
    env: Any, predict: Callable[[Any], Any], first_seed: int, episodes: int
) -> list[float]:
    """Return the rewards of deterministic episodes with seeds first_seed, first_seed + 1, ..."""
    totals = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=first_seed + episode)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(predict(observation))
            total += float(reward)
            over = terminated or truncated
        totals.append(total)
    return totals


def train_sb3(algo: str, env_id: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train with Stable-Baselines3 and return the evaluations."""
    import gymnasium
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    keywords = dict(settings)
    policy: dict[str, Any] = {"net_arch": keywords.pop("net_arch")}
    if "log_std_init" in keywords:
        policy["log_std_init"] = keywords.pop("log_std_init")
    env, evaluation_env = gymnasium.make(env_id), gymnasium.make(env_id)
    if keywords.pop("action_noise", None) == "normal":
        zeros = np.zeros(env.action_space.shape)
        keywords["action_noise"] = NormalActionNoise(
            zeros, zeros + keywords.pop("action_noise_std")
        )
    model = {"sac": stable_baselines3.SAC, "td3": stable_baselines3.TD3}[algo](
        "MlpPolicy", env, seed=seed, policy_kwargs=policy, device="cpu", **keywords
    )

    def predict(observation: Any) -> Any:
        return model.predict(observation, deterministic=True)[0]

    curve: list[list[float]] = []

    class Evaluate(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % EVALUATE_EVERY[env_id] == 0:
                rewards = evaluate(evaluation_env, predict, EVALUATION_SEED, EVALUATION_EPISODES)
                curve.append([self.num_timesteps, sum(rewards) / len(rewards)])
            return True

    model.learn(STEPS[env_id], callback=Evaluate())
    final = evaluate(evaluation_env, predict, FINAL_SEED, FINAL_EPISODES)
    return {"curve": curve, "final": final, "versions": versions("stable-baselines3", "torch")}


def train_frugal(algo: str, env_id: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train with this library and return the evaluations."""
    import frugalrl

    keywords = settings | {"net_arch": tuple(settings["net_arch"])}
    expected = dict(keywords)
    if env_id == GOAL:  # here the preset is on trial
        keywords = {}
    config = frugalrl.TrainConfig(
        env=env_id,
        algo=algo,
        steps=STEPS[env_id],
        seed=seed,
        preset="auto" if env_id == GOAL else "none",
        eval_every=EVALUATE_EVERY[env_id],
        eval_episodes=EVALUATION_EPISODES,
        eval_seed=EVALUATION_SEED,
        final_episodes=FINAL_EPISODES,
        final_seed=FINAL_SEED,
        quiet=True,
        **keywords,
    )
    result = frugalrl.train(config)
    assert result.final is not None
    resolved = {name: getattr(result.config, name) for name in expected}
    assert resolved == expected, (resolved, expected)
    curve = [[steps, mean] for steps, mean in result.evaluations]
    final = [float(reward) for reward in result.final.rewards]
    return {"curve": curve, "final": final, "versions": versions("frugalrl", "numba")}


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages and of what every run depends on."""
    found = {name: version(name) for name in (*packages, "gymnasium", "mujoco", "numpy")}
    return {"python": platform.python_version(), **found}


def commit() -> str:
    """Return the commit of the code that runs."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def run(library: str, algo: str, env: str, seed: int) -> None:
    """Train once and write the run's file, unless it exists."""
    path = run_path(library, algo, env, seed)
    if path.exists():
        return
    settings = SETTINGS[algo, env]
    started = time.perf_counter()
    result = {"sb3": train_sb3, "frugal": train_frugal}[library](algo, env, seed, settings)
    seconds = time.perf_counter() - started
    means = [mean for _, mean in result["curve"]]
    record = {
        "library": library,
        "algo": algo,
        "env": env,
        "seed": seed,
        "steps": STEPS[env],
        "settings": settings,
        "versions": result["versions"],
        "commit": commit(),
        "seconds": round(seconds, 1),
        "final_mean": sum(result["final"]) / len(result["final"]),
        "area_under_curve": sum(means) / len(means),
        "curve": [[steps, round(mean, 3)] for steps, mean in result["curve"]],
        "final": [round(reward, 3) for reward in result["final"]],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(json.dumps(record, indent=1) + "\n")
    os.replace(file.name, path)
    final, area = record["final_mean"], record["area_under_curve"]
    print(f"{path.name}: final {final:.1f}, area {area:.1f}, {seconds:.0f} s", flush=True)


def grid(
    library: str,
    jobs: int,
    algos: Sequence[str],
    envs: Sequence[str],
    seeds: Sequence[int] | None,
) -> int:
    """Run what is missing, each run in a process with one thread; return how many failed."""
    missing = [
        (algo, env, seed)
        for env in envs
        for algo in algos
        for seed in (SEEDS.get((algo, env), range(5)) if seeds is None else seeds)
        if not run_path(library, algo, env, seed).exists()
    ]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def start(job: tuple[str, str, int]) -> int:
        algo, env, seed = job
        command = [
            sys.executable,
            __file__,
            "run",
            "--library",
            library,
            "--algo",
            algo,
            "--env",
            env,
        ]
        return subprocess.run(
            [*command, "--seed", str(seed)], env={**os.environ, **threads}, check=False
        ).returncode

    with ThreadPoolExecutor(jobs) as pool:
        failed = [job for job, code in zip(missing, pool.map(start, missing), strict=True) if code]
    for job in failed:
        print("failed:", *job, file=sys.stderr)
    return len(failed)


def interval(values: Sequence[float], minus: Sequence[float] = (0.0,)) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean over seeds, or of a difference."""
    import numpy as np

    rng = np.random.default_rng(0)
    means = [rng.choice(np.asarray(one), (20_000, len(one))).mean(1) for one in (values, minus)]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    return float(low), float(high)


def summarise() -> None:
    """Write the table of both libraries' means and intervals."""
    records = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    rows: list[dict[str, Any]] = []
    for algo, env in SETTINGS:
        for measure in ("final_mean", "area_under_curve"):
            row: dict[str, Any] = {"algo": algo, "env": env, "measure": measure}
            found: dict[str, list[float]] = {}
            for library in ("sb3", "frugal"):
                values = [
                    record[measure]
                    for record in records
                    if (record["algo"], record["env"], record["library"]) == (algo, env, library)
                ]
                if values:
                    found[library] = values
                    mean, bounds = sum(values) / len(values), interval(values)
                    row[library] = {
                        "seeds": len(values),
                        "mean": round(mean, 1),
                        "interval": [round(bound, 1) for bound in bounds],
                        "values": [round(value, 1) for value in values],
                    }
            if "sb3" in row and "frugal" in row:
                bounds = interval(found["frugal"], found["sb3"])
                row["difference"] = [round(bound, 1) for bound in bounds]
            if len(row) > 3:
                rows.append(row)
    (RESULTS / "summary.json").write_text(json.dumps({"commit": commit(), "rows": rows}, indent=1))
    text = README.format(
        table=table(rows),
        words=judged(rows),
        goal=goal(records),
        origins=origins(records),
        commit=commit()[:12],
    )
    (RESULTS / "README.md").write_text(text)
    print(text)


def table(rows: list[dict[str, Any]]) -> str:
    """Format the summary in Markdown."""
    lines = [
        "| algorithm | environment | measure | Stable-Baselines3 | Frugal | difference |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["env"] == GOAL:
            continue
        cells = [row["algo"].upper(), row["env"], row["measure"].replace("_", " ")]
        for library in ("sb3", "frugal"):
            one = row.get(library)
            cells.append(
                f"{one['mean']} [{one['interval'][0]}, {one['interval'][1]}] ({one['seeds']} seeds)"
                if one
                else "not run"
            )
        low, high = row.get("difference", (None, None))
        cells.append("" if low is None else f"{low} to {high}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def judged(rows: list[dict[str, Any]]) -> str:
    """Say in words what the differences amount to: those that miss 0, and how many hold it."""
    both = [row for row in rows if "difference" in row]
    clear = [row for row in both if not row["difference"][0] <= 0.0 <= row["difference"][1]]
    said = []
    for row in clear:
        low, high = row["difference"]
        what = f"{row['algo'].upper()} on {row['env']}, {row['measure'].replace('_', ' ')}"
        side = "higher" if low > 0 else "lower"
        said.append(f"{what}: Frugal is {side}, by {min(abs(low), abs(high))} or more.")
    equal = len(both) - len(clear)
    said.append(f"In {equal} of {len(both)} comparisons the interval of the difference holds 0:")
    said.append("no difference can be told.")
    return " ".join(said)


def origins(records: list[dict[str, Any]]) -> str:
    """Say from which commit the runs of each kind come, and which are still missing."""
    lines = []
    for (algo, env), library in itertools.product(SETTINGS, ("sb3", "frugal")):
        kind = (algo, env, library)
        runs = [r for r in records if (r["algo"], r["env"], r["library"]) == kind]
        if not runs:
            continue
        commits = sorted({record.get("commit", "")[:12] or "not recorded" for record in runs})
        wanted = SEEDS.get((algo, env), range(5))
        missing = sorted(set(wanted) - {record["seed"] for record in runs})
        line = f"- {NAMES[library]}, {algo.upper()} on {env}: {len(runs)} runs, "
        line += f"commit {', '.join(commits)}" if library == "frugal" else versions_of(runs)
        lines.append(line + (f"; still to be run: seeds {missing}" if missing else ""))
    return "\n".join(lines)


def versions_of(runs: list[dict[str, Any]]) -> str:
    """Name the versions that runs of Stable-Baselines3 were made with."""
    names = ("stable-baselines3", "torch")
    found = {", ".join(f"{name} {run['versions'][name]}" for name in names) for run in runs}
    return "; ".join(sorted(found))


def goal(records: list[dict[str, Any]]) -> str:
    """Say which runs on the mountain car reach 90."""
    runs = [record for record in records if record["env"] == GOAL]
    if not runs:
        return "Not run."
    finals = ", ".join(f"{record['final_mean']:.1f}" for record in runs)
    reached = sum(record["final_mean"] >= 90 for record in runs)
    return f"{reached} of {len(runs)} seeds reach 90 (mean final rewards: {finals})."


README = """# Parity with Stable-Baselines3

The same settings, environments and evaluation episodes on both sides. *Final* is
the mean reward of 20 deterministic episodes after training; *area under curve* is the mean over
training of evaluations of 10 deterministic episodes each (every 1,000 steps on Pendulum-v1, every
2,500 on Hopper-v5). In brackets the 95 % bootstrap interval of the mean over seeds; *difference* is
that of our mean minus theirs, of independent runs. Good policies on
Pendulum-v1 end between -137 and -145, depending on how exactly they balance.

{table}

{words} (With intervals of 95 % one comparison in twenty would miss 0 by chance alone.)

MountainCarContinuous-v0, SAC with the preset (50,000 steps, gSDE): {goal}

Where the runs come from:

{origins}

Made by the commands at the top of `benchmarks/parity.py`, summarised at commit {commit}. One file
per run, with its settings and versions, is in `runs/`; the numbers above are in `summary.json`.
Seconds in these files are those of a shared machine and say nothing about speed.
"""


def main() -> int:
    """Read the command line and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="one training run")
    many = commands.add_parser("grid", help="every run that is missing")
    commands.add_parser("summarise", help="table of what was run")
    for sub in (one, many):
        sub.add_argument("--library", choices=("sb3", "frugal"), required=True)
    one.add_argument("--algo", choices=("sac", "td3"), required=True)
    one.add_argument("--env", choices=tuple(STEPS), required=True)
    one.add_argument("--seed", type=int, required=True)
    many.add_argument("--jobs", type=int, default=1)
    many.add_argument("--algo", choices=("sac", "td3"), nargs="+", default=["sac", "td3"])
    many.add_argument(
        "--env", choices=tuple(STEPS), nargs="+", default=["Pendulum-v1", "Hopper-v5"]
    )
    many.add_argument("--seed", type=int, nargs="+")
    options = parser.parse_args()
    if options.command == "run":
        run(options.library, options.algo, options.env, options.seed)
    elif options.command == "grid":
        return int(grid(options.library, options.jobs, options.algo, options.env, options.seed) > 0)
    else:
        summarise()
    return 0


if __name__ == "__main__":
    sys.exit(main())
