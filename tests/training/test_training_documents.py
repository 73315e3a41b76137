"""The documentation of training says what the code does."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

from frugalrl.training import TrainConfig
from frugalrl.training.records import columns, tag

ROOT = Path(__file__).parents[2]


def test_every_metric_is_explained_with_its_name_in_tensorboard():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(columns("sac"))
    assert set(columns("td3")) < set(columns("sac"))
    for name, _, shown in rows[1:]:
        assert shown == f"`{tag(name)}`"


def test_flags_in_the_guide_exist():
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    known = fields | {f"no_{name}" for name in fields} | {"resume", "episodes", "video", "help"}
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]*[a-z])\b", page)}
    assert {"learning_starts", "fac_bins", "envs"} <= flags
    assert flags - known - {"fac"} == set()


def test_the_guides_example_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    script = tmp_path / "guide.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    assert names["result"].env_steps == 1_000
    assert names["action"].shape == (1,)


def test_the_example_trains_and_goes_on_from_its_directory(tmp_path, capsys):
    main = runpy.run_path(str(ROOT / "examples" / "train_pendulum.py"))["main"]
    first = main(str(tmp_path / "run"), steps=600)
    assert main(str(tmp_path / "run"), steps=600) == first < 0
    assert capsys.readouterr().out.count("final policy") == 1
