"""What the adapters cost inside other people's trainers: CPU time of a step, memory of the buffer.

    python benchmarks/adapters.py                  # every part, about ten minutes, quiet machine
    python benchmarks/adapters.py --part sb3 sbx   # training steps alone, under four minutes
    python benchmarks/adapters.py --short          # a minute, to see that it works

SAC on Hopper-v5 with the libraries' default settings (256x256, batch 256, one update a step). The
filter's warm-up is over before the clock starts, so that every measured step is decided. Contenders
take turns, and CPU time of the process is counted, with one thread. For Tianshou and skrl a call of
`add` is measured alone, for skrl with thousands of environments at once. Memory: the transitions of
one SAC run, which learns every fourth step to take less time, go to every buffer at once. Parts
that are not measured stay in the file as they are; each says what it was measured with. Beside
the file a page with the same name has the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer

import frugalrl
from _measure import conditions, interleaved, print_table, spread, write_json, write_page
from frugalrl.adapters.sb3 import FrugalReplayBuffer

ROOT = Path(__file__).resolve().parents[1]
ENV = "Hopper-v5"
BUFFERS: dict[str, dict[str, Any]] = {
    "its own": {},
    "adapter, AdmitAll": {
        "replay_buffer_class": FrugalReplayBuffer,
        "replay_buffer_kwargs": {"admission": frugalrl.AdmitAll()},
    },
    "adapter, FAC": {"replay_buffer_class": FrugalReplayBuffer},
}


def algorithm(library: str) -> Any:
    if library == "sb3":
        from stable_baselines3 import SAC
    else:
        from sbx import SAC
    return SAC


def measure_steps(library: str, warmup: int, chunk: int, rounds: int) -> dict[str, Any]:
    """Time whole training steps, one model for each buffer."""
    contenders, models = {}, {}
    for name, settings in BUFFERS.items():
        settings = dict(settings)
        if name == "adapter, FAC":
            settings["replay_buffer_kwargs"] = {"warmup_steps": warmup}
        model = algorithm(library)("MlpPolicy", ENV, seed=0, learning_starts=warmup, **settings)
        model.learn(warmup + chunk)
        models[name] = model

        def steps(model: Any = model) -> int:
            model.learn(chunk, reset_num_timesteps=False)
            return chunk

        contenders[name] = steps
    times: dict[str, Any] = interleaved(contenders, rounds, time.process_time)
    for name, model in models.items():
        times[name]["of_its_own"] = times[name]["median"] / times["its own"]["median"]
        if name != "its own":
            times[name]["stored_of_offered"] = model.replay_buffer.stats.acceptance_rate
    return times


def measure_calls(warmup: int, chunk: int, rounds: int) -> dict[str, Any]:
    """Time `add` and `sample(256)` alone, on one stream of random steps."""
    stream = list(random_steps(warmup + chunk * (rounds + 1)))
    space = gymnasium.make(ENV)
    results: dict[str, Any] = {"add": {}, "sample": {}}
    adding, sampling = {}, {}
    for name, settings in BUFFERS.items():
        kind = settings.get("replay_buffer_class", ReplayBuffer)
        arguments = settings.get("replay_buffer_kwargs", {"warmup_steps": warmup})
        buffer = kind(
            1_000_000,
            space.observation_space,
            space.action_space,
            "cpu",
            **(arguments if kind is FrugalReplayBuffer else {}),
        )
        for transition in stream[:warmup]:
            buffer.add(*transition)
        ahead = iter(stream[warmup:])

        def add(buffer: Any = buffer, ahead: Any = ahead) -> int:
            for _ in range(chunk):
                buffer.add(*next(ahead))
            return chunk

        def sample(buffer: Any = buffer) -> int:
            for _ in range(chunk):
                buffer.sample(256)
            return chunk

        adding[name], sampling[name] = add, sample
    results["add"] = interleaved(adding, rounds, time.process_time)
    results["sample"] = interleaved(sampling, rounds, time.process_time)
    return results


def measure_tianshou(warmup: int, chunk: int, rounds: int) -> dict[str, Any]:
    """Time `add` of one environment's step in Tianshou's buffer and in ours."""
    from tianshou.data import Batch
    from tianshou.data import ReplayBuffer as Plain

    from frugalrl.adapters.tianshou import FrugalReplayBuffer as Frugal

    steps = []
    for observation, following, action, reward, done, infos in random_steps(
        warmup + chunk * (rounds + 1)
    ):
        truncated = np.array([infos[0]["TimeLimit.truncated"]])
        steps.append(
            Batch(
                obs=observation,
                obs_next=following,
                act=action,
                rew=reward.astype(np.float64),
                terminated=done & ~truncated,
                truncated=truncated & done,
                info=Batch(),
            )
        )
    adding: dict[str, Any] = {}
    made = {
        "its own": Plain(1_000_000),
        "adapter, AdmitAll": Frugal(1_000_000, admission=frugalrl.AdmitAll()),
        "adapter, FAC": Frugal(1_000_000, warmup_steps=warmup),
        "adapter, FAC, 3 steps": Frugal(1_000_000, warmup_steps=warmup, n_step=3),
    }
    for name, buffer in made.items():
        for step in steps[:warmup]:
            buffer.add(step, [0])
        ahead = iter(steps[warmup:])

        def add(buffer: Any = buffer, ahead: Any = ahead) -> int:
            for _ in range(chunk):
                buffer.add(next(ahead), [0])
            return chunk

        adding[name] = add
    times = interleaved(adding, rounds, time.process_time)
    own = made.pop("its own")
    sizes = {"its own": {"held": len(own), "bytes": tianshou_bytes(own._meta)}}
    for name, buffer in made.items():
        sizes[name] = {"held": len(buffer), "bytes": buffer.nbytes}
    return {"add": times, "memory": sizes}


def tianshou_bytes(batch: Any) -> int:
    """Return what Tianshou allocates, all at once and for the whole capacity."""
    values = [batch[key] for key in batch.get_keys()]
    return sum(
        tianshou_bytes(value) if hasattr(value, "get_keys") else int(value.nbytes)
        for value in values
    )


def measure_skrl(environments: int, rounds: int) -> dict[str, Any]:
    """Time `add_samples` of one step of many environments, in skrl's memory and in ours."""
    from skrl.memories.torch import RandomMemory

    from frugalrl.adapters.skrl import FrugalMemory

    generator = torch.Generator().manual_seed(0)
    # Walks that turn back, so that states come again: 11 dimensions, as Hopper has.
    state, steps = torch.zeros(environments, 11), []
    for _ in range(2 * rounds + 10):
        following = 0.95 * state + 0.3 * torch.randn(environments, 11, generator=generator)
        steps.append(
            {
                "observations": state,
                "actions": torch.rand(environments, 3, generator=generator),
                "rewards": following[:, :1].clamp(-1, 1),
                "next_observations": following,
            }
        )
        state = following
    warmup = 5 * environments
    adding = {}
    for name, memory in {
        "its own": RandomMemory(memory_size=64, num_envs=environments, device="cpu"),
        "adapter, AdmitAll": FrugalMemory(
            memory_size=64, num_envs=environments, device="cpu", admission=frugalrl.AdmitAll()
        ),
        "adapter, FAC": FrugalMemory(
            memory_size=64, num_envs=environments, device="cpu", warmup_steps=warmup
        ),
    }.items():
        for key, values in steps[0].items():
            memory.create_tensor(key, size=values.shape[1])
        for step in steps[:8]:
            memory.add_samples(**step)
        ahead = iter(steps[8:])

        def add(memory: Any = memory, ahead: Any = ahead) -> int:
            memory.add_samples(**next(ahead))
            return 1

        adding[name] = add
    times = interleaved(adding, rounds, time.process_time)
    return {"environments": environments, "add": times}


def random_steps(steps: int) -> Any:
    """Yield transitions as Stable-Baselines3 hands them to a buffer."""
    env = gymnasium.make(ENV)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        infos = [{"TimeLimit.truncated": truncated and not terminated}]
        yield (
            observation[None],
            following[None],
            action[None],
            np.array([reward], np.float32),
            np.array([over]),
            infos,
        )
        observation = env.reset()[0] if over else following


class Tee(ReplayBuffer):
    """A plain buffer that hands every transition on to others."""

    others: tuple[FrugalReplayBuffer, ...] = ()

    def add(self, *transition: Any) -> None:
        super().add(*transition)
        for other in self.others:
            other.add(*transition)


def plain_bytes(buffer: ReplayBuffer) -> int:
    """Return what Stable-Baselines3 allocates, all at once and for the whole capacity."""
    names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
    return sum(getattr(buffer, name).nbytes for name in names)


def measure_memory(steps: int, warmup: int) -> dict[str, Any]:
    """Fill every buffer with the transitions of one SAC run and weigh it."""
    space = gymnasium.make(ENV)
    filters = {
        "adapter, AdmitAll, float32": {"admission": frugalrl.AdmitAll(), "dtype": "float32"},
        "adapter, FAC replace": {"warmup_steps": warmup},
        "adapter, FAC discard": {"warmup_steps": warmup, "on_equivalent": "discard"},
    }
    made = {
        name: FrugalReplayBuffer(
            1_000_000, space.observation_space, space.action_space, "cpu", **arguments
        )
        for name, arguments in filters.items()
    }
    Tee.others = tuple(made.values())
    model = algorithm("sbx")(
        "MlpPolicy", ENV, seed=0, learning_starts=warmup, train_freq=4, replay_buffer_class=Tee
    )
    model.learn(steps)
    capacity = model.replay_buffer.buffer_size
    bytes_for_all = plain_bytes(model.replay_buffer)
    result: dict[str, Any] = {
        "its own": {
            "held": steps,
            "bytes": bytes_for_all * steps // capacity,
            "bytes_allocated": bytes_for_all,
        }
    }
    for name, buffer in made.items():
        result[name] = {
            "held": len(buffer),
            "bytes": buffer.nbytes,
            "bytes_allocated": buffer.nbytes,
            "filter_bytes": int(buffer.admission.nbytes),
        }
    return result


def tables(content: dict[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Give title, header and rows of a table for each thing that was measured."""
    rows = []
    for library, title in (("sb3", "Stable-Baselines3"), ("sbx", "SBX")):
        for name, timing in content.get(library, {}).get("step", {}).items():
            share = f"{100 * (timing['of_its_own'] - 1):+.1f} %"
            rows.append([f"{title}, {name}", spread(timing), share])
    if rows:
        title = "Microseconds of CPU time per training step, SAC on Hopper-v5"
        yield title, ["buffer", "median (quartiles)", "against its own"], rows
    for part, call, title in (
        ("calls", "add", "Stable-Baselines3's `add`"),
        ("calls", "sample", "Stable-Baselines3's `sample(256)`"),
        ("tianshou", "add", "Tianshou's `add`"),
        ("skrl", "add", "skrl's `add_samples`"),
    ):
        measured = content.get(part, {})
        if call in measured:
            yield (
                f"Microseconds of CPU time per call of {title}, "
                f"{measured.get('environments', 1):,} environment(s)",
                ["buffer", "median (quartiles)", "times its own"],
                [
                    [name, spread(timing), f"{timing['median'] / own:.1f}"]
                    for own in [measured[call]["its own"]["median"]]
                    for name, timing in measured[call].items()
                ],
            )
    if "memory" in content:
        memory = content["memory"]
        yield (
            f"Buffer of Stable-Baselines3 after {memory['steps']:,} steps of one SAC run, "
            "capacity 1,000,000",
            ["buffer", "transitions", "MB in use", "MB allocated"],
            [
                [
                    name,
                    f"{row['held']:,}",
                    *(f"{row[key] / 1e6:.2f}" for key in ("bytes", "bytes_allocated")),
                ]
                for name, row in memory["buffers"].items()
            ],
        )
    if "tianshou" in content:
        yield (
            "Tianshou's buffer after these calls, capacity 1,000,000",
            ["buffer", "transitions", "MB allocated"],
            [
                [name, f"{row['held']:,}", f"{row['bytes'] / 1e6:.2f}"]
                for name, row in content["tianshou"]["memory"].items()
            ],
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["sb3", "sbx", "calls", "memory", "tianshou", "skrl"]
    parser.add_argument("--short", action="store_true", help="few steps, numbers mean nothing")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument("--environments", type=int, default=4096, help="at once, for skrl")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch and JAX")
    parser.add_argument("--out", default=str(ROOT / "results" / "adapters" / "cost.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads == 1:  # read when SBX imports JAX, further down
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    warmup, chunk, rounds, memory_steps = (
        (300, 20, 2, 600) if options.short else (10_000, 100, 20, 50_000)
    )
    out = Path(options.out)
    before = json.loads(out.read_text()) if out.exists() else {}
    content = {part: before[part] for part in parts if "commit" in before.get(part, {})}
    for part in options.part:
        began = conditions(
            ("stable-baselines3", "sbx-rl", "tianshou", "skrl", "torch", "jax", "numpy", "mujoco")
        )
        measured: dict[str, Any]
        if part in ("sb3", "sbx"):
            measured = {"step": measure_steps(part, warmup, chunk, rounds)}
        elif part == "calls":
            measured = measure_calls(warmup, chunk, rounds)
        elif part == "memory":
            measured = {"steps": memory_steps, "buffers": measure_memory(memory_steps, warmup)}
        elif part == "tianshou":
            measured = measure_tianshou(warmup, chunk, rounds)
        else:
            measured = measure_skrl(options.environments, rounds)
        settings = {"warmup_steps": warmup, "steps_per_round": chunk, "rounds": rounds}
        content[part] = {**began, "threads": options.threads, "settings": settings, **measured}
        write_json(out, content)
        write_page(out.with_suffix(".md"), "What the adapters cost", tables(content), content)
    for title, header, rows in tables({part: content[part] for part in options.part}):
        print_table(title, header, rows)


if __name__ == "__main__":
    main()
