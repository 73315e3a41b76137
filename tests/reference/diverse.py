"""DiverseFilter, slow and obvious: everything is counted anew for every draw."""

from __future__ import annotations

from collections import Counter

import numpy as np

from frugalrl import important_dimensions

BITS = 2**64


def mix(h: int) -> int:
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD % BITS
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 % BITS
    return h ^ h >> 33


class SlowDiverse:
    """Takes one transition at a time; slots are given or chosen."""

    def __init__(
        self,
        run_length: int,
        tries: int,
        newest_share: float,
        longest_stay: float,
        first_steps: int,
        seed: int,
    ) -> None:
        self.run_length, self.tries, self.first_steps = run_length, tries, first_steps
        self.newest_share, self.longest_stay, self.random = newest_share, longest_stay, seed
        self.clock = 0  # transitions taken
        self.taken: dict[int, int] = {}  # by run, the clock when it was last written to or chosen
        self.first: list[tuple[int, np.ndarray]] = []
        self.numbers: dict[int, list[int]] = {}
        self.axes: list[tuple[int, float, float]] = []
        self.places = self.divisor = self.due = self.limit = 0
        self.run: list[int] = []

    def take(self, observation: np.ndarray, reward: float, free: list[int]) -> tuple[str, int]:
        row = np.append(observation, reward)
        if not self.axes and len(self.first) == self.first_steps:
            self.learn_axes()
        if free:
            answer, slot = "store", free[0]
        else:
            if not self.axes:
                self.learn_axes()
            if self.due == 0:
                self.learn_classes()
            answer, slot = "replace", self.victim()
            self.numbers.pop(slot)
        self.limit = max(self.limit, slot + 1)
        self.clock += 1
        self.taken[slot // self.run_length] = self.clock
        if self.axes:
            self.numbers[slot] = self.numbers_of(row)
        else:
            self.numbers[slot] = []
            self.first.append((slot, row))
        self.due = max(self.due - 1, 0)
        return answer, slot

    def forget(self, slot: int) -> None:
        self.numbers.pop(slot, None)

    def learn_axes(self) -> None:
        rows = np.array([row for _, row in self.first])
        for column in [*important_dimensions(rows[:, :-1])[:4].tolist(), rows.shape[1] - 1]:
            low, high = rows[:, column].min(), rows[:, column].max()
            width = (high / 64 - low / 64) if high > low else max(abs(high), 1.0) / 64
            self.axes.append((column, low / 2 + high / 2, width))
        for slot, row in self.first:
            if slot in self.numbers:
                self.numbers[slot] = self.numbers_of(row)

    def numbers_of(self, row: np.ndarray) -> list[int]:
        places = [np.floor((row[column] - middle) / step) for column, middle, step in self.axes]
        return [int(min(max(place, -127), 127)) for place in places]

    def learn_classes(self) -> None:
        held = list(self.numbers)
        for i, (column, middle, step) in enumerate(self.axes):
            while np.mean([abs(self.numbers[slot][i]) == 127 for slot in held]) > 0.02:
                step *= 2
                for slot in held:
                    self.numbers[slot][i] //= 2
            self.axes[i] = (column, middle, step)
        least, most = 1, 128
        while least < most:
            self.divisor = (least + most) // 2
            if 4 * len({self.key(slot) for slot in held}) > len(held):
                least = self.divisor + 1
            else:
                most = self.divisor
        self.divisor, self.due = least, len(held)
        self.places = 2 ** (len(held).bit_length() - 1)

    def key(self, slot: int) -> int:
        key = 0x9E3779B97F4A7C15
        numbers = self.numbers[slot]
        for number in numbers + [0] * (5 - len(numbers)):
            key = mix(key ^ number // self.divisor % BITS)
        return key

    def victim(self) -> int:
        while True:
            while self.run:
                slot = self.run.pop(0)
                if slot in self.numbers:
                    return slot
            first = self.next_run() * self.run_length
            self.taken[first // self.run_length] = self.clock
            self.run = list(range(first, min(first + self.run_length, self.limit)))

    def next_run(self) -> int:
        runs = (self.limit + self.run_length - 1) // self.run_length
        ages = [self.clock - self.taken.get(run, 0) for run in range(runs)]
        if max(ages) > self.longest_stay * len(self.numbers):
            return ages.index(max(ages))
        counts = Counter(self.key(slot) % self.places for slot in self.numbers)
        drawn = {}
        for _ in range(self.tries):
            self.random = (self.random + 0x9E3779B97F4A7C15) % BITS
            run = mix(self.random) % runs
            first = run * self.run_length
            slots = range(first, min(first + self.run_length, self.limit))
            shares = [1 / counts[self.key(s) % self.places] for s in slots if s in self.numbers]
            is_new = ages[run] < int(self.newest_share * len(self.numbers))
            drawn.setdefault(run, (sum(shares) / len(shares) if shares else 2.0) + 3.0 * is_new)
        return min(drawn, key=lambda run: drawn[run])
