"""A plugin of pytest: FrugalReplayBuffer in the place of Stable-Baselines3's plain buffers.

It is imported before any test, and everything is admitted. `trainers_own.py` uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import stable_baselines3.common.buffers as buffers

import frugalrl
from frugalrl.adapters.sb3 import FrugalReplayBuffer

NAMES = ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer")
PLAIN = {name: getattr(buffers, name) for name in NAMES}
made = 0


class _IsPlain(type(FrugalReplayBuffer)):
    """Lets any buffer of Stable-Baselines3 pass where a loaded one is looked at."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PLAIN["ReplayBuffer"])


class Swapped(FrugalReplayBuffer, metaclass=_IsPlain):
    """Our buffer, in which everything is admitted."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        global made
        made += 1
        named.setdefault("admission", frugalrl.AdmitAll())
        super().__init__(*positional, **named)


def _put(module: Any, classes: dict[str, type]) -> None:
    for name, made_class in classes.items():
        setattr(module, name, made_class)


for _name in ("stable_baselines3.common.off_policy_algorithm", "sbx.common.off_policy_algorithm"):
    try:
        _put(import_module(_name), dict.fromkeys(NAMES, Swapped))
    except ImportError:  # SBX need not be there
        continue
_put(buffers, dict.fromkeys(NAMES, Swapped))


def pytest_collection_finish() -> None:
    """Give Stable-Baselines3's buffers back to HerReplayBuffer, when the tests have ours."""
    _put(buffers, PLAIN)


def pytest_runtest_setup() -> None:
    """Count the buffers of one test."""
    global made
    made = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note in the report how many of our buffers the test has made."""
    item.user_properties.append(("buffers", made))
