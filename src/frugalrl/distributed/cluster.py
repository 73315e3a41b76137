"""A Ray on this machine, or a cluster somewhere: connecting, and what its nodes must have."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from frugalrl.bench import origin
from frugalrl.distributed import INSTALL
from frugalrl.distributed.storage import SharedDirectory
from frugalrl.training.errors import ConfigError

CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_OBJECT_STORE = 200_000_000
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_HTTP2_SETTINGS = 4


@contextlib.contextmanager
def connected(address: str | None, *, cpus: int | None = None) -> Iterator[Any]:
    """Give the `ray` module, connected; a connection that the caller has is used and stays.

    Args:
        address: of a running cluster, host:port or auto; None: a Ray of our own on this machine,
            which only this machine can reach and which ends with the block.
        cpus: processors that a Ray of our own offers, at the least those there are.

    Raises:
        ConfigError: Ray is not installed, or the cluster cannot be reached or used.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"this needs Ray, which is not installed ({error}): {INSTALL}") from None
    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        own |= {
            "num_cpus": max(cpus or 1, os.cpu_count() or 1),
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
            # By default Ray's workers stand back for everything else, also for the learner.
            "_system_config": {"worker_niceness": 0},
        }
    elif address != "auto":
        check_reachable(address)
    try:
        with _loopback() if address is None else contextlib.nullcontext():
            ray.init(address=address or "local", **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        what = "Ray cannot be started here" if address is None else f"address={address!r}"
        raise ConfigError(f"{what}: {str(error).strip()}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Let a Ray that is started here listen on loopback alone, unless the user says otherwise.

    Ray's name for that is a node which cannot be part of a cluster. Processes that it starts read
    it from the environment, this one has read it when Ray was imported, whoever did that.
    """
    if _LOOPBACK in os.environ:
        yield
        return
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        del os.environ[_LOOPBACK]
        ray_constants.ENABLE_RAY_CLUSTER = before


def check_reachable(address: str, seconds: float = CONNECT_SECONDS) -> None:
    """Refuse a cluster whose head does not answer in time; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit() or not host:
        raise ConfigError(
            f"address={address!r} is neither auto nor host:port of a cluster's head node; a Ray "
            "client (ray://) cannot be used: start the command on a node of the cluster, or with "
            "`ray job submit`"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as line:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
                line.sendall(_HTTP2_HELLO)
                answer = line.recv(4)
                if len(answer) < 4 or answer[3] != _HTTP2_SETTINGS:
                    raise OSError("something answers there, but it is not Ray")
    except (OSError, OverflowError, ValueError) as error:  # a host or port can be no name at all
        reason = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else error
        raise ConfigError(
            f"address={address!r} cannot be reached: {reason}. Is it the host and port that "
            "`ray start --head` has printed?"
        ) from None


def check_nodes(ray: Any, storage: str | None = None) -> None:
    """Let every node check its versions, and whether it can write to storage.

    Raises:
        ConfigError: a node lacks this package, has other versions, or cannot write.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0, max_retries=0)(check_node)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = ask.options(scheduling_strategy=there).remote(code_versions(), storage)
            asked[reference] = node["NodeManagerAddress"]
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_SECONDS)
    for reference in answered:
        try:
            ray.get(reference)
        except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError):
            continue  # the node has left since it was listed
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ConfigError):
                raise ConfigError(f"node {asked[reference]}: {cause}") from None
            raise ConfigError(
                f"node {asked[reference]} cannot run this package ({last_line(error)}); every "
                f"node needs it: {INSTALL}"
            ) from None
    if silent:
        names = ", ".join(asked[reference] for reference in silent)
        raise ConfigError(f"no answer from {names} within {_ANSWER_SECONDS:g} s")


def check_node(expected: dict[str, str], storage: str | None = None) -> None:
    """Refuse to work on this node with other versions, or where storage cannot be written."""
    refuse_other_versions(expected, code_versions(), socket.gethostname())
    if storage is not None:
        SharedDirectory(storage).check_writable()


def refuse_other_versions(mine: dict[str, str], theirs: dict[str, str], node: str) -> None:
    """Refuse a node that would compute with other code than this one, naming what differs."""
    differ = [
        f"{name} {theirs.get(name) or 'none'}, here {mine.get(name) or 'none'}"
        for name in mine | theirs
        if mine.get(name) != theirs.get(name)
    ]
    if differ:
        raise ConfigError(
            f"versions differ between nodes: {node} has {'; '.join(differ)}. Install the same on "
            "all nodes"
        )


@cache
def code_versions() -> dict[str, str]:
    """Give the versions that decide a result; of this package also a digest of its sources."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return {**origin.versions(), "frugalrl's sources": digest.hexdigest()[:12]}


def last_line(error: Exception) -> str:
    """Give the last line of what Ray says: the first ones are its own."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
