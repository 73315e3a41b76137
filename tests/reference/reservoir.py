"""ReservoirFilter, slow and obvious: the ring and the sample are lists of runs."""

from __future__ import annotations

from reference.mixing import splitmix


class SlowReservoir:
    """Takes one transition at a time; slots are given or chosen."""

    def __init__(self, newest_share: float, run_length: int, seed: int) -> None:
        self.newest_share, self.run_length, self.random = newest_share, run_length, seed
        self.held: set[int] = set()
        self.ring: list[int] = []
        self.sample: list[int] = []
        self.passed = 0
        self.waiting: list[int] = []  # slots of the run that is being overwritten

    def take(self, free: list[int]) -> tuple[str, int]:
        answer, slot = ("store", free[0]) if free else ("replace", self.victim())
        self.held.add(slot)
        run = slot // self.run_length
        if run not in self.ring + self.sample:
            self.ring.append(run)
        return answer, slot

    def forget(self, slot: int) -> None:
        self.held.discard(slot)

    def victim(self) -> int:
        while True:
            while self.waiting:
                slot = self.waiting.pop(0)
                if slot in self.held:
                    return slot
            first = self.next_run() * self.run_length
            self.waiting = list(range(first, first + self.run_length))

    def next_run(self) -> int:
        runs = len(self.ring) + len(self.sample)
        for_sample = runs - max(round(self.newest_share * runs), 1)
        run = self.leave_ring()
        while len(self.sample) < for_sample:
            self.sample.append(run)
            run = self.leave_ring()
        self.random, place = splitmix(self.random, self.passed)
        if place < len(self.sample):
            self.sample[place], run = run, self.sample[place]
        self.ring.append(run)
        return run

    def leave_ring(self) -> int:
        self.passed += 1
        return self.ring.pop(0)
