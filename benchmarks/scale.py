"""Actors on Ray: steps per second, the learner's idle share, bytes per step, the edge filter.

    python benchmarks/scale.py                      the first three, about nine minutes on two cores
    python benchmarks/scale.py --part costs         what a fragment costs the learner
    python benchmarks/scale.py --part overhead      one actor against the local loop, three rounds
    python benchmarks/scale.py --part throughput    steps per second by number of actors
    python benchmarks/scale.py --part edge          with and without the edge filter

Every measurement is written as soon as it is made, into `scale.json`, where parts that are not
measured stay as they are, and the edge filter's into `edge.json` beside it. `scale.md` has the
tables, and what they come to for 100 and 1,000 actors.

One Ray on this machine serves all runs. The environment "sleep" waits so long in each step, as a
slow simulator would on a machine of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from _measure import conditions, print_table, write_json, write_page
from frugalrl import TrainConfig
from frugalrl import train as train_here
from frugalrl.distributed.cluster import connected
from frugalrl.distributed.fleet import ActorSettings
from frugalrl.distributed.rollout import Rollout
from frugalrl.distributed.training import train
from frugalrl.training.config import resolve
from frugalrl.training.runner import make_factory

PARTS = ("costs", "overhead", "throughput", "edge")
OUT = Path(__file__).resolve().parents[1] / "results" / "scale"
PACKAGES = ("frugalrl", "gymnasium", "mujoco", "numba", "numpy", "ray")
QUIET: dict[str, Any] = {"eval_every": 0, "final_episodes": 0, "tensorboard": False, "quiet": True}


class Sleep(gymnasium.Env[Any, Any]):
    """Hopper's shapes, and a step that takes a given time."""

    observation_space = spaces.Box(-np.inf, np.inf, (11,), np.float64)
    action_space = spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.normal(size=11), {}

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        state = self.np_random.normal(size=11)
        return state, float(state[0]), False, False, {}


def register() -> None:
    gymnasium.register(id="Sleep-v0", entry_point=Sleep, max_episode_steps=200)


def config(env: str, steps: int, **changes: Any) -> TrainConfig:
    settings = {"learning_starts": 200, "batch_size": 64, "net_arch": (64, 64), **QUIET, **changes}
    return TrainConfig(env=env, steps=steps, preset="none", **settings)


def environments() -> dict[str, tuple[str, dict[str, Any], int]]:
    """Name, arguments and steps of each actor of what throughput is measured with."""
    return {
        "sleep 1 ms": ("Sleep-v0", {"env_kwargs": {"seconds": 0.001}}, 4_000),
        "sleep 10 ms": ("Sleep-v0", {"env_kwargs": {"seconds": 0.01}}, 800),
        "Hopper-v5": ("Hopper-v5", {}, 4_000),
    }


def bytes_on_the_wire(ray: Any, steps: int) -> int:
    """Give the size of a fragment with everything that Ray wraps it in."""
    run = resolve(config("Sleep-v0", 1_000)).config
    fragment = Rollout(0, run, make_factory(run)).collect(0, steps, -1, None, random=True)
    context = ray._private.worker.global_worker.get_serialization_context()
    return int(context.serialize(fragment).total_bytes)


def measure_costs(ray: Any, rounds: int) -> dict[str, Any]:
    """Measure what fragments cost the learner without any update, by their length."""
    found = {}
    for steps in (16, 64, 256):
        total = 60 * steps * rounds
        # Learning starts with the last step, so there is next to no update in it.
        run = config("Sleep-v0", total, learning_starts=total - 1)
        measures = train(run, ActorSettings(2, fragment_steps=steps)).measures
        seconds = measures["env_steps"] / measures["steps_per_second"]
        busy = seconds - measures["idle_seconds"]
        found[str(steps)] = {
            "learner_us_per_fragment": 1e6 * busy / measures["fragments"],
            "actor_us_per_fragment": 1e6 * measures["actor_seconds"] / measures["fragments"],
            "bytes_per_fragment": measures["bytes_received"] / measures["fragments"],
            "bytes_per_step": measures["bytes_per_step"],
            "wire_bytes_per_fragment": bytes_on_the_wire(ray, steps),
            "fragments": measures["fragments"],
        }
    return found


class Sleeper:
    """Never answers in time."""

    def sleep(self) -> None:
        time.sleep(600)


def measure_looks(ray: Any, rounds: int) -> dict[str, float]:
    """Measure one look at fragments of which none has come, by how many are under way."""
    found = {}
    for pending in (4, 200, 2_000):
        sleeper = ray.remote(num_cpus=1)(Sleeper).remote()
        references = [sleeper.sleep.remote() for _ in range(pending)]
        ray.wait(references, num_returns=pending, timeout=1)
        begun = time.perf_counter()
        for _ in range(rounds):
            ray.wait(references, num_returns=pending, timeout=0)
        found[str(pending)] = 1e6 * (time.perf_counter() - begun) / rounds
        ray.kill(sleeper)
    return found


def measure_throughput(actors: list[int]) -> Iterator[dict[str, Any]]:
    """Measure steps per second and the learner's idle share against the number of actors."""
    for name, (env, changes, steps) in environments().items():
        for count in actors:
            measures = train(config(env, steps * count, **changes), ActorSettings(count)).measures
            yield {"environment": name, **measures}


def measure_overhead(rounds: int) -> Iterator[dict[str, Any]]:
    """Compare the local loop with one actor on the same task, by turns.

    CPU time is that of the process that learns: with an actor, stepping is not in it.
    """
    for name, (env, changes, steps) in environments().items():
        run = config(env, steps, **changes)
        rates: dict[str, list[float]] = {"local": [], "one_actor": []}
        work: dict[str, list[float]] = {"local": [], "learner": []}
        for _ in range(rounds):
            begun = time.process_time()
            here = train_here(run, progress=False)
            between = time.process_time()
            there = train(run, ActorSettings(1)).measures
            work["local"].append(1e6 * (between - begun) / steps)
            work["learner"].append(1e6 * (time.process_time() - between) / steps)
            rates["local"].append(here.env_steps / here.train_seconds)
            rates["one_actor"].append(there["steps_per_second"])
        yield {
            "environment": name,
            **{f"{who}_steps_per_second": statistics.median(rates[who]) for who in rates},
            **{f"{who}_cpu_us_per_step": statistics.median(work[who]) for who in work},
            "rounds": {"steps_per_second": rates, "cpu_us_per_step": work},
            "bytes_per_step": there["bytes_per_step"],
        }


def measure_edge(
    env: str, seeds: int, steps: int, warmup: int, refresh: list[float]
) -> Iterator[dict[str, Any]]:
    """Compare bytes sent and rewards with and without the edge filter, with the task's preset.

    Args:
        env: the task.
        seeds: of each side.
        steps: of a run.
        warmup: steps of the filter's warm-up.
        refresh: shares of the replacements that are sent; 1: no edge filter.
    """
    for seed, share in itertools.product(range(seeds), refresh):
        run = TrainConfig(
            env=env,
            admission="fac",
            steps=steps,
            seed=seed,
            fac_warmup_steps=warmup,
            **{**QUIET, "eval_every": steps // 4, "final_episodes": 20},
        )
        edge = share < 1.0
        result = train(run, ActorSettings(2, edge_filter=edge, edge_refresh=share))
        assert result.final is not None
        measures = result.measures
        yield {
            "environment": env,
            "warmup": warmup,
            "edge_filter": edge,
            "edge_refresh": share,
            "seed": seed,
            "reward": result.final.mean,
            "evaluations": [[step, round(mean, 2)] for step, mean in result.evaluations],
            "stored": result.buffer.stats.stored,
            "replaced": result.buffer.stats.replaced,
            "sent_share": 1 - measures["withheld"] / measures["env_steps"],
            "bytes_up_per_step": measures["bytes_per_step"],
            "bytes_up": measures["bytes_received"],
            "bytes_down": measures["bytes_published"],
            "snapshots": measures["snapshots"],
            "env_steps": measures["env_steps"],
            "updates_behind_mean": measures["updates_behind_mean"],
        }


def fragment_costs(costs: dict[str, Any]) -> tuple[float, float]:
    """Divide what a fragment costs the learner: seconds for each, and for each of its steps."""
    short, long = 16, 256
    seconds = {
        steps: 1e-6 * costs[str(steps)]["learner_us_per_fragment"] for steps in (short, long)
    }
    per_step = (seconds[long] - seconds[short]) / (long - short)
    return seconds[short] - short * per_step, per_step


def busy_seconds(rows: list[dict[str, Any]]) -> list[float]:
    """Give for how long the learner is busy per step, nearly all of it with the update."""
    return [(1 - row["learner_idle_share"]) / row["steps_per_second"] for row in rows]


def growth(content: dict[str, Any], actors: int) -> dict[str, float]:
    """Work out what a learner would have to do, for environments of 10 ms per step."""
    costs = content["costs"]["fragments"]
    offered = actors / 0.01
    spent = {steps: 1e-6 * costs[steps]["learner_us_per_fragment"] for steps in ("64", "256")}
    share = {steps: offered / int(steps) * spent[steps] for steps in spent}
    left = max(0.0, (1 - share["256"]) / offered)
    return {
        "steps per second offered": offered,
        "learner's time for fragments of 64 steps, %": 100 * share["64"],
        "most steps per second with fragments of 64 steps": 64 / spent["64"],
        "learner's time for fragments of 256 steps, %": 100 * share["256"],
        "most steps per second with fragments of 256 steps": 256 / spent["256"],
        "left for updates (256 steps), µs per step": 1e6 * left,
        "updates per step at most": left
        / statistics.median(busy_seconds(content["throughput"]["rows"])),
        "fragments over the network, MB/s": 1e-6 * offered * costs["256"]["bytes_per_step"],
    }


def tables(content: dict[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Give title, header and rows of a table for each thing that was measured."""
    if "costs" in content:
        costs = content["costs"]["fragments"]
        whole, per_step = fragment_costs(costs)
        yield (
            f"What a fragment costs without updates: {1e3 * whole:.2f} ms and {1e6 * per_step:.1f} "
            "µs for each of its steps",
            ["steps", "learner, ms", "actor, ms", "bytes", "bytes per step", "bytes on the wire"],
            [
                [
                    steps,
                    f"{row['learner_us_per_fragment'] / 1e3:.2f}",
                    f"{row['actor_us_per_fragment'] / 1e3:.2f}",
                    f"{row['bytes_per_fragment']:,.0f}",
                    f"{row['bytes_per_step']:.1f}",
                    f"{row['wire_bytes_per_fragment']:,}",
                ]
                for steps, row in costs.items()
            ],
        )
        yield (
            "A look at fragments under way, of which none has come",
            ["under way", "µs"],
            [[pending, f"{spent:.0f}"] for pending, spent in content["costs"]["looks"].items()],
        )
    if "throughput" in content:
        rows = content["throughput"]["rows"]
        yield (
            "Throughput, one update per step",
            [
                *("environment", "actors", "steps per second", "learner idle"),
                *("learner busy per step", "bytes per step", "updates per step", "updates behind"),
            ],
            [
                [
                    row["environment"],
                    str(row["actors"]),
                    f"{row['steps_per_second']:,.0f}",
                    f"{100 * row['learner_idle_share']:.0f} %",
                    f"{1e3 * busy:.2f} ms",
                    f"{row['bytes_per_step']:.1f}",
                    f"{row['update_ratio']:.3f}",
                    f"{row['updates_behind_mean']:.0f}",
                ]
                for row, busy in zip(rows, busy_seconds(rows), strict=True)
            ],
        )
    if "overhead" in content:
        yield (
            "One actor against the local loop, medians",
            [
                *("environment", "local, steps per second", "one actor, steps per second"),
                *("local, CPU per step", "learner, CPU per step"),
            ],
            [
                [
                    row["environment"],
                    f"{row['local_steps_per_second']:.0f}",
                    f"{row['one_actor_steps_per_second']:.0f}",
                    f"{row['local_cpu_us_per_step'] / 1e3:.2f} ms",
                    f"{row['learner_cpu_us_per_step'] / 1e3:.2f} ms",
                ]
                for row in content["overhead"]["rows"]
            ],
        )
    if {"costs", "throughput"} <= content.keys():
        few, many = growth(content, 100), growth(content, 1_000)
        yield (
            "Worked out for environments of 10 ms per step on processors of their own, updates of "
            f"{1e3 * statistics.median(busy_seconds(content['throughput']['rows'])):.2f} ms",
            ["", "100 actors", "1,000 actors"],
            [
                [name, *(f"{x:,.0f}" if x >= 100 else f"{x:.2g}" for x in (few[name], many[name]))]
                for name in few
            ],
        )
    if "edge" in content:
        yield (
            "Edge filter",
            ["environment", "edge", "seed", "reward", "sent", "bytes up per step", "bytes down"],
            [
                [
                    row["environment"],
                    f"{row['edge_refresh']:g}" if row["edge_filter"] else "no",
                    str(row["seed"]),
                    f"{row['reward']:.1f}",
                    f"{100 * row['sent_share']:.0f} %",
                    f"{row['bytes_up_per_step']:.1f}",
                    f"{row['bytes_down']:,}",
                ]
                for row in content["edge"]["rows"]
            ],
        )


def keep(out: Path, part: str, made: dict[str, Any]) -> None:
    """Write what one part has come to so far, beside what others have."""
    file = out / ("edge.json" if part == "edge" else "scale.json")
    content = json.loads(file.read_text()) if file.exists() else {}
    if part == "edge":
        # Runs with other settings stay: one entry for each command.
        said = made["conditions"]["command"], made["conditions"]["commit"]
        others = [
            one
            for one in content.get("measurements", [])
            if (one["conditions"]["command"], one["conditions"]["commit"]) != said
        ]
        entry = {"conditions": made["conditions"], "edge": made["rows"]}
        write_json(file, {"measurements": [*others, entry]})
        return
    content = {name: made if name == part else content.get(name) for name in PARTS}
    content = {name: found for name, found in content.items() if found}
    write_json(file, content)
    made_with = {name: found["conditions"] for name, found in content.items()}
    write_page(out / "scale.md", "Actors on Ray, measured", tables(content), made_with)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS[:3])
    parser.add_argument("--actors", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=10, help="length of the measurement of costs")
    parser.add_argument("--turns", type=int, default=3, help="of each side, for overhead")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--edge-env", default="MountainCarContinuous-v0")
    parser.add_argument("--edge-steps", type=int, default=20_000)
    parser.add_argument("--edge-refresh", type=float, nargs="*", default=[1.0, 0.25])
    parser.add_argument("--edge-warmup", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=OUT, help="a directory")
    options = parser.parse_args()
    register()
    rows = {
        "throughput": partial(measure_throughput, options.actors),
        "overhead": partial(measure_overhead, options.turns),
        "edge": partial(
            measure_edge,
            options.edge_env,
            options.seeds,
            options.edge_steps,
            options.edge_warmup,
            options.edge_refresh,
        ),
    }
    found: dict[str, Any] = {}
    with connected(None, cpus=max(options.actors)) as ray:
        # Compiles everything, so that no measurement does.
        train(config("Sleep-v0", 400), ActorSettings(1))
        for part in options.part:
            made = found[part] = {"conditions": conditions(PACKAGES)}
            if part == "costs":
                made["fragments"] = measure_costs(ray, options.rounds)
                made["looks"] = measure_looks(ray, 10 * options.rounds)
                keep(options.out, part, made)
                continue
            made["rows"] = []
            for row in rows[part]():
                made["rows"].append(row)
                keep(options.out, part, made)
    for title, header, lines in tables(found):
        print_table(title, header, lines)


if __name__ == "__main__":
    main()
