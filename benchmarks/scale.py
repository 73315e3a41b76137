"""Actors on Ray: steps per second, the learner's idle share, bytes per step, the edge filter.

    python benchmarks/scale.py --part costs         what a fragment costs the learner
    python benchmarks/scale.py --part overhead      one actor against the local loop
    python benchmarks/scale.py --part throughput    steps per second by number of actors
    python benchmarks/scale.py --part edge          with and without the edge filter

With --out every measurement is written as soon as it is made.

One Ray on this machine serves all runs. The environment "sleep" waits so long in each step, as a
slow simulator would on a machine of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from _measure import conditions, print_table, write_json
from frugalrl import TrainConfig
from frugalrl import train as train_here
from frugalrl.distributed.cluster import connected
from frugalrl.distributed.fleet import ActorSettings
from frugalrl.distributed.rollout import Rollout
from frugalrl.distributed.training import train
from frugalrl.training.config import resolve
from frugalrl.training.runner import make_factory

PARTS = ("costs", "throughput", "overhead", "edge")
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


def measure_overhead() -> Iterator[dict[str, Any]]:
    """Compare the local loop with one actor on the same task."""
    for name, (env, changes, steps) in environments().items():
        run = config(env, steps, **changes)
        here = train_here(run, progress=False)
        there = train(run, ActorSettings(1)).measures
        yield {
            "environment": name,
            "local_steps_per_second": here.env_steps / here.train_seconds,
            "one_actor_steps_per_second": there["steps_per_second"],
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


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    if "costs" in found:
        print_table(
            "What a fragment costs (no updates)",
            ["steps", "learner, us", "actor, us", "bytes", "bytes per step", "on the wire"],
            [
                [
                    steps,
                    f"{row['learner_us_per_fragment']:.0f}",
                    f"{row['actor_us_per_fragment']:.0f}",
                    f"{row['bytes_per_fragment']:.0f}",
                    f"{row['bytes_per_step']:.1f}",
                    str(row["wire_bytes_per_fragment"]),
                ]
                for steps, row in found["costs"].items()
            ],
        )
    if "looks" in found:
        print_table(
            "A look at fragments under way, of which none has come",
            ["under way", "us"],
            [[pending, f"{spent:.0f}"] for pending, spent in found["looks"].items()],
        )
    if "throughput" in found:
        print_table(
            "Throughput, one update per step",
            ["environment", "actors", "steps/s", "learner idle", "bytes per step", "updates/step"],
            [
                [
                    row["environment"],
                    str(row["actors"]),
                    f"{row['steps_per_second']:.0f}",
                    f"{100 * row['learner_idle_share']:.0f} %",
                    f"{row['bytes_per_step']:.1f}",
                    f"{row['update_ratio']:.3f}",
                ]
                for row in found["throughput"]
            ],
        )
    if "overhead" in found:
        print_table(
            "One actor against the local loop, steps per second",
            ["environment", "local", "one actor"],
            [
                [
                    row["environment"],
                    f"{row['local_steps_per_second']:.0f}",
                    f"{row['one_actor_steps_per_second']:.0f}",
                ]
                for row in found["overhead"]
            ],
        )
    if "edge" in found:
        print_table(
            "Edge filter",
            ["environment", "edge", "seed", "reward", "sent", "bytes up/step", "bytes down"],
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
                for row in found["edge"]
            ],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS, nargs="*", default=PARTS)
    parser.add_argument("--actors", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=10, help="length of the measurement of costs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--edge-env", default="MountainCarContinuous-v0")
    parser.add_argument("--edge-steps", type=int, default=20_000)
    parser.add_argument("--edge-refresh", type=float, nargs="*", default=[1.0, 0.25])
    parser.add_argument("--edge-warmup", type=int, default=5_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    register()
    found: dict[str, Any] = {"conditions": conditions(PACKAGES)}
    found["conditions"]["processors"] = os.cpu_count()
    with connected(None, cpus=max(options.actors)) as ray:
        # Compiles everything, so that no measurement does.
        train(config("Sleep-v0", 400), ActorSettings(1))
        if "costs" in options.part:
            found["costs"] = measure_costs(ray, options.rounds)
            found["looks"] = measure_looks(ray, 10 * options.rounds)
        for name, rows in {
            "throughput": measure_throughput(options.actors),
            "overhead": measure_overhead(),
            "edge": measure_edge(
                options.edge_env,
                options.seeds,
                options.edge_steps,
                options.edge_warmup,
                options.edge_refresh,
            ),
        }.items():
            if name in options.part:
                found[name] = []
                for row in rows:
                    found[name].append(row)
                    if options.out is not None:
                        write_json(options.out, found)
    show(found)
    if options.out is not None:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
