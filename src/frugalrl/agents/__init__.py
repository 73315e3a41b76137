"""How it learns: SAC, TD3 and DDPG, by one of two engines, ``fused`` or ``jax``.

Everything is imported when first used: settings need nothing, a ``Policy`` needs NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frugalrl.agents.agent import Actions, Agent, UpdateResult, make_agent
    from frugalrl.agents.policy import Policy
    from frugalrl.agents.settings import AgentSettings, NetArch

__all__ = ["Actions", "Agent", "AgentSettings", "NetArch", "Policy", "UpdateResult", "make_agent"]


def __getattr__(name: str) -> Any:
    """Import a name from its module the first time it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = {"AgentSettings": "settings", "NetArch": "settings", "Policy": "policy"}
    return getattr(import_module(f"{__name__}.{homes.get(name, 'agent')}"), name)
