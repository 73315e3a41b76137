"""Bytes per transition and microseconds for add and sample(256), beside other replay buffers.

Contenders are Stable-Baselines3's ReplayBuffer and cpprb's ReplayBuffer and
PrioritizedReplayBuffer, on streams with the shapes of Hopper and Humanoid. Everybody gets the same
stream, one transition at a time, and is measured in turn. Bytes are the growth of the resident
memory of a fresh process while a buffer is filled to its capacity, so slack, index structures and
the filter count; `nbytes` is what our buffer says of itself. The seconds of the first use are those
of a fresh process with nothing compiled yet: a buffer with a filter is filled and drawn from.

    python benchmarks/buffers.py [--transitions N] [--rounds N] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from _measure import conditions, interleaved, print_table, spread, write_json

SHAPES = {"hopper": (11, 3), "humanoid": (376, 17)}
BATCH = 256
EPISODE = 1000
PACKAGES = ("frugalrl", "numpy", "numba", "stable_baselines3", "cpprb", "torch", "gymnasium")


class Stream:
    """A random walk through episodes, given out again and again."""

    def __init__(self, shape: str, steps: int) -> None:
        width, actions = SHAPES[shape]
        rng = np.random.default_rng(0)
        # Dimensions of falling size, so that, as in the real ones, few of them are important.
        noise = rng.standard_normal((steps + 1, 1, width)) * np.maximum(
            0.8 ** np.arange(width), 0.01
        )
        states = np.empty_like(noise)
        states[0] = noise[0]
        for i in range(steps):
            states[i + 1] = 0.95 * states[i] + 0.3 * noise[i + 1]
        self.steps = steps
        self.states = list(states[:-1])
        self.next_states = list(states[1:])
        self.actions = list(rng.uniform(-1, 1, (steps, 1, actions)).astype(np.float32))
        self.rewards = list(2.0 * states[1:, :, 0] + 0.1 * rng.standard_normal((steps, 1)))
        self.no = np.zeros(1, dtype=bool)
        self.yes = np.ones(1, dtype=bool)

    def ends(self, i: int) -> bool:
        """Whether step i is the last of its episode."""
        return i % EPISODE == EPISODE - 1


class Contender:
    """A buffer on trial."""

    buffer: Any

    def sample(self, count: int) -> None:
        """Draw batches."""
        for _ in range(count):
            self.buffer.sample(BATCH)


class Ours(Contender):
    """frugalrl.ReplayBuffer."""

    def __init__(
        self,
        shape: str,
        capacity: int,
        warmup_steps: int | None = None,
        prioritized: bool = False,
        admission: Any = None,
    ) -> None:
        import frugalrl

        width, actions = SHAPES[shape]
        if warmup_steps is not None:
            admission = frugalrl.FrugalFilter(warmup_steps=warmup_steps)
        self.buffer = frugalrl.ReplayBuffer(
            capacity,
            observation_space=spaces.Box(-np.inf, np.inf, (width,), np.float64),
            action_space=spaces.Box(-1.0, 1.0, (actions,), np.float32),
            admission=admission,
            sampler="prioritized" if prioritized else "uniform",
        )
        self.prioritized = prioritized

    def add(self, stream: Stream, start: int, count: int) -> None:
        """Add transitions of the stream."""
        add, no, yes = self.buffer.add, stream.no, stream.yes
        for i in range(start, start + count):
            j = i % stream.steps
            cut = yes if stream.ends(i) else no
            add(
                stream.states[j], stream.actions[j], stream.rewards[j], stream.next_states[j],
                no, cut,
            )  # fmt: skip

    def learn(self, count: int) -> None:
        """Draw batches and feed errors back."""
        for _ in range(count):
            batch = self.buffer.sample(BATCH)
            self.buffer.feedback(batch.slots, batch.rewards)

    @property
    def stored(self) -> int:
        """Transitions held."""
        return len(self.buffer)

    @property
    def nbytes(self) -> int | None:
        """Bytes held, by its own account."""
        return self.buffer.nbytes


class StableBaselines(Contender):
    """stable_baselines3.common.buffers.ReplayBuffer with its defaults, on the CPU."""

    nbytes = None

    def __init__(self, shape: str, capacity: int) -> None:
        from stable_baselines3.common.buffers import ReplayBuffer

        width, actions = SHAPES[shape]
        self.buffer = ReplayBuffer(
            capacity,
            spaces.Box(-np.inf, np.inf, (width,), np.float64),
            spaces.Box(-1.0, 1.0, (actions,), np.float32),
            device="cpu",
        )

    def add(self, stream: Stream, start: int, count: int) -> None:
        """Add transitions of the stream."""
        add, no, yes = self.buffer.add, stream.no, stream.yes
        running, cut = [{}], [{"TimeLimit.truncated": True}]
        for i in range(start, start + count):
            j = i % stream.steps
            ended = stream.ends(i)
            add(
                stream.states[j], stream.next_states[j], stream.actions[j], stream.rewards[j],
                yes if ended else no, cut if ended else running,
            )  # fmt: skip

    @property
    def stored(self) -> int:
        """Transitions held."""
        return int(self.buffer.size())


class Cpprb(Contender):
    """cpprb's buffers, float32; `compressed` keeps the next observation as the following one."""

    nbytes = None

    def __init__(
        self, shape: str, capacity: int, compressed: bool = False, prioritized: bool = False
    ) -> None:
        import cpprb

        width, actions = SHAPES[shape]
        fields: dict[str, Any] = {
            "obs": {"shape": width, "dtype": np.float32},
            "act": {"shape": actions, "dtype": np.float32},
            "rew": {"dtype": np.float32},
            "done": {"dtype": np.float32},
            "truncated": {"dtype": np.float32},
        }
        options: dict[str, Any] = {"next_of": "obs"} if compressed else {}
        if not compressed:
            fields["next_obs"] = {"shape": width, "dtype": np.float32}
        if prioritized:
            self.buffer = cpprb.PrioritizedReplayBuffer(capacity, fields, alpha=0.6, **options)
        else:
            self.buffer = cpprb.ReplayBuffer(capacity, fields, **options)

    def add(self, stream: Stream, start: int, count: int) -> None:
        """Add transitions of the stream."""
        add = self.buffer.add
        for i in range(start, start + count):
            j = i % stream.steps
            ended = stream.ends(i)
            add(
                obs=stream.states[j], act=stream.actions[j], rew=stream.rewards[j],
                next_obs=stream.next_states[j], done=0.0, truncated=float(ended),
            )  # fmt: skip
            if ended:
                self.buffer.on_episode_end()

    def learn(self, count: int) -> None:
        """Draw batches and feed errors back."""
        for _ in range(count):
            batch = self.buffer.sample(BATCH)
            self.buffer.update_priorities(batch["indexes"], np.abs(batch["rew"][:, 0]))

    @property
    def stored(self) -> int:
        """Transitions held."""
        return int(self.buffer.get_stored_size())


def random_admit() -> Any:
    """A filter that is not ours to the buffer, as any other."""
    import frugalrl

    return frugalrl.RandomAdmit(0.9)


CONTENDERS: dict[str, Callable[[str, int], Any]] = {
    "frugalrl": Ours,
    "frugalrl, FAC": lambda shape, capacity: Ours(shape, capacity, warmup_steps=2_000),
    "frugalrl, FAC's warm-up": lambda shape, capacity: Ours(
        shape, 10 * capacity, warmup_steps=10 * capacity
    ),
    "frugalrl, FAC's warm-up, evicting": lambda shape, capacity: Ours(
        shape, capacity, warmup_steps=10 * capacity
    ),
    "frugalrl, another filter": lambda shape, capacity: Ours(
        shape, capacity, admission=random_admit()
    ),
    "Stable-Baselines3": StableBaselines,
    "cpprb": Cpprb,
    "cpprb, next_of": lambda shape, capacity: Cpprb(shape, capacity, compressed=True),
    "frugalrl, prioritized": lambda shape, capacity: Ours(shape, capacity, prioritized=True),
    "frugalrl, FAC + prioritized": lambda shape, capacity: Ours(
        shape, capacity, warmup_steps=2_000, prioritized=True
    ),
    "cpprb, prioritized": lambda shape, capacity: Cpprb(shape, capacity, prioritized=True),
}


def measure_memory(name: str, shape: str, transitions: int) -> dict[str, float]:
    """Fill a buffer to its capacity and see what the process has grown by. Runs in its own."""
    import psutil

    stream = Stream(shape, min(transitions, 20_000))
    # Imports and compilation must not count.
    warm = CONTENDERS[name](shape, 3000)
    warm.add(stream, 0, 3500)
    warm.sample(2)
    del warm
    process = psutil.Process()
    before = process.memory_info().rss
    contender = CONTENDERS[name](shape, transitions)
    contender.add(stream, 0, transitions)
    grown = process.memory_info().rss - before
    result = {"offered": transitions, "stored": contender.stored, "resident": grown}
    if contender.nbytes is not None:
        result["nbytes"] = contender.nbytes
    return result


def memory_of(name: str, shape: str, transitions: int) -> dict[str, float]:
    """Measure one contender in a fresh process."""
    command = [sys.executable, __file__, "--memory-of", name, shape, str(transitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


FIRST_USE = """
import time
from buffers import Ours, Stream
stream = Stream("hopper", 3000)
started = time.perf_counter()
ours = Ours("hopper", 10_000, warmup_steps=2_000)
ours.add(stream, 0, 2500)
ours.sample(1)
print(time.perf_counter() - started)
"""


def seconds_of_first_use() -> float:
    """Make, fill and draw from a buffer with a filter in a process that finds nothing compiled."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", FIRST_USE],
            cwd=Path(__file__).parent,
            env={**os.environ, "FRUGALRL_CACHE_DIR": empty},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout)


def measure_time(shape: str, transitions: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Fill all buffers, then time adding to and sampling from the full ones, in turn."""
    stream = Stream(shape, 20_000)
    made = {name: make(shape, transitions) for name, make in CONTENDERS.items()}
    position = dict.fromkeys(made, transitions)
    for contender in made.values():
        contender.add(stream, 0, transitions)

    def adding(name: str) -> Callable[[], int]:
        def work() -> int:
            made[name].add(stream, position[name], 100)
            position[name] += 100
            return 100

        return work

    def repeating(work: Callable[[int], None], count: int) -> Callable[[], int]:
        def repeated() -> int:
            work(count)
            return count

        return repeated

    learners = {name: c for name, c in made.items() if "prioritized" in name}
    return {
        "add": interleaved({name: adding(name) for name in made}, rounds),
        "sample": interleaved({n: repeating(c.sample, 5) for n, c in made.items()}, rounds),
        "sample and feedback": interleaved(
            {name: repeating(c.learn, 5) for name, c in learners.items()}, rounds
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--transitions", type=int, default=100_000, help="filled into each buffer")
    parser.add_argument("--rounds", type=int, default=200, help="measurements of each operation")
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--out", default="results/buffers/buffers.json", help="JSON file to write")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        name, shape, transitions = options.memory_of
        print(json.dumps(measure_memory(name, shape, int(transitions))))
        return
    results: dict[str, Any] = {}
    for shape in options.shapes:
        memory = {name: memory_of(name, shape, options.transitions) for name in CONTENDERS}
        times = measure_time(shape, options.transitions, options.rounds)
        results[shape] = {"memory": memory, "microseconds": times}
        rows = []
        for name in CONTENDERS:
            held = memory[name]
            rows.append(
                [
                    name,
                    f"{held['stored']:,}",
                    f"{held['resident'] / held['stored']:,.0f}",
                    f"{held['nbytes'] / held['stored']:,.0f}" if "nbytes" in held else "-",
                    spread(times["add"][name]),
                    spread(times["sample"][name]),
                    spread(times["sample and feedback"].get(name)),
                ]
            )
        header = ["buffer", "stored", "bytes each", "nbytes each", "add, us",
                  f"sample({BATCH}), us", "with feedback, us"]  # fmt: skip
        title = f"{shape}-shaped, {options.transitions:,} transitions offered; median (quartiles)"
        print_table(title, header, rows)
    first_use = seconds_of_first_use()
    print(f"first use of filter and buffer, compiling: {first_use:.1f} s")
    write_json(
        options.out,
        {
            "benchmark": "buffers",
            "transitions": options.transitions,
            "rounds": options.rounds,
            "batch": BATCH,
            "first_use_seconds": first_use,
            "results": results,
            **conditions(PACKAGES),
        },
    )


if __name__ == "__main__":
    main()
