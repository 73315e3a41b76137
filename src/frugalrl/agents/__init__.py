"""How it learns: SAC, TD3 and DDPG, by one of two engines, ``fused`` or ``jax``.

``AgentSettings`` and ``Policy`` need NumPy only; the engine loads when an agent is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frugalrl.agents.policy import Policy
from frugalrl.agents.settings import AgentSettings

if TYPE_CHECKING:
    from frugalrl.agents.agent import Actions, Agent, UpdateResult, make_agent

__all__ = ["Actions", "Agent", "AgentSettings", "Policy", "UpdateResult", "make_agent"]


def __getattr__(name: str) -> Any:
    """Import what needs Gymnasium the first time it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("frugalrl.agents.agent"), name)
