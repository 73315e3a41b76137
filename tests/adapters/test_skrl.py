"""FrugalMemory against skrl's own memory and the core."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from skrl.memories.torch import RandomMemory

import frugalrl
from frugalrl.adapters.skrl import FrugalMemory

SIZES = {"observations": 3, "actions": 2, "rewards": 1, "next_observations": 3, "terminated": 1}
NAMES = list(SIZES)


def create(memory):
    for name, size in SIZES.items():
        kind = torch.bool if name == "terminated" else torch.float32
        memory.create_tensor(name, size=size, dtype=kind)
    return memory


def make(environments=4, rows=50, **arguments):
    return create(FrugalMemory(memory_size=rows, num_envs=environments, device="cpu", **arguments))


def steps(count, environments, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        given = {
            name: torch.rand(environments, size, generator=generator).mul(5).round().div(5)
            for name, size in SIZES.items()
        }
        given["terminated"] = given["terminated"] > 0.9
        yield given


def contents(memory):
    order = memory._ledger.oldest_first()
    columns = [memory.tensors_view[name][order].float() for name in NAMES]
    return torch.cat(columns, dim=1).tolist()


@pytest.mark.parametrize("environments", [1, 4])
def test_admit_all_keeps_and_draws_what_skrls_memory_does(environments):
    ours = make(environments, 20, admission=frugalrl.AdmitAll())
    theirs = create(
        RandomMemory(memory_size=20, num_envs=environments, device="cpu", replacement=True)
    )
    for given in steps(33, environments):
        for memory in (ours, theirs):
            memory.add_samples(**given, something_else=torch.zeros(environments, 1))
        assert len(ours) == len(theirs)
    drawn = []
    for memory in (ours, theirs):
        torch.manual_seed(1)
        drawn.append(memory.sample(NAMES, batch_size=64, mini_batches=2))
    for one, other in zip(*drawn, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert ours.filled


@pytest.mark.parametrize(
    "arguments",
    [
        {"warmup_steps": 40, "bins": 3},
        {"warmup_steps": 40, "bins": 3, "on_equivalent": "discard"},
        {"warmup_steps": 40, "bins": 3, "warmup": "filter"},
        {"warmup_steps": 40, "bins": 3, "on_equivalent": "discard", "eviction": "random"},
    ],
)
def test_keeps_what_the_core_keeps(arguments):
    settings = {name: value for name, value in arguments.items() if name != "eviction"}
    memory = make(4, 30, **arguments)
    core = frugalrl.ReplayBuffer(
        120,
        observation_space=Box(-np.inf, np.inf, (3,)),
        action_space=Box(0, 1, (2,)),
        eviction=arguments.get("eviction", "oldest"),
        admission=frugalrl.FrugalFilter(**settings),
    )
    for given in steps(90, 4):
        memory.add_samples(**given)
        values = {name: tensor.numpy() for name, tensor in given.items()}
        core.add(
            values["observations"],
            values["actions"],
            values["rewards"][:, 0],
            values["next_observations"],
            values["terminated"][:, 0],
            np.zeros(4, np.bool_),
        )
    stored = core.transitions()
    assert memory.stats == core.stats
    expected = np.column_stack(
        [
            stored.observations,
            stored.actions,
            stored.rewards,
            stored.next_observations,
            stored.terminated,
        ]
    )
    np.testing.assert_array_equal(np.array(contents(memory), np.float32), expected)


def test_thousands_of_environments_at_once():
    memory = make(4096, 4, warmup_steps=5_000, bins=3)
    for given in steps(5, 4096):
        memory.add_samples(**given)
    assert memory.stats.offered == 5 * 4096
    assert memory.stats.replaced > 10_000
    assert memory.sample(["observations"], batch_size=512)[0][0].shape == (512, 3)
    assert not torch.isnan(memory.sample(["rewards"], batch_size=4_096)[0][0]).any()


@pytest.mark.parametrize("eviction", ["oldest", "random"])
def test_goes_on_identically_from_a_state(eviction, tmp_path):
    one, other = (make(4, 20, warmup_steps=30, bins=3, eviction=eviction) for _ in range(2))
    for given in steps(30, 4):
        one.add_samples(**given)
    torch.save(one.state_dict(), tmp_path / "memory.pt")
    other.load_state_dict(torch.load(tmp_path / "memory.pt", weights_only=True))
    for memory in (one, other):
        for given in steps(30, 4, seed=1):
            memory.add_samples(**given)
    assert one.stats == other.stats
    assert contents(one) == contents(other)
    assert other.eviction == eviction
    bare = FrugalMemory(memory_size=20, num_envs=4, device="cpu")
    with pytest.raises(ValueError, match="create the same first"):
        bare.load_state_dict(one.state_dict())


def test_rows_that_are_not_finite_are_refused():
    memory, (given,) = make(4, 10, admission=frugalrl.AdmitAll()), steps(1, 4)
    given["next_observations"][1, 2] = torch.nan
    given["actions"][3, 0] = torch.inf
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        memory.add_samples(**given)
    assert memory.stats.rejected_nonfinite == len(memory) == 2
    assert memory.tensors_view["next_observations"][:2].isfinite().all()


def test_a_state_of_other_tensors_is_refused_and_nothing_changes():
    other = create(FrugalMemory(memory_size=10, num_envs=4, device="cpu"))
    for given in steps(2, 4):
        other.add_samples(**given)
    state = other.state_dict()
    state["tensors"]["observations"] = state["tensors"]["observations"][:, :2]
    memory = make(4, 10, admission=frugalrl.AdmitAll())
    with pytest.raises(ValueError, match=r"'observations' has shape \(8, 2\)"):
        memory.load_state_dict(state)
    assert len(memory) == len(memory._ledger) == 0


def test_bad_use_is_named():
    with pytest.raises(ValueError, match="eviction='newest' is unknown"):
        make(eviction="newest")
    memory = make(2, 10, warmup_steps=5)
    with pytest.raises(ValueError, match="empty"):
        memory.sample(NAMES, batch_size=2)
    with pytest.raises(ValueError, match="no 'rewards' that was created"):
        memory.add_samples(observations=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="2 observations"):
        memory.add_samples(observations=torch.zeros(2, 3), rewards=torch.zeros(3, 1))
    with pytest.raises(TypeError, match="argument='bin' is unknown"):
        make(2, 10, bin=3)
    with pytest.raises(ValueError, match="export=True"):
        make(2, 10, export=True)
    memory.add_samples(observations=torch.zeros(3), rewards=torch.zeros(1))
    assert len(memory) == 1
    with pytest.raises(NotImplementedError, match="sequence_length=3"):
        memory.sample(NAMES, batch_size=2, sequence_length=3)
    with pytest.raises(NotImplementedError, match="off-policy"):
        memory.sample_all(NAMES)
    memory.reset()
    assert len(memory) == 0
    assert not memory.admission.is_fitted
