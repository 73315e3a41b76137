"""What a fault must not do to a buffer: copies, shared arrays, interrupts, threads, files."""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from safetensors.numpy import load_file, save_file

from frugalrl import (
    AdmitAll,
    FrugalFilter,
    RandomAdmit,
    ReplayBuffer,
    StateFileError,
)
from frugalrl.adapters import AdmissionLedger
from frugalrl.adapters.filters import ReadsColumns
from frugalrl.state_io import _checksum

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_soundness import check_storage

FILTERS: dict[str, Any] = {
    "all": AdmitAll,
    "random": lambda: RandomAdmit(0.6, seed=5),
    "replace": lambda: FrugalFilter(warmup_steps=25, bins=3),
    "discard": lambda: FrugalFilter(warmup_steps=25, bins=3, on_equivalent="discard"),
    "filter": lambda: FrugalFilter(warmup_steps=25, bins=3, warmup="filter"),
    "fine": lambda: FrugalFilter(warmup_steps=25, bins=50, kernel="gaussian"),
    "columns": lambda: ReadsColumns(FrugalFilter(warmup_steps=25, bins=3), np.array([0, 2])),
}
SAMPLERS = ("uniform", "prioritized", "large_batch")
SPACE = Box(-3.0, 3.0, (3,), np.float64)


class Stream:
    """Steps of two environments, the same for the same seed."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.states = self.random.standard_normal((2, 3))

    def rows(self) -> tuple[Any, ...]:
        before = self.states
        self.states = after = 0.8 * before + 0.6 * self.random.standard_normal((2, 3))
        actions = self.random.uniform(-1.0, 1.0, (2, 2))
        flags = self.random.random((2, 2)) < 0.1
        return before, actions, after[:, 0].round(1), after, *flags


def make(kind: str, **options: Any) -> ReplayBuffer:
    settings: dict[str, Any] = {
        "capacity": 60,
        "observation_space": SPACE,
        "action_space": Box(-1.0, 1.0, (2,), np.float32),
        "admission": FILTERS[kind](),
    }
    return ReplayBuffer(**{**settings, **options})


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return bool(one == other)


def use(buffer: ReplayBuffer, stream: Stream, steps: int) -> list[Any]:
    """Add, draw and give feedback; all that comes of it."""
    told: list[Any] = []
    for _ in range(steps):
        told.append(buffer.add(*stream.rows()))
        if len(buffer):
            batch = buffer.sample(4)
            buffer.feedback(batch.slots, batch.rewards)
            told.append(tuple(batch))
    return told


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda it: pickle.loads(pickle.dumps(it))}  # noqa: S301
COMBINATIONS = list(
    itertools.product(FILTERS, SAMPLERS, ("float32", "float16"), (0, 10, 20, 90), COPIES)
)


@pytest.mark.parametrize("admission", FILTERS)
def test_a_copy_goes_on_as_the_original(admission: str) -> None:
    for name, sampler, dtype, fill, way in COMBINATIONS:
        if name != admission:
            continue
        eviction = "random" if fill == 90 and dtype == "float16" else "oldest"
        buffer = make(name, sampler=sampler, dtype=dtype, eviction=eviction)
        stream = Stream()
        use(buffer, stream, fill)
        other, its_stream = COPIES[way](buffer), copy.deepcopy(stream)
        before = copy.deepcopy(other.state_dict())
        assert same(use(buffer, stream, 15), use(copy.copy(other), its_stream, 15))
        assert same(before, other.state_dict()), "a copy of the copy has changed it"
        assert same(use(other, Stream(), 0), [])
    assert len(COMBINATIONS) == 336


def _add_in_child(buffer: ReplayBuffer, stream: Stream) -> tuple[list[Any], dict[str, Any]]:
    return use(buffer, stream, 10), buffer.state_dict()


def test_a_spawned_process_goes_on_as_the_original() -> None:
    buffer, stream = make("replace", sampler="prioritized"), Stream()
    use(buffer, stream, 40)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        told, state = pool.apply(_add_in_child, (buffer, stream))
    assert same(use(buffer, stream, 10), told)
    assert same(buffer.state_dict(), state)


def test_what_joblib_and_ray_send_goes_on_as_the_original() -> None:
    joblib, ray = pytest.importorskip("joblib"), pytest.importorskip("ray.cloudpickle")
    buffer, stream = make("replace", sampler="prioritized"), Stream()
    use(buffer, stream, 40)
    sent, its_stream = ray.loads(ray.dumps((buffer, stream)))
    with joblib.parallel_config("loky", n_jobs=2):
        ((told, state),) = joblib.Parallel()([joblib.delayed(_add_in_child)(buffer, stream)])
    assert same(use(sent, its_stream, 10), told)
    assert same(use(buffer, stream, 10), told)
    assert same(sent.state_dict(), state)
    assert same(buffer.state_dict(), state)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_nothing_is_shared_with_the_caller(kind: Any) -> None:
    buffer = make("all")
    rows = [np.array(part, dtype=kind) for part in Stream().rows()[:4]]
    flags = [np.zeros(2, bool), np.zeros(2, bool)]
    buffer.add(*rows, *flags)
    buffer.extend(*rows, *flags)
    before = buffer.transitions()
    for array in rows:
        array[...] = 99.0  # an environment that changes its action in place
    for array in buffer.transitions()[:-1]:
        array[...] = 1  # a user who changes what was drawn
    slots = buffer.slots()
    slots[...] = 0
    state = buffer.state_dict()
    for array in (state["storage"]["rewards"], state["storage"]["observations"]):
        array[...] = 7.0
    assert same(tuple(buffer.transitions()), tuple(before))


# --- interrupts -----------------------------------------------------------------------------------


class Interrupt:
    """Raises an error at a bytecode of this library, chosen by its number."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left = at
        self.error = error

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if "frugalrl" not in frame.f_code.co_filename or "compiling" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise self.error("out of nowhere")
        return self._trace

    def __enter__(self) -> Interrupt:
        self._before = sys.gettrace()  # that of the coverage, which goes on afterwards
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def check_agreement(buffer: ReplayBuffer) -> None:
    """Filter, storage, sampler and counters tell the same, and what they say can be loaded."""
    stats = buffer.stats
    assert stats.stored - stats.evicted == len(buffer)
    check_storage(buffer._storage)
    if isinstance(buffer.admission, FrugalFilter):
        assert np.array_equal(buffer.admission.slots_held(), buffer.slots())
    again = ReplayBuffer.from_state_dict(buffer.state_dict(), type(buffer.admission))
    assert same(again.state_dict(), buffer.state_dict())


INTERRUPTED = [
    ("all", {}),
    ("all", {"sampler": "prioritized", "eviction": "random"}),
    ("random", {"sampler": "prioritized"}),
    ("replace", {}),
    ("replace", {"sampler": "prioritized"}),
    ("discard", {"dtype": "float16"}),
    ("columns", {}),
    ("filter", {}),
    ("filter", {"sampler": "prioritized", "capacity": 17}),
    ("replace", {"capacity": None, "capacity_bytes": 6_000, "sampler": "prioritized"}),
    ("all", {"capacity": None, "capacity_bytes": 3_000, "eviction": "random"}),
]


@pytest.mark.parametrize("number", range(len(INTERRUPTED)))
def test_an_interrupted_add_has_happened_or_not(number: int) -> None:
    """50 interrupts each, 550 in all, at bytecodes drawn at random from a whole `add`."""
    admission, options = INTERRUPTED[number]
    is_exact = admission != "random" and options.get("eviction") != "random"
    generator = np.random.default_rng(number)
    buffer, twin = make(admission, **options), make(admission, **options)
    stream, hits = Stream(), 0
    while hits < 50:
        rows = stream.rows()
        before = buffer.stats.offered
        error = KeyboardInterrupt if generator.random() < 0.5 else MemoryError
        try:
            with Interrupt(int(generator.integers(1, 1500)), error):
                buffer.add(*rows)
        except (KeyboardInterrupt, MemoryError):
            hits += 1
            check_agreement(buffer)
        added = buffer.stats.offered - before
        assert added in (0, 2)
        if added:
            twin.add(*rows)
        if is_exact:
            assert same(tuple(buffer.transitions()), tuple(twin.transitions()))
            assert buffer.stats == twin.stats
    if is_exact:
        assert same(buffer.state_dict(), twin.state_dict())


@pytest.mark.parametrize("eviction", ["oldest", "random"])
@pytest.mark.parametrize("admission", ["all", "replace", "discard", "filter"])
def test_an_interrupted_offer_leaves_a_ledger_and_its_storage_in_step(
    admission: str, eviction: str
) -> None:
    """50 interrupts each, 400 in all: what a filter knows is what somebody else's storage holds."""
    ledger = AdmissionLedger(60, FILTERS[admission](), eviction=eviction)
    shelf = np.full((60, 4), np.nan)
    generator, hits = np.random.default_rng(0), 0
    rows = np.empty((2, 4))

    def write(which: Any, positions: Any) -> None:
        shelf[positions] = rows[which]

    def move(sources: Any, targets: Any) -> None:
        shelf[targets] = shelf[sources]

    while hits < 50:
        rows = generator.random((2, 4)).round(1)
        try:
            with Interrupt(int(generator.integers(1, 1500)), KeyboardInterrupt):
                ledger.offer(rows[:, :3], rows[:, 3], write, move)
        except KeyboardInterrupt:
            hits += 1
        positions = ledger.oldest_first()
        assert sorted(positions) == list(range(len(ledger)))
        known = ledger.state_dict()["admission"].get("phi")
        if known is not None:
            assert np.array_equal(np.sort(known["rewards"]), np.sort(shelf[positions, 3]))
    assert ledger.stats.stored - ledger.stats.evicted == len(ledger)


def test_a_storage_that_cannot_write_does_not_keep_its_ledger_from_going_on() -> None:
    ledger = AdmissionLedger(5, AdmitAll())
    rows = np.zeros((3, 2)), np.zeros(3)
    ledger.offer(*rows, lambda *_: None, lambda *_: None)
    with pytest.raises(ZeroDivisionError):
        ledger.offer(*rows, lambda *_: 1 / 0, lambda *_: None)
    # The third of them had taken the place of the very first row; the last one moved there.
    assert ledger.oldest_first().tolist() == [1, 0]
    outcome = ledger.offer(*rows, lambda *_: None, lambda *_: None)
    assert sorted(outcome.slots) == [2, 3, 4]


def test_signals_that_come_at_any_time_leave_a_buffer_whole() -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    buffer, stream = make("replace", sampler="prioritized"), Stream()
    use(buffer, stream, 30)
    before = signal.signal(signal.SIGALRM, stop)
    generator, hits = np.random.default_rng(0), 0
    tracer = sys.gettrace()
    sys.settrace(None)  # an error raised while the coverage's tracer holds its lock hangs for ever
    try:
        while hits < 100:
            try:
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-4, 2e-3))
                while True:
                    buffer.add(*stream.rows())
            except KeyboardInterrupt:
                hits += 1
            check_agreement(buffer)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        sys.settrace(tracer)


class GivesAllUp(AdmitAll):
    """Gives every slot up again with the very decisions that fill them."""

    def offer(self, observations: Any, rewards: Any, free: Any) -> Any:
        made = super().offer(observations, rewards, free)
        return made._replace(released=made.slots.copy())


def test_an_interrupt_after_all_was_given_up_is_no_end() -> None:
    for at in range(1, 1200, 7):
        buffer = make("all", admission=GivesAllUp(), sampler="prioritized")
        try:
            with Interrupt(at, KeyboardInterrupt):
                buffer.add(*Stream().rows())
        except KeyboardInterrupt:
            assert (len(buffer), buffer.stats.dropped) in ((0, 0), (0, 2))
        buffer.add(*Stream().rows())
        assert len(buffer) == 0


def test_an_interrupted_stream_goes_on() -> None:
    for at in range(1, 900, 7):
        f, stream = FILTERS["replace"](), np.random.default_rng(0)
        f.admit(stream.random((30, 3)), stream.random(30))
        rows = stream.random((4, 3)), stream.random(4)
        try:
            with Interrupt(at, KeyboardInterrupt):
                f.admit(*rows)
        except KeyboardInterrupt:
            f.admit(*rows)
        assert len(f.admit(stream.random((50, 3)), stream.random(50))) == 50


class Nosy(AdmitAll):
    """Looks at the buffer that asks it, as a signal's handler may in the middle of a call."""

    buffer: Any = None

    def offer(self, observations: Any, rewards: Any, free: Any) -> Any:
        if self.buffer is not None:
            len(self.buffer)
        return super().offer(observations, rewards, free)


def test_a_call_that_comes_in_between_is_refused() -> None:
    admission, stream = Nosy(), Stream()
    buffer = make("all", admission=admission)
    buffer.add(*stream.rows())
    admission.buffer = buffer
    with pytest.raises(RuntimeError, match="in the middle of a call"):
        buffer.add(*stream.rows())
    admission.buffer = None
    assert len(buffer) == 4  # the rows count as added, and are now
    buffer.add(*stream.rows())
    assert buffer.stats.stored == 6


# --- threads --------------------------------------------------------------------------------------


class Waiting(AdmitAll):
    """Lets another thread come while it decides."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def offer(self, observations: Any, rewards: Any, free: Any) -> Any:
        self.is_asked.set()
        assert self.may_answer.wait(30)
        return super().offer(observations, rewards, free)


def test_a_second_thread_is_told_so() -> None:
    admission = Waiting()
    buffer = make("all", admission=admission)
    rows = Stream().rows()
    thread = threading.Thread(target=buffer.add, args=rows)
    thread.start()
    try:
        assert admission.is_asked.wait(30)
        for attempt in (lambda: buffer.add(*rows), lambda: buffer.sample(2), buffer.state_dict):
            with pytest.raises(RuntimeError, match="in use by another thread"):
                attempt()
    finally:
        admission.may_answer.set()
        thread.join()
    assert len(buffer) == 2  # and now it is free
    buffer.add(*rows)
    check_agreement(buffer)


def test_threads_that_meet_corrupt_nothing() -> None:
    buffer = make("replace", sampler="prioritized")
    end = time.monotonic() + 1.0
    complaints: list[str] = []

    def work(seed: int) -> None:
        stream = Stream()
        while time.monotonic() < end:
            try:
                buffer.add(*stream.rows())
                batch = buffer.sample(8)
                buffer.feedback(batch.slots, batch.rewards)
            except RuntimeError as error:
                complaints.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("in use by another thread" in complaint for complaint in complaints)
    check_agreement(buffer)


# --- files from strangers -------------------------------------------------------------------------


def forge(path: Path, change: Any) -> None:
    """Change a saved buffer and give it a checksum that fits."""
    make("all").save(path)
    arrays = load_file(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    metadata = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    metadata.pop("checksum")
    change(metadata, arrays)
    save_file(arrays, path, metadata={**metadata, "checksum": _checksum(metadata, arrays)})


def state_with(**changes: Any) -> Any:
    """Change what stands in the state at a path such as storage__slots_allocated."""

    def change(metadata: dict[str, str], arrays: dict[str, Any]) -> None:
        state = json.loads(metadata["state"])
        for path, value in changes.items():
            *folders, name = path.split("__")
            place = state
            for folder in folders:
                place = place[folder]
            place[name] = value
        metadata["state"] = json.dumps(state)

    return change


FORGED = {
    "no kind": lambda metadata, arrays: metadata.pop("kind"),
    "no version": lambda metadata, arrays: metadata.pop("version"),
    "no state": lambda metadata, arrays: metadata.pop("state"),
    "state is a number": lambda metadata, arrays: metadata.update(state="3"),
    "state is no JSON": lambda metadata, arrays: metadata.update(state="{"),
    "deep": lambda metadata, arrays: metadata.update(state="[" * 100_000 + "]" * 100_000),
    "deep and valid": lambda metadata, arrays: metadata.update(
        state='{"a":' * 900 + "1" + "}" * 900
    ),
    "dangling": state_with(storage__slots={"$array": "/nowhere"}),
    "reference to a list": state_with(storage__slots={"$array": []}),
    "slots for the whole memory": state_with(storage__slots_allocated=2**28, capacity=2**28),
    "states for the whole memory": state_with(storage__states_allocated=2**40),
    "many rows": state_with(rows=2**30),
    "huge actions": state_with(action_space={"kind": "MultiBinary", "n": [2**40]}),
    "huge field": state_with(extra_fields=[["big", [2**40], "float32"]]),
    "no actions": state_with(action_space={"kind": "Discrete", "n": 0, "start": 0}),
    "another filter": state_with(admission={"name": "fac", "state": {}}),
    "long warm-up": state_with(
        admission={"name": "random", "state": {"rate": 2.0, "seed": 0}},
    ),
    "a generator of another kind": state_with(generator={"bit_generator": "MT19937"}),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_file_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    path = tmp_path / "buffer.safetensors"
    forge(path, FORGED[case])
    with pytest.raises(StateFileError, match=r"buffer\.safetensors: "):
        ReplayBuffer.load(path)


def test_a_link_is_not_followed_for_writing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    path = tmp_path / "buffer.safetensors"
    os.symlink(secret, path)
    make("all").save(path)
    assert secret.read_text() == "mine"
    assert not path.is_symlink()
    assert len(ReplayBuffer.load(path)) == 0


def test_integer_actions_are_copied_too() -> None:
    buffer = make("all", action_space=Discrete(5))
    action = np.array([2, 3])
    before, _, rewards, after, *flags = Stream().rows()
    buffer.add(before, action, rewards, after, *flags)
    action[...] = 0
    assert buffer.transitions().actions.tolist() == [2, 3]
