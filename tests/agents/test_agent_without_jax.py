"""Everything but ``engine="jax"`` works where JAX is not installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from frugalrl import TrainConfig
from frugalrl.agents.settings import check_engine
from frugalrl.training import ConfigError
from frugalrl.training.config import resolve

BLOCKED = ("jax", "jaxlib", "optax")

RUN = """
import sys
for name in {blocked}:
    sys.modules[name] = None  # makes an import fail as if it were not installed
import numpy as np
import frugalrl
from frugalrl import cli

out = sys.argv[1]
config = frugalrl.TrainConfig(
    env="Pendulum-v1", algo="sac", admission="fac", fac_warmup_steps=100, sampler="prioritized",
    steps=260, learning_starts=150, net_arch=(8, 8), batch_size=16, eval_every=0,
    final_episodes=1, quiet=True, out=out,
)
result = frugalrl.train(config)
assert result.metrics[-1]["updates"] > 0
assert cli.main(["eval", out, "--episodes", "1"]) == 0
assert cli.main(["inspect", out]) == 0
observation = np.zeros(3, np.float32)
np.testing.assert_array_equal(
    frugalrl.load_policy(out)(observation), result.policy(observation)
)
buffer = frugalrl.ReplayBuffer.load(out + "/buffer.safetensors")
assert len(buffer) == len(result.buffer)
assert cli.main(["train", "Pendulum-v1", "--engine", "jax", "--out", out + "-jax"]) == 2
import frugalrl.bench.grid, frugalrl.bench.report.write, frugalrl.commands.demo
loaded = [name for name in sys.modules if name.partition(".")[0] in {blocked}]
print(sorted(set(loaded) - set({blocked})))
"""


def test_training_evaluation_and_loading_need_no_jax(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(blocked=BLOCKED), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert 'pip install "frugalrl[jax]"' in done.stderr
    assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run-jax").exists()


@pytest.mark.parametrize("package", ["jax", "optax"])
def test_asking_for_jax_without_it_names_the_command(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"engine='jax' needs {package}.*frugalrl\[jax"):
        check_engine("jax")
    with pytest.raises(ConfigError, match=re.escape('pip install "frugalrl[jax]"')):
        resolve(TrainConfig("Pendulum-v1", engine="jax"))
    check_engine("fused")
    resolve(TrainConfig("Pendulum-v1"))


def test_jax_is_an_extra_of_its_own():
    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text("utf-8"))["project"]["optional-dependencies"]
    names = {extra: {re.split(r"[^\w-]", line)[0] for line in extras[extra]} for extra in extras}
    assert names["jax"] == {"jax", "optax"}
    assert not names["train"] & {"jax", "jaxlib", "optax"}
    assert re.search(r"frugalrl\[.*\bjax\b.*\]", extras["dev"][0])
