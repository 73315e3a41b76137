"""The package's front door: lazy exports, versions, and what an import may load."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import frugalrl

HEAVY = ["numba", "scipy", "jax", "torch", "gymnasium", "numpy", "safetensors", "plotly"]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    loaded = run(f"import sys, frugalrl; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


def test_core_loads_neither_jax_nor_torch():
    code = (
        "import sys, frugalrl\n"
        "frugalrl.FrugalFilter, frugalrl.ReplayBuffer, frugalrl.check_filter, frugalrl.Uniform\n"
        "print([m for m in ('jax', 'torch', 'optax', 'plotly') if m in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize("name", [n for n in frugalrl.__all__ if n != "__version__"])
def test_every_public_name_comes_from_its_home(name):
    home = import_module(frugalrl._HOMES[name])
    assert getattr(frugalrl, name) is getattr(home, name)


def test_type_checkers_see_the_same_names():
    source = Path(frugalrl.__file__).read_text(encoding="utf-8")
    block = source.partition("if TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    # Only a name that is imported as itself counts as exported.
    declared = re.findall(r"    from (\S+) import (\S+) as \2\n", block + "\n")
    assert {name: home for home, name in declared} == frugalrl._HOMES
    assert set(frugalrl.__all__) <= set(dir(frugalrl))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'ReplyBuffer'"):
        _ = frugalrl.ReplyBuffer


def test_missing_training_extra_names_the_command():
    code = (
        "import sys\n"
        "sys.modules['tyro'] = None\n"  # makes `import tyro` fail as if it were not installed
        "import frugalrl\n"
        "frugalrl._HOMES['train'] = 'tyro'\n"
        "try:\n"
        "    frugalrl.train\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert 'pip install "frugalrl[train]"' in run(code)


def test_missing_module_of_our_own_is_not_disguised(monkeypatch):
    monkeypatch.setitem(frugalrl._HOMES, "nowhere", "frugalrl.nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"frugalrl\.nowhere"):
        _ = frugalrl.nowhere


def test_version_is_the_installed_one():
    assert frugalrl.__version__ == metadata.version("frugalrl")


ORDER = ["admission", "replay", "agents", "training", "bench", "distributed", "commands"]


def test_imports_point_one_way():
    wrong = []
    for place, package in enumerate(ORDER):
        later = "|".join(["adapters", "cli", *ORDER[place + 1 :]])
        for file in (Path(frugalrl.__file__).parent / package).rglob("*.py"):
            found = re.findall(
                rf"^\s*(?:from|import) frugalrl\.(?:{later})\b.*", file.read_text("utf-8"), re.M
            )
            wrong += [f"{package}/{file.name}: {line.strip()}" for line in found]
    assert wrong == []
