"""frugalrl presets: list the settings made for environments."""

from __future__ import annotations

import json
from dataclasses import dataclass

from frugalrl.commands.arguments import parse


@dataclass(frozen=True)
class Options:
    """List the settings that `--preset auto` uses, by environment in any version."""

    json: bool = False
    """As JSON."""


def main(arguments: list[str]) -> int:
    """Print the table."""
    options = parse(Options, arguments, "presets")
    from frugalrl.training.config import concerns
    from frugalrl.training.presets import PRESETS, defaults

    if options.json:
        named = {f"{name}/{algo}": settings for (name, algo), settings in PRESETS.items()}
        print(json.dumps(named, indent=2))
        return 0
    for (name, algo), settings in PRESETS.items():
        print(f"{name:<22} {algo:<4} {_text(settings)}")
    for algo in ("sac", "td3", "ddpg"):
        known = {name: value for name, value in defaults(algo).items() if concerns(algo, name)}
        print(f"{'any other':<22} {algo:<4} {_text(known)}")
    return 0


def _text(settings: dict[str, object]) -> str:
    return ", ".join(
        f"{name} {'x'.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in settings.items()
    )
