"""The buffer against its slow twin, through random sequences of everything that can happen."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from replay_soundness import check_storage

from frugalrl.admission.controls import AdmitAll, RandomAdmit
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.replay.buffer import ReplayBuffer
from reference.replay import SlowBuffer

ACTIONS = {
    "box": spaces.Box(-2.0, 2.0, (3,), np.float32),
    "discrete": spaces.Discrete(5, start=-2),
    "many": spaces.MultiDiscrete([300, 2, 7]),
    "binary": spaces.MultiBinary(6),
}
FILTERS: dict[str, Any] = {
    "all": AdmitAll,
    "random": lambda: RandomAdmit(0.5, seed=3),
    "replace": lambda: FrugalFilter(warmup_steps=6, bins=3),
    "discard": lambda: FrugalFilter(warmup_steps=6, bins=3, on_equivalent="discard"),
    "filter": lambda: FrugalFilter(warmup_steps=9, bins=3, warmup="filter"),
}
SPACE = spaces.Box(-3.0, 3.0, (2, 2), np.float64)
FLAT = spaces.Box(-3.0, 3.0, (4,), np.float64)


class BufferMachine(RuleBasedStateMachine):
    """Feeds both buffers the same rows and compares all they hold."""

    @initialize(
        capacity=st.integers(1, 24),
        action=st.sampled_from(sorted(ACTIONS)),
        admission=st.sampled_from(sorted(FILTERS)),
        sampler=st.sampled_from(["uniform", "prioritized", "large_batch"]),
        dtype=st.sampled_from(["float32", "float16"]),
        eviction=st.sampled_from(["oldest", "random"]),
        extra=st.booleans(),
        seed=st.integers(0, 10_000),
    )
    def begin(
        self,
        capacity: int,
        action: str,
        admission: str,
        sampler: str,
        dtype: str,
        eviction: str,
        extra: bool,
        seed: int,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.action_space = ACTIONS[action]
        self.action_space.seed(seed)
        self.fast = ReplayBuffer(
            capacity,
            observation_space=SPACE,
            action_space=self.action_space,
            admission=FILTERS[admission](),
            sampler=sampler,
            dtype=dtype,
            eviction=eviction,
            extra_fields=[("step", (), np.int64), ("pair", (2,), np.float16)] if extra else [],
        )
        victims = np.random.default_rng(np.random.SeedSequence([0, 1]))
        self.slow = SlowBuffer(
            capacity, FILTERS[admission](), dtype, FLAT, victims if eviction == "random" else None
        )
        self.releases = admission == "filter"
        self.has_extra = extra
        self.steps = 0
        self.current: dict[int, np.ndarray] = {}
        self.refused = 0

    def _observation(self) -> np.ndarray:
        # Few values, so that cells and states come again; -0.0 and what float16 rounds are there.
        values = np.array([-0.0, 0.0, 0.1, 1.0, -1.5, 2.999])
        return self.random.choice(values, size=(2, 2))

    def _row(self, environment: int, spoil: bool) -> tuple[Any, ...]:
        observation = self.current.get(environment)
        if observation is None or self.random.random() < 0.1:
            observation = self._observation()  # also: a caller that forgets a step
        next_observation = self._observation()
        action = self.action_space.sample()
        reward = float(self.random.choice([0.0, 0.1, 0.5, 3.0]))
        terminated, truncated = self.random.random(2) < 0.15
        if spoil:
            part = self.random.integers(0, 3)
            bad = self.random.choice([np.nan, np.inf, -np.inf])
            observation, next_observation = observation.copy(), next_observation.copy()
            if part == 0:
                observation[0, 1] = bad
            elif part == 1:
                next_observation[1, 1] = bad
            else:
                reward = bad
        ended = spoil or terminated or truncated
        self.current[environment] = self._observation() if ended else next_observation
        return observation, action, reward, next_observation, terminated, truncated

    @rule(
        environments=st.integers(1, 5),
        steps=st.integers(1, 12),
        spoil=st.integers(0, 12),
    )
    def add(self, environments: int, steps: int, spoil: int) -> None:
        for step in range(steps):
            rows = [self._row(e, spoil == step == e) for e in range(environments)]
            columns = [np.array(column) for column in zip(*rows, strict=True)]
            outcome = self.fast.add(*columns, **self._extra(environments))
            expected = [self._slow_add(e, row) for e, row in enumerate(rows)]
            self._compare_outcomes(outcome, expected)

    @rule(steps=st.integers(0, 30), spoil=st.integers(0, 30))
    def extend(self, steps: int, spoil: int) -> None:
        rows = [self._row(0, step == spoil) for step in range(steps)]
        columns = [np.array(column) for column in zip(*rows, strict=True)] or self._no_rows()
        outcome = self.fast.extend(*columns, **self._extra(steps))
        self._compare_outcomes(outcome, [self._slow_add(0, row) for row in rows])

    def _no_rows(self) -> list[np.ndarray]:
        kinds = [SPACE, self.action_space, None, SPACE, None, None]
        return [
            np.zeros((0, *kind.shape), kind.dtype) if kind else np.zeros(0, bool) for kind in kinds
        ]

    def _extra(self, rows: int) -> dict[str, np.ndarray]:
        """Extra fields that tell at which step a row came."""
        steps = np.arange(self.steps, self.steps + rows)
        return {"step": steps, "pair": np.stack([steps, -steps], axis=1)} if self.has_extra else {}

    def _slow_add(self, environment: int, row: tuple[Any, ...]) -> tuple[int, int]:
        code, slot = self.slow.add(environment, row)
        if slot >= 0:
            self.slow.slots[slot].step = self.steps
        self.steps += 1
        return code, slot

    def _compare_outcomes(self, outcome: Any, expected: list[tuple[int, int]]) -> None:
        found = list(zip(outcome.codes.tolist(), outcome.slots.tolist(), strict=True))
        # At the end of a filtered warm-up earlier rows of the same step are dropped as well.
        if not self.releases:
            assert found == expected
        assert found[-1:] == expected[-1:]
        self.refused += sum(code == 3 for code, _ in expected)

    @rule()
    def clear(self) -> None:
        self.fast.clear()
        self.slow.clear()

    @rule(size=st.integers(1, 9), batches=st.sampled_from([None, 1, 3]))
    def sample(self, size: int, batches: int | None) -> None:
        if not len(self.fast):
            with pytest.raises(ValueError, match="empty"):
                self.fast.sample(size, batches)
            return
        batch = self.fast.sample(size, batches)
        lead = (size * self.fast.sampler.multiple,)
        assert batch.slots.shape == (lead if batches is None else (batches, *lead))
        self._compare(batch, batch.slots.reshape(-1).tolist(), len(batch.slots.shape))
        assert batch.weights.dtype == np.float32
        assert (batch.weights > 0).all()
        assert (batch.weights <= 1).all()
        self.fast.feedback(batch.slots, batch.rewards * 2 - 1)

    @rule(through_file=st.booleans())
    def save_and_load(self, through_file: bool) -> None:
        if through_file:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "buffer.safetensors"
                self.fast.save(path)
                loaded = ReplayBuffer.load(path, SPACE, self.action_space)
        else:
            loaded = ReplayBuffer.from_state_dict(self.fast.state_dict())
        assert loaded.stats == self.fast.stats
        assert loaded.capacity == self.fast.capacity
        self.fast = loaded

    def _compare(self, batch: Any, slots: list[int], lead: int) -> None:
        """The batch holds, to the bit, what the twin keeps in these slots."""
        flat = [array.reshape(len(slots), *array.shape[lead:]) for array in batch[:6]]
        observations, actions, rewards, next_observations, terminated, truncated = flat
        for i, slot in enumerate(slots):
            held = self.slow.slots[slot]
            state = held.state.values.astype(np.float32).reshape(2, 2)
            assert observations[i].tobytes() == state.tobytes()
            next_state = held.next_state.values.astype(np.float32).reshape(2, 2)
            assert next_observations[i].tobytes() == next_state.tobytes()
            assert np.array_equal(actions[i], held.action)
            assert rewards[i] == held.reward
            assert terminated[i] == held.terminated
            assert truncated[i] == held.truncated
        assert batch.actions.dtype == self.action_space.dtype
        if self.has_extra:
            steps = [self.slow.slots[slot].step for slot in slots]
            assert batch.extra["step"].reshape(-1).tolist() == steps
            pairs = batch.extra["pair"].reshape(-1, 2)
            assert np.array_equal(pairs[:, 0], np.array(steps, dtype=np.float16))
            assert np.array_equal(pairs[:, 0], -pairs[:, 1])

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "fast"):
            return
        batch = self.fast.transitions()
        assert len(self.fast) == len(self.slow.slots)
        assert batch.slots.tolist() == list(self.slow.slots)
        self._compare(batch, batch.slots.tolist(), 1)
        storage = self.fast._storage
        assert len(storage.states) - storage.free_states == self.slow.live_states
        check_storage(storage)

    @invariant()
    def counters_add_up(self) -> None:
        if not hasattr(self, "fast"):
            return
        stats = self.fast.stats
        assert stats.rejected_nonfinite == self.refused
        assert stats.evicted == self.slow.evicted
        assert stats.stored - stats.evicted == len(self.fast)
        decided = stats.stored + stats.replaced + stats.dropped + stats.rejected_nonfinite
        assert stats.offered == decided


TestBuffer = pytest.mark.filterwarnings("ignore:refused")(BufferMachine.TestCase)
TestBuffer.settings = settings(max_examples=60, stateful_step_count=20)
