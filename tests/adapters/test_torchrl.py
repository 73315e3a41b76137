"""FrugalWriter in TorchRL's replay buffers."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
import torchrl.data
from gymnasium.spaces import Box
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorDictRoundRobinWriter,
)
from torchrl.envs import GymEnv

import frugalrl
from frugalrl.adapters.torchrl import FrugalWriter

STORAGES = [LazyTensorStorage, LazyMemmapStorage, ListStorage]
DISCARD = {"warmup_steps": 10, "bins": 3, "on_equivalent": "discard"}
REPLACE = {"warmup_steps": 10, "bins": 3}


def transitions(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    observation = torch.rand(rows, 2, generator=generator).mul(10).round().div(10)
    return TensorDict(
        {
            "observation": observation,
            "action": torch.rand(rows, 1, generator=generator),
            "next": {
                "observation": observation + 1,
                "reward": torch.rand(rows, 1, generator=generator).mul(10).round().div(10),
                "done": torch.zeros(rows, 1, dtype=torch.bool),
            },
        },
        [rows],
    )


def make(storage=LazyTensorStorage, size=50, kind=TensorDictReplayBuffer, **arguments):
    writer = FrugalWriter(**arguments)
    return kind(storage=storage(size), writer=writer, sampler=RandomSampler(), batch_size=16)


def rows_of(buffer):
    """Everything stored, by slot."""
    return [
        (*row["observation"].tolist(), row["next", "reward"].item()) for row in buffer[:].unbind(0)
    ]


def contents(buffer):
    stored = rows_of(buffer)
    return [stored[slot] for slot in buffer.writer._ledger.oldest_first()]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "arguments",
    [
        REPLACE,
        DISCARD,
        {**REPLACE, "warmup": "filter"},
        {"warmup_steps": 1000},
        {"warmup_steps": 1000, "eviction": "random"},
    ],
)
def test_keeps_what_the_core_buffer_keeps(storage, arguments):
    settings = {name: value for name, value in arguments.items() if name != "eviction"}
    buffer = make(storage, **arguments)
    box = Box(-np.inf, np.inf, (2,))
    core = frugalrl.ReplayBuffer(
        50,
        observation_space=box,
        action_space=Box(0, 1, (1,)),
        eviction=arguments.get("eviction", "oldest"),
        admission=frugalrl.FrugalFilter(**settings),
    )
    for step in range(12):
        data = transitions(20, step)
        buffer.extend(data.clone())
        for row in data:
            core.add(
                row["observation"].numpy()[None],
                row["action"].numpy()[None],
                row["next", "reward"].numpy(),
                row["next", "observation"].numpy()[None],
                [False],
                [False],
            )
    stored = core.transitions()
    expected = np.column_stack([stored.observations, stored.rewards])
    assert buffer.writer.stats == core.stats
    np.testing.assert_array_equal(np.array(contents(buffer), np.float32), expected)
    batch = buffer.sample()
    assert batch.batch_size == (16,)
    assert torch.equal(batch["next", "observation"], batch["observation"] + 1)


@pytest.mark.parametrize("arguments", [REPLACE, DISCARD])
def test_single_transitions_and_batches_agree(arguments):
    single, batched = make(**arguments), make(**arguments)
    data = transitions(150)
    batched.extend(data[:70].clone())
    batched.extend(data[70:].clone())
    for row in data:
        single.add(row.clone())
    assert contents(single) == contents(batched)
    assert single.writer.stats == batched.writer.stats
    assert single.write_count == single.writer.stats.stored + single.writer.stats.replaced


def test_rejected_rows_look_as_torchrl_expects():
    frugal = make(admission=frugalrl.RandomAdmit(0.5, seed=1))
    index = frugal.extend(transitions(30))
    assert index.dtype == torch.long
    assert index.shape == (30,)
    kept = index >= 0
    assert 0 < kept.sum() < 30
    assert torch.equal(index[kept], torch.arange(int(kept.sum())))
    assert set(index[~kept].tolist()) == {-1}
    returned = [frugal.add(row) for row in transitions(20, 2)]
    assert None in returned
    assert any(isinstance(index, int) for index in returned)
    # TorchRL's own selective writer returns the same for what it does not keep.
    best = TensorDictReplayBuffer(
        storage=LazyTensorStorage(1), writer=TensorDictMaxValueWriter(rank_key=("next", "reward"))
    )
    data = transitions(2)
    data["next", "reward"][:] = torch.tensor([[5.0], [1.0]])
    assert best.extend(data).tolist() == [0, -1]
    assert best.add(data[1]) is None


def test_a_row_overwritten_within_its_batch_has_no_index():
    buffer = make(admission=frugalrl.AdmitAll(), size=5)
    assert buffer.extend(transitions(8)).tolist() == [-1, -1, -1, 3, 4, 0, 1, 2]
    assert rows_of(buffer) == [
        (*transitions(8)["observation"][row].tolist(), transitions(8)["next", "reward"][row].item())
        for row in (5, 6, 7, 3, 4)
    ]


def test_admit_all_is_the_round_robin_writer():
    ours = make(admission=frugalrl.AdmitAll())
    theirs = TensorDictReplayBuffer(
        storage=LazyTensorStorage(50), writer=TensorDictRoundRobinWriter(), batch_size=16
    )
    for step in range(7):
        for buffer in (ours, theirs):
            buffer.extend(transitions(20, step))
            buffer.add(transitions(1, 100 + step)[0])
    assert rows_of(ours) == rows_of(theirs)
    assert torch.equal(ours[:]["index"], theirs[:]["index"])
    torch.manual_seed(0)
    one = ours.sample()
    torch.manual_seed(0)
    assert (one == theirs.sample()).all()


@pytest.mark.parametrize("way", ["state_dict", "dumps"])
@pytest.mark.parametrize(
    "arguments",
    [REPLACE, {**REPLACE, "warmup_steps": 100}, {"warmup_steps": 100, "eviction": "random"}],
)
def test_saved_buffers_go_on_identically(way, arguments, tmp_path):
    one = make(size=15, **arguments)
    one.extend(transitions(80))
    other = make(size=15, **arguments)
    if way == "state_dict":
        other.load_state_dict(one.state_dict())
    else:
        one.dumps(tmp_path)
        other.loads(tmp_path)
    assert other.writer.stats == one.writer.stats
    for buffer in (one, other):
        buffer.extend(transitions(100, 1))
    assert one.writer.stats.evicted > 0
    assert contents(one) == contents(other)
    assert one.write_count == other.write_count


def test_refuses_another_writers_state(tmp_path):
    make(**REPLACE).writer.dumps(tmp_path)
    with pytest.raises(ValueError, match="'fac' with capacity 50"):
        make(admission=frugalrl.AdmitAll()).writer.loads(tmp_path)
    (tmp_path / "writer.safetensors").write_bytes(b"damaged")
    with pytest.raises(frugalrl.StateFileError):
        make(**REPLACE).writer.loads(tmp_path)


def test_empty_forgets_the_filter_too():
    buffer = make(**REPLACE)
    buffer.extend(transitions(30))
    assert buffer.writer.admission.is_fitted
    buffer.empty()
    assert len(buffer) == buffer.write_count == 0
    assert not buffer.writer.admission.is_fitted
    buffer.extend(transitions(5))
    assert len(buffer) == 5


def test_several_keys_make_one_observation():
    buffer = make(observation_key=["observation", ("next", "observation")], warmup_steps=4, bins=2)
    buffer.extend(transitions(12))
    assert set(buffer.writer.admission.important_dimensions_) <= {0, 1, 2, 3}
    bounded = make(observation_space=Box(0.0, 4.0, (2,), np.float64), warmup_steps=4)
    bounded.extend(transitions(12))
    low, high = bounded.writer.admission.bounds_
    assert (low[0], high[0]) == (0.0, 4.0)


def test_refuses_nan_but_for_what_follows_an_episode():
    buffer = make(**REPLACE)
    data = transitions(5)
    data["observation"][0] = torch.nan
    data["next", "reward"][1] = torch.inf
    data["action"][2] = torch.nan
    data["next", "observation"][3:] = torch.nan
    data["next", "done"][4] = True
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        index = buffer.extend(data)
    assert index.tolist() == [-1, -1, -1, -1, 0]
    assert buffer.writer.stats.rejected_nonfinite == 4


def test_bad_use_is_named():
    buffer = make(**REPLACE)
    with pytest.raises(ValueError, match="extend takes data with 1 batch"):
        buffer.extend(transitions(6).reshape(2, 3))
    with pytest.raises(ValueError, match="add takes data with 0 batch"):
        buffer.add(transitions(6))
    with pytest.raises(ValueError, match="2 values per transition"):
        make(reward_key="observation", **REPLACE).extend(transitions(3))
    with pytest.raises(TypeError, match="TensorDict"):
        make(kind=ReplayBuffer, **REPLACE).extend(torch.zeros(3))
    with pytest.raises(ValueError, match="ndim=2"):
        TensorDictReplayBuffer(storage=LazyTensorStorage(10, ndim=2), writer=FrugalWriter())
    with pytest.raises(ValueError, match="max_size"):
        TensorDictReplayBuffer(storage=ListStorage(), writer=FrugalWriter())
    full = LazyTensorStorage(10)
    full.set(0, transitions(1)[0])
    with pytest.raises(ValueError, match="already holds 1"):
        TensorDictReplayBuffer(storage=full, writer=FrugalWriter())
    with pytest.raises(TypeError, match="argument='bin' is unknown"):
        FrugalWriter(bin=3)
    with pytest.raises(ValueError, match="eviction='newest' is unknown"):
        FrugalWriter(eviction="newest")


def test_a_collector_fills_the_buffer_and_a_loss_reads_it():
    env = GymEnv("Pendulum-v1")
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(2000),
        writer=FrugalWriter(warmup_steps=100, bins=5, reward_scale=20.0),
        sampler=SamplerWithoutReplacement(),
        batch_size=32,
    )
    torch.manual_seed(0)
    collector = Collector(env, None, frames_per_batch=50, total_frames=400)
    for data in collector:
        buffer.extend(data.reshape(-1))
    collector.shutdown()
    stats = buffer.writer.stats
    assert stats.offered == 400
    assert stats.replaced > 0
    assert len(buffer) == stats.stored < 400
    value = torch.nn.Linear(3, 1)
    batch = buffer.sample()
    loss = (value(batch["observation"]) - batch["next", "reward"]).square().mean()
    loss.backward()
    assert torch.isfinite(value.weight.grad).all()


def test_a_fork_may_not_write(monkeypatch):
    buffer = make(**REPLACE)
    buffer.extend(transitions(5))
    owner = os.getpid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: owner + 1)  # as it is in a forked child
        with pytest.raises(RuntimeError, match=f"belongs to process {owner}"):
            buffer.extend(transitions(5, 1))
    buffer.extend(transitions(5, 2))
    assert buffer.writer.stats.offered == 10


def test_a_copy_belongs_to_whoever_reads_it(monkeypatch):
    buffer = make(**REPLACE)
    buffer.extend(transitions(15))
    written, owner = pickle.dumps(buffer), os.getpid()
    buffer.extend(transitions(5, 1))
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)  # as it is in another process
    read = pickle.loads(written)  # noqa: S301
    read.extend(transitions(5, 1))
    assert read.writer.stats == buffer.writer.stats
    assert read[:]["observation"].equal(buffer[:]["observation"])


def test_bfloat16_is_read():
    buffer, data = make(**REPLACE), transitions(5)
    data["observation"] = data["observation"].bfloat16()
    buffer.extend(data)
    assert len(buffer) == 5


@pytest.mark.parametrize("sampler", [SliceSampler, SliceSamplerWithoutReplacement])
def test_samplers_of_sequences_are_refused(sampler):
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(50), writer=FrugalWriter(**REPLACE), sampler=sampler(slice_len=2)
    )
    with pytest.raises(ValueError, match=f"{sampler.__name__} reads the neighbours"):
        buffer.extend(transitions(10))
    assert len(buffer) == 0


@pytest.mark.skipif(not hasattr(torchrl.data, "HERReplayBuffer"), reason="of later versions")
@pytest.mark.parametrize("name", ["Sequence", "HERReplayBuffer"])
def test_what_reads_neighbours_of_a_drawn_index_is_refused(name):
    parts = {"storage": LazyTensorStorage(50), "writer": FrugalWriter(**REPLACE), "batch_size": 4}
    if name == "Sequence":
        buffer = TensorDictReplayBuffer(sample_unit=torchrl.data.Sequence(4), **parts)
    else:
        buffer = torchrl.data.HERReplayBuffer(lambda batch: batch["next", "reward"], **parts)
    with pytest.raises(ValueError, match=f"{name} reads the neighbours"):
        buffer.extend(transitions(10))
    assert len(buffer) == 0


def test_a_filtered_warmup_is_refused_with_priorities(monkeypatch):
    buffer = make(warmup="filter", **REPLACE)
    # Its compiled part is not there for every version of PyTorch; the kind is what counts here.
    monkeypatch.setattr(buffer, "_sampler", object.__new__(PrioritizedSampler))
    with pytest.raises(ValueError, match='warmup="keep"'):
        buffer.extend(transitions(5))
    assert len(buffer) == 0


@pytest.mark.parametrize("on_equivalent", ["replace", "discard"])
def test_priorities_are_those_of_what_is_stored(on_equivalent):
    try:
        sampler = PrioritizedSampler(200, alpha=0.7, beta=0.5)
    except RuntimeError as error:
        pytest.skip(f"TorchRL's compiled part does not load: {error}")
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(200),
        sampler=sampler,
        writer=FrugalWriter(**{**REPLACE, "on_equivalent": on_equivalent}),
        priority_key="td_error",
        batch_size=32,
    )
    held = None
    for step in range(20):
        buffer.extend(transitions(30, step))
        batch = buffer.sample()
        held = batch if step == 1 else held
        for drawn in (batch, held) if step == 10 else (batch,):
            drawn["td_error"] = torch.rand(32)
            buffer.update_tensordict_priority(drawn)
    assert buffer.writer.stats.stored < buffer.writer.stats.offered
    priorities = torch.tensor([sampler._sum_tree[index] for index in range(200)])
    assert (priorities[: len(buffer)] > 0).all()
    assert (priorities[len(buffer) :] == 0).all()


def test_indices_stay_where_they_are_when_the_warmup_ends():
    """A batch drawn before may be given back after, with priorities for instance."""
    buffer = make(size=60, **{**REPLACE, "warmup_steps": 40})
    buffer.extend(transitions(30))
    before = rows_of(buffer)
    buffer.extend(transitions(20, 1))
    assert buffer.writer.admission.is_fitted
    assert buffer.writer.stats.replaced < 10
    same = sum(one == other for one, other in zip(before, rows_of(buffer), strict=False))
    assert same >= 30 - buffer.writer.stats.replaced


@pytest.mark.parametrize("storage", STORAGES)
def test_an_interrupt_while_rows_move_loses_nothing(storage, monkeypatch):
    """The filtered warm-up gives slots up, whose gaps are closed before rows are written."""
    buffer = make(storage, size=40, warmup="filter", **DISCARD)
    buffer.extend(transitions(8))
    written = buffer.storage.set

    def interrupted(*arguments, **options):
        monkeypatch.setattr(buffer.storage, "set", written)
        raise KeyboardInterrupt

    move = buffer.writer._move
    calls = []

    def noted(sources, targets):
        if not calls:
            monkeypatch.setattr(buffer.storage, "set", interrupted)
        calls.append(len(sources))
        move(sources, targets)

    monkeypatch.setattr(buffer.writer, "_move", noted)
    held = set(rows_of(buffer))
    with pytest.raises(KeyboardInterrupt):
        buffer.extend(transitions(20, 1))
    assert len(calls) == 1
    buffer.extend(transitions(1, 2))
    assert len(buffer) == len(buffer.writer._ledger) > 1
    assert len(set(rows_of(buffer)) & held) > 1


def test_torch_load_reads_the_state_with_its_safe_default(tmp_path):
    random = {"admission": frugalrl.RandomAdmit(0.8), "eviction": "random"}
    for arguments in (REPLACE, {"admission": frugalrl.RandomAdmit(0.5)}, random):
        one, other = make(**arguments), make(**arguments)
        one.extend(transitions(40))
        torch.save(one.writer.state_dict(), tmp_path / "writer.pt")
        other.storage.load_state_dict(one.storage.state_dict())
        other.writer.load_state_dict(torch.load(tmp_path / "writer.pt", weights_only=True))
        for buffer in (one, other):
            buffer.extend(transitions(60, 1))
        assert one.writer.stats == other.writer.stats
        assert contents(one) == contents(other)


def test_a_missing_entry_is_named_with_those_that_are_there():
    buffer = make(observation_key="pixels", **REPLACE)
    with pytest.raises(
        KeyError, match=r"no entry 'pixels'; there are .*'observation'.*reward_key="
    ):
        buffer.extend(transitions(3))
