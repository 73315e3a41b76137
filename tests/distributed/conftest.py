"""Shared by the tests of distribution: tiny runs, and one Ray of several nodes for all of them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The small environments and runs of the training tests, for actors in other processes too.
_HERE = Path(__file__).resolve().parent
_WORLDS = [str(_HERE), str(_HERE.parent / "training")]
sys.path += [path for path in _WORLDS if path not in sys.path]

import training_worlds  # noqa: E402
from training_tiny import TINY  # noqa: E402

training_worlds.register()


@pytest.fixture
def tiny():
    """Give a configuration of a run that takes a moment, with changes."""

    def make(**changes):
        if changes.get("admission") == "fac":
            changes.setdefault("fac_warmup_steps", 100)
        return dataclasses.replace(TINY, **changes)

    return make


@pytest.fixture
def make_loop(tiny, monkeypatch):
    """Give a function that makes a learner and its actors, here."""
    from inline_ray import InlineRay

    from frugalrl.agents import make_agent
    from frugalrl.distributed.fleet import ActorSettings, Fleet
    from frugalrl.distributed.training import LearnerLoop
    from frugalrl.replay.buffer import ReplayBuffer
    from frugalrl.training.config import agent_settings, resolve
    from frugalrl.training.runner import Seeds, make_buffer, make_factory

    def make(ray=None, state=None, **changes):
        names = ActorSettings.__dataclass_fields__
        own = {name: changes.pop(name) for name in list(changes) if name in names}
        settings = ActorSettings(**{"actors": 2, "fragment_steps": 20, **own})
        config = resolve(tiny(**changes)).config
        factory = make_factory(config)
        told: list[str] = []
        fleet = Fleet(ray or InlineRay(), config, factory, settings.actors, told.append)
        agent = make_agent(agent_settings(config), *factory.spaces(), 0, config.envs)
        if state is None:
            buffer = make_buffer(config, factory.spaces(), Seeds.draw(config.seed, config.envs))
        else:
            buffer = ReplayBuffer.from_state_dict(state["buffer"])
        loop = LearnerLoop(config, settings, fleet, agent, buffer)
        loop.told = told
        if state is not None:
            loop.load_state_dict(state)
        return loop

    return make


@pytest.fixture
def admitted(monkeypatch):
    """Collect the names of the fragments that were admitted."""
    from frugalrl.distributed.training import LearnerLoop

    names = []
    admit = LearnerLoop._admit

    def note(self, fragment):
        before = self.measures.fragments
        admit(self, fragment)
        if self.measures.fragments > before:
            names.append((fragment.actor, fragment.sequence))

    monkeypatch.setattr(LearnerLoop, "_admit", note)
    return names


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """Let processes that tests start find the environments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*_WORLDS, os.environ.get("PYTHONPATH", "")]))
        yield


@pytest.fixture(scope="session")
def cluster(_environment) -> Iterator[Any]:
    """Give Ray's own cluster of several nodes on one machine, and be connected to it.

    The head offers no processor, so every node that does can be taken away.
    """
    import ray
    from ray.cluster_utils import Cluster

    from frugalrl.distributed.cluster import _loopback

    health = {"initial_delay_ms": 0, "period_ms": 500, "failure_threshold": 6}
    system = {f"health_check_{name}": value for name, value in health.items()}
    # Workers that wait for the next test are not ended meanwhile: to start one takes seconds.
    system |= {"num_workers_soft_limit": 2, "idle_worker_killing_time_threshold_ms": 600_000}
    with _loopback():
        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": 80_000_000,
                "include_dashboard": False,
                # Beside other tests on few processors, workers that stand back never end.
                "_system_config": {**system, "worker_niceness": 0},
            },
        )
        made.add_node(num_cpus=2, object_store_memory=80_000_000)
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        try:
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
