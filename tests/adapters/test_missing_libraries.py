"""An adapter whose library is not installed says how to install it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import frugalrl


@pytest.mark.parametrize(
    ("adapter", "library", "extra"),
    [
        ("sb3", "stable_baselines3", "sb3"),
        ("skrl", "skrl", "skrl"),
        ("torch", "torch", "torch"),
        ("torchrl", "tensordict", "torchrl"),
        ("tianshou", "tianshou", "tianshou"),
    ],
)
def test_missing_library_names_the_command(adapter, library, extra, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    module = f"frugalrl.adapters.{adapter}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf'pip install "frugalrl\[{extra}\]"') as caught:
        importlib.import_module(module)
    assert caught.value.name.split(".")[0] == library


def test_adapters_are_found_from_the_package():
    code = "import frugalrl; print(frugalrl.adapters.sb3.FrugalReplayBuffer.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "FrugalReplayBuffer"
    assert {"sb3", "skrl", "torch", "AdmissionLedger"} <= set(dir(frugalrl.adapters))
    assert frugalrl.adapters.FlatObservations.__module__ == "frugalrl.adapters.observations"
    with pytest.raises(AttributeError, match="no attribute 'sb4'"):
        _ = frugalrl.adapters.sb4


def test_importing_the_package_loads_no_trainer():
    code = (
        "import sys, frugalrl, frugalrl.adapters\n"
        "print(sorted({'torch', 'stable_baselines3', 'torchrl', 'tianshou'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
