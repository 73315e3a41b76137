"""Files, checkpoints, logging and evaluation leave no trace in training."""

from __future__ import annotations

import random

import numpy as np
import pytest

from frugalrl.training import train

WORLDS = (
    *("FrugalNormalized-v0", "FrugalStacked-v0", "FrugalNormalizedOpaque-v0"),
    *("FrugalNormalizedHoarder-v0", "FrugalShared-v0", "FrugalSampling-v0", "FrugalGlobal-v0"),
    *("FrugalOpaque-v0", "FrugalHoarder-v0", "FrugalTurning-v0", "FrugalScribbling-v0"),
    *("BipedalWalker-v3", "LunarLanderContinuous-v3", "Pendulum-v1"),
)


def _seed_global_generators():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002


@pytest.mark.parametrize("env", WORLDS)
def test_a_run_is_the_same_with_and_without_files(env, tiny, tmp_path):
    config = {"env": env, "preset": "none", "steps": 150, "batch_size": 8}
    silent = {"eval_every": 0, "final_episodes": 0, "checkpoint_every": 0, "log_every": 10**6}
    busy = {
        "eval_every": 70,
        "eval_episodes": 1,
        "checkpoint_every": 20,
        "log_every": 10,
        "tensorboard": True,
    }
    _seed_global_generators()
    alone = train(tiny(**config, **silent))
    _seed_global_generators()
    recorded = train(tiny(**config, **busy, out=tmp_path / "run"))
    assert alone.fingerprint == recorded.fingerprint
    np.testing.assert_array_equal(alone.policy.parameters, recorded.policy.parameters)


def test_workers_are_the_same_with_and_without_files(tiny, tmp_path):
    config = {"env": "FrugalNormalized-v0", "envs": 2, "workers": "async", "steps": 150}
    alone = train(tiny(**config))
    recorded = train(tiny(**config, checkpoint_every=20, log_every=10, out=tmp_path / "run"))
    assert alone.fingerprint == recorded.fingerprint


def test_an_environment_and_the_buffer_share_no_array(tiny):
    scribbling = train(tiny(env="FrugalScribbling-v0"))
    held = scribbling.buffer.transitions()
    assert np.abs(held.actions).min() > 0
    np.testing.assert_array_equal(held.actions, train(tiny()).buffer.transitions().actions)
    several = train(tiny(env="FrugalScribbling-v0", envs=3)).buffer.transitions()
    assert np.abs(several.actions).min() > 0
    assert len(np.unique(several.observations, axis=0)) > 200
