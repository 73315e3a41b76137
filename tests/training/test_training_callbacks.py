"""Callbacks hear of a run and may end it; runs start from policies, buffers and data."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import frugalrl
from frugalrl.state_io import load_state
from frugalrl.training import ConfigError, RunDirectoryError, resume, train
from frugalrl.training.callbacks import Callback
from frugalrl.training.run_directory import KIND, VERSION


class Listener(Callback):
    def __init__(self, stop_at=None):
        self.heard, self.stop_at = [], stop_at

    def on_metrics(self, run, row):
        self.heard.append(("row", run.env_steps, row["env_steps"]))
        if self.stop_at is not None and run.env_steps >= self.stop_at:
            run.stop("enough")

    def on_evaluation(self, run, episodes):
        assert run.evaluations[-1] == (run.env_steps, episodes.mean)
        self.heard.append(("evaluation", run.env_steps, run.policy(np.zeros(2)).shape))

    def on_checkpoint(self, run, path):
        assert path.is_file()
        self.heard.append(("checkpoint", run.env_steps, path.name))


def test_callbacks_hear_everything_and_change_nothing(tiny, tmp_path):
    listener = Listener()
    heard = train(tiny(out=tmp_path / "run"), callbacks=[listener])
    assert heard.fingerprint == train(tiny()).fingerprint
    kinds = [(kind, step) for kind, step, _ in listener.heard]
    assert [step for kind, step in kinds if kind == "evaluation"] == [80, 160, 240]
    assert [step for kind, step in kinds if kind == "row"] == [50, 80, 130, 160, 210, 240]
    assert ("checkpoint", 100) in kinds


def test_a_callback_ends_a_run_which_can_be_prolonged(tiny, tmp_path):
    said = []
    short = train(tiny(out=tmp_path / "run"), callbacks=[Listener(stop_at=130)], say=said.append)
    assert short.env_steps == 130
    assert short.final is not None
    assert "ending at step 130: enough" in said
    assert resume(tmp_path / "run", steps=240).fingerprint == train(tiny()).fingerprint


def test_a_reward_or_a_time_ends_a_run(tiny):
    assert train(tiny(stop_reward=-1e9)).env_steps == 80
    assert train(tiny(stop_seconds=1e-9)).env_steps == 50
    assert train(tiny(stop_reward=1e9, stop_seconds=1e6)).env_steps == 240
    with pytest.raises(ConfigError, match="stop_reward=nan"):
        train(tiny(stop_reward=float("nan")))


def test_a_run_goes_on_when_nobody_reads_along_any_more(tiny, tmp_path):
    heard = []

    def say(line):
        heard.append(line)
        raise BrokenPipeError

    result = train(tiny(out=tmp_path / "run", quiet=False), say=say)
    assert result.fingerprint == train(tiny()).fingerprint
    assert len(heard) == 1
    assert "files: " in (tmp_path / "run" / "run.log").read_text()


def test_the_best_policy_is_kept(tiny, tmp_path, interrupt):
    interrupt(170)
    with pytest.raises(frugalrl.training.TrainingInterrupted):
        train(tiny(out=tmp_path / "run"))
    interrupt(None)
    result = resume(tmp_path / "run")
    best = max(mean for _, mean in result.evaluations)
    policy = frugalrl.load_policy(tmp_path / "run" / "policy-best.safetensors")
    again = frugalrl.evaluate(policy, "FrugalPoint-v0", episodes=2, seed=2_000_000)
    assert again.mean == best
    train(tiny(out=tmp_path / "other", save_best=False))
    assert not (tmp_path / "other" / "policy-best.safetensors").exists()


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_starting_from_an_earlier_run(algo, tiny, tmp_path):
    first = train(tiny(algo=algo, out=tmp_path / "first"))
    quiet = {"algo": algo, "eval_every": 0, "seed": 1, "steps": 61, "learning_starts": 60}
    for source, words in (("first", "all networks"), ("first/policy.safetensors", "the actor")):
        said = []
        config = tiny(init_policy=tmp_path / source, out=tmp_path / words, **quiet)
        second = train(config, say=said.append)
        assert any(f"starting with {words}" in line for line in said)
        # One update away from where the first run ended.
        moved = np.abs(second.policy.parameters - first.policy.parameters)
        assert 0 <= moved.max() < 0.01
    with pytest.raises(ConfigError, match="does not fit: its actor has"):
        train(
            tiny(init_policy=tmp_path / "first", net_arch=(4, 4), out=tmp_path / "never", **quiet)
        )
    assert not (tmp_path / "never").exists()
    with pytest.raises(ConfigError, match="does not exist"):
        train(tiny(init_policy=tmp_path / "nowhere"))


def test_networks_begin_with_the_statistics_that_they_learned_by(tiny, tmp_path):
    train(tiny(normalize="obs", out=tmp_path / "first"))
    quiet = {"eval_every": 0, "steps": 61, "learning_starts": 60, "init_policy": tmp_path / "first"}
    train(tiny(normalize="obs", out=tmp_path / "second", **quiet))
    seen = [
        load_state(tmp_path / run / "state.safetensors", kind=KIND, version=VERSION)["loop"]
        for run in ("first", "second")
    ]
    before, after = (loop["normalizer"]["observations"]["count"] for loop in seen)
    assert after == pytest.approx(before + 62)
    for wrong in ({"normalize": "none"}, {"normalize": "reward"}):
        with pytest.raises(ConfigError, match="learned from normalized observations"):
            train(tiny(**{**quiet, **wrong}))
    alone = {**quiet, "init_policy": tmp_path / "first" / "policy.safetensors"}
    with pytest.raises(ConfigError, match="give the directory of its run"):
        train(tiny(normalize="obs", **alone))
    train(tiny(out=tmp_path / "plain"))
    with pytest.raises(ConfigError, match="learned from plain observations"):
        train(tiny(normalize="obs", **{**quiet, "init_policy": tmp_path / "plain"}))


def test_starting_from_a_buffer(tiny, tmp_path):
    first = train(tiny(out=tmp_path / "first"))
    second = train(tiny(init_buffer=tmp_path / "first", seed=1))
    assert second.buffer.stats.offered == 480
    old, new = first.buffer.transitions(), second.buffer.transitions()
    np.testing.assert_array_equal(old.observations, new.observations[:240])
    np.testing.assert_array_equal(old.actions, new.actions[:240])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match=r"no buffer\.safetensors"):
        train(tiny(init_buffer=tmp_path / "empty"))


def _dataset(rows=30):
    generator = np.random.default_rng(0)
    return {
        "observations": generator.normal(size=(rows, 2)),
        "actions": generator.uniform(-2, 2, (rows, 1)),
        "rewards": generator.normal(size=rows),
        "terminals": np.arange(rows) % 10 == 9,
        "timeouts": np.arange(rows) % 10 == 4,
    }


def test_starting_from_data(tiny, tmp_path):
    data = _dataset()
    np.savez(tmp_path / "data.npz", **data)
    for source in (data, tmp_path / "data.npz"):
        held = train(tiny(init_buffer=source)).buffer.transitions()
        # Rows that were cut off have no next observation, and are left out.
        assert len(held.rewards) == 240 + 27
        kept = ~data["timeouts"]
        np.testing.assert_allclose(held.rewards[:27], data["rewards"][kept], rtol=1e-6)
        np.testing.assert_allclose(held.actions[:27], data["actions"][kept] / 2, rtol=1e-6)
        np.testing.assert_array_equal(held.terminated[:27], data["terminals"][kept])
        following = data["observations"][1:5]
        np.testing.assert_allclose(held.next_observations[:4], following, rtol=1e-6)
    for changes, message in (
        ({"rewards": data["rewards"][:5]}, "has 30 rows, rewards 5"),
        ({"rewards": 5.0}, "has 30 rows, rewards 1"),
        ({"rewards": data["rewards"][:, None]}, r"rewards has shape \(27, 1\), not \(27,\)"),
        ({"rewards": np.array(["much"] * 30)}, "rewards cannot be read: could not convert"),
        ({"observations": np.zeros((30, 3))}, r"shape \(27, 3\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(tiny(init_buffer={**data, **changes}, out=tmp_path / "never"))
    assert not (tmp_path / "never").exists()
    with pytest.raises(ConfigError, match="has no actions"):
        train(tiny(init_buffer={"observations": data["observations"]}))
    wide = gymnasium.spaces.Box(-2, 2, (2,))
    with pytest.raises(ConfigError, match=r"actions has shape \(27, 3\), not \(27, 2\)"):
        train(
            tiny(
                env="FrugalSpaces-v0",
                env_kwargs={"action": wide},
                init_buffer={**data, "actions": np.zeros((30, 3))},
            )
        )
    nothing = {name: values[:0] for name, values in data.items()}
    assert len(train(tiny(init_buffer=nothing)).buffer) == 240
    for content in (b"no", (tmp_path / "data.npz").read_bytes()[:-40]):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read"):
            train(tiny(init_buffer=tmp_path / "bad.npz"))
