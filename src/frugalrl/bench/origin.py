"""Where results come from: code, versions, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("frugalrl", "gymnasium", "jax", "mujoco", "numba", "numpy", "optax", "scipy")


def commit() -> str:
    """Name the commit of the code that runs, with a mark where files differ from it."""
    where = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(where), *words]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return found.stdout.strip()

    try:
        # An installed package may lie inside some other project's repository.
        git("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(where.parent))
        return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return f"release {_version('frugalrl')}"


def versions() -> dict[str, str]:
    """List the versions that can matter."""
    found = {name: _version(name) for name in _PACKAGES}
    return {"python": platform.python_version()} | {k: v for k, v in found.items() if v}


def machine() -> str:
    """Describe the machine without naming it."""
    parts = [_processor(), f"{os.cpu_count()} cores", f"{platform.system()} {platform.machine()}"]
    return ", ".join(part for part in parts if part)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
