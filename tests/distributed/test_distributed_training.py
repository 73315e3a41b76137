"""One run with actors on a real Ray: to its end, through deaths, and from its checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import distributed_worlds  # noqa: F401
import gymnasium
import numpy as np
import pytest

from frugalrl import FrugalFilter
from frugalrl.distributed.fleet import ActorSettings
from frugalrl.distributed.training import resume, train
from frugalrl.replay.buffer import ReplayBuffer
from frugalrl.state_io import load_state
from frugalrl.training import load_policy
from frugalrl.training import resume as resume_here
from frugalrl.training.errors import ConfigError, RunDirectoryError
from frugalrl.training.run_directory import KIND, VERSION

pytestmark = pytest.mark.xdist_group("ray")


def test_a_run_with_actors_is_a_run(cluster, tiny, tmp_path, admitted, capsys):
    config = tiny(steps=600, admission="fac", out=tmp_path / "run", train_freq=4, gradient_steps=2)
    result = train(config, ActorSettings(2, fragment_steps=16), say=print)
    assert result.env_steps == 600 == result.buffer.stats.offered
    assert result.updates == (600 - 60) // 4 * 2
    assert result.measures["update_ratio"] == 0.5 == result.measures["update_ratio_configured"]
    assert result.measures["bytes_per_step"] > 16
    assert result.measures["publications"] > 1
    assert {actor for actor, _ in admitted} == {0, 1}
    assert len(admitted) == len(set(admitted)) == result.measures["fragments"]
    assert len(result.evaluations) == 7
    # Everything that a run leaves, it leaves.
    assert json.loads((config.out / "actors.json").read_text())["actors"] == 2
    assert len(ReplayBuffer.load(config.out / "buffer.safetensors")) == len(result.buffer)
    observation = np.zeros(2, np.float32)
    np.testing.assert_array_equal(load_policy(config.out)(observation), result.policy(observation))
    steps = [row["env_steps"] for row in result.metrics]
    assert steps == sorted(steps)
    assert steps[-1] == 600
    told = capsys.readouterr().out
    assert "2 actors: " in told
    assert "updates for each step: 0.500 (configured: 0.5)" in told
    with pytest.raises(RunDirectoryError, match="finished"):
        resume(config.out)


def test_actors_that_die_or_hang_in_mid_fragment_are_started_again(
    cluster, tiny, tmp_path, admitted
):
    # One actor hangs in its second fragment; each other life ends in the middle of the third.
    fault = {"env_kwargs": {"marker": str(tmp_path / "hung")}, "worker_timeout": 2.0}
    quiet = {"eval_every": 0, "final_episodes": 0}
    config = tiny(steps=120, env="distributed_worlds:FrugalDoomed-v0", **fault, **quiet)
    lines = []
    result = train(config, ActorSettings(2, fragment_steps=16), say=lines.append)
    assert any("has not answered for 2 s and is killed" in line for line in lines)
    assert sum("died and is started again" in line for line in lines) >= 2
    assert result.measures["restarts"] >= 2
    assert result.measures["lost"] >= 2
    assert result.measures["duplicates"] == 0
    assert len(admitted) == len(set(admitted))
    assert result.env_steps == 120 == result.buffer.stats.offered
    assert result.updates == 60


def test_a_killed_learner_goes_on_from_its_checkpoint(cluster, tmp_path, admitted):
    out, go = tmp_path / "run", tmp_path / "go"
    words = [
        *("train", "distributed_worlds:FrugalHeld-v0", "--actors", "2"),
        *("--env-kwargs", json.dumps({"until": str(go)})),
        *("--address", cluster.address, "--out", str(out), "--steps", "600"),
        *("--learning-starts", "60", "--batch-size", "16", "--net-arch", "8", "8"),
        *("--eval-every", "0", "--final-episodes", "1", "--checkpoint-every", "64"),
        *("--no-tensorboard", "--quiet"),
    ]
    learner = subprocess.Popen([sys.executable, "-m", "frugalrl.cli", *words])
    try:
        begun = time.monotonic()
        while not list(out.glob("checkpoints/step-*")):
            assert learner.poll() is None
            assert time.monotonic() - begun < 120
            time.sleep(0.02)
    finally:
        learner.kill()
        learner.wait()
    go.touch()
    assert not (out / "final.json").exists()
    newest = max(out.glob("checkpoints/step-*"))
    state = load_state(newest, KIND, VERSION)["loop"]
    before = {
        (actor, number)
        for actor, last in enumerate(state["ledger"]["next"])
        for number in range(last)
        if number not in state["ledger"]["open"][actor]
    }
    assert len(before) == state["measures"]["fragments"] > 0
    with pytest.raises(RunDirectoryError, match="actors"):
        resume_here(out)
    result = resume(out)
    assert result.env_steps == 600 == result.buffer.stats.offered
    assert result.updates == 540
    assert not before & set(admitted)
    assert len(admitted) == len(set(admitted))
    # What was under way when the learner died is asked for again, under the same numbers.
    again = {(a, n) for a, numbers in enumerate(state["ledger"]["open"]) for n in numbers}
    assert again <= set(admitted)
    assert result.measures["fragments"] == len(before) + len(admitted)


def test_buffers_and_filters_go_through_ray(cluster):
    import ray

    def stream(seed: int, count: int = 300):
        rng = np.random.default_rng(seed)
        states = rng.normal(size=(count, 3)).astype(np.float32)
        actions = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
        over = np.zeros(count, bool)
        return states, actions, rng.normal(size=count), states + 1, over, over

    def go_on(buffer, own_filter):
        # What comes from Ray's object store is read-only memory, until it is copied.
        buffer.extend(*stream(1))
        states, _, rewards, *_ = stream(1)
        decided = own_filter.offer(states, rewards, np.arange(2_000, 2_300))
        return buffer, decided.codes, buffer.sample(32).rewards

    here = ReplayBuffer(
        1_000,
        observation_space=gymnasium.spaces.Box(-9, 9, (3,)),
        action_space=gymnasium.spaces.Box(-1, 1, (1,)),
        admission=FrugalFilter(warmup_steps=200),
        seed=0,
    )
    here.extend(*stream(0))
    there = ray.get(ray.remote(go_on).remote(here, here.admission))
    again, codes, drawn = go_on(ray.get(ray.put(here)), ray.get(ray.put(here.admission)))
    np.testing.assert_array_equal(there[1], codes)
    np.testing.assert_array_equal(there[2], drawn)
    _, _, expected = go_on(here, FrugalFilter.from_state_dict(here.admission.state_dict()))
    np.testing.assert_array_equal(drawn, expected)
    assert len(there[0]) == len(again) == len(here)
    there[0].extend(*stream(2))


def test_ray_listens_on_loopback_alone_whoever_imported_it_first(cluster):
    import ray

    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}


def test_more_actors_than_the_cluster_has_are_refused_at_once(cluster, tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"actors=3 need a processor each.*has 2"):
        train(tiny(out=tmp_path / "run"), ActorSettings(3))
    assert not (tmp_path / "run").exists()
