"""The examples on the adapters' pages run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "adapters"


@pytest.mark.parametrize(
    "page", ["sb3", "torchrl", "tianshou", "cleanrl", "skrl", "offline", "adapting"]
)
def test_examples_run(page, tmp_path, monkeypatch):
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    script = tmp_path / f"page_{page}.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    if page == "sb3":
        assert len(names["model"].replay_buffer) == 0  # the second model, loaded from its own file
    elif page == "adapting":
        assert names["shelf"].ledger.stats.replaced > 0
        assert names["layout"].unflatten(names["rows"])["goal"].tolist() == [[3], [1]]
    else:
        buffer = names.get("buffer", names.get("rb", names.get("memory")))
        assert 100 <= len(buffer) < buffer.stats.offered if page != "torchrl" else len(buffer) < 500


def test_the_zoos_line_evaluates_to_the_class():
    import importlib

    from frugalrl.adapters.sb3 import FrugalReplayBuffer

    text = (PAGES / "sb3.md").read_text(encoding="utf-8")
    module, name = re.search(r"import_module\('(\S+)'\)\.(\w+)", text).groups()
    assert getattr(importlib.import_module(module), name) is FrugalReplayBuffer
