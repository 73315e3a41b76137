"""State files: nested dicts of arrays and JSON values in one checksummed safetensors file.

Nothing here can run code on loading. A file is written beside its target and renamed over it, so a
crash leaves either the old file or the new one, whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frugalrl.files import replacing

_FORMAT = "frugalrl-state-1"
_REFERENCE = "$array"
_DTYPES = frozenset(["b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])


class StateFileError(ValueError):
    """A state file is missing, damaged, or not what was asked for."""


def save_state(
    path: str | os.PathLike[str], state: Mapping[str, Any], kind: str, version: int
) -> None:
    """Write a state atomically: the path holds the old file or the whole new one, never a part.

    Args:
        path: where the file goes; its folder must exist.
        state: nested dicts and lists of NumPy arrays and JSON values. Tuples come back as lists.
        kind: what the file holds, checked on loading.
        version: of that kind's layout, checked on loading.

    Raises:
        TypeError: a value is neither an array nor a JSON value.
        OSError: the file cannot be written.
    """
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = json.dumps(take_arrays(state, "", arrays))
    metadata = {"format": _FORMAT, "kind": kind, "version": str(version), "state": tree}
    metadata["checksum"] = _checksum(metadata, arrays)
    with replacing(path) as temporary:
        try:
            save_file(arrays, temporary, metadata=metadata)
        except Exception as error:  # the library's own, also where the disk is full
            raise OSError(f"could not write the {kind} file {path}: {error}") from error


def load_state(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """Read a state written by `save_state`, of this kind and version.

    Raises:
        StateFileError: the file is missing, truncated, damaged, of another kind or version.
    """
    from safetensors import safe_open

    source = Path(path)
    if not source.is_file():
        raise StateFileError(f"{source}: no such file")
    try:
        # The library compares what the header claims with the size of the file, before it reads.
        with safe_open(source, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            found = metadata.get("format", "no format at all")
            names = file.keys() if found == _FORMAT else ()
            arrays = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # whatever a file that anyone can write leads to
        raise StateFileError(f"{source}: damaged or truncated ({error})") from error
    if found != _FORMAT:
        raise StateFileError(
            f"{source}: not a Frugal state file (expected {_FORMAT}, found {found})"
        )
    expected = metadata.pop("checksum", None)
    if expected != _checksum(metadata, arrays):
        raise StateFileError(f"{source}: damaged (its checksum does not fit its contents)")
    if metadata.get("kind") != kind:
        raise StateFileError(f"{source}: holds a {metadata.get('kind', 'nothing')}, not a {kind}")
    if metadata.get("version") != str(version):
        raise StateFileError(
            f"{source}: has version {metadata.get('version')} of the {kind} layout; "
            f"this release reads version {version}"
        )

    def put_array(value: dict[str, Any]) -> Any:
        """Put an array where its reference stands."""
        if _REFERENCE not in value:
            return value
        array = arrays[value[_REFERENCE]]
        if not _is_kept(array):
            raise ValueError(f"an array of {array.dtype}")
        return array

    try:
        state = json.loads(metadata["state"], object_hook=put_array)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StateFileError(f"{source}: what it holds makes no sense ({error!r})") from error
    if not isinstance(state, dict):
        raise StateFileError(f"{source}: holds a {type(state).__name__}, not a dictionary")
    return state


def take_arrays(value: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Replace every array by a reference, collecting the arrays under their paths.

    Raises:
        TypeError: a value is neither an array nor a JSON value.
    """
    if isinstance(value, np.ndarray):
        array = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
        if not _is_kept(array):
            raise TypeError(
                f"state[{name!r}] is an array of {value.dtype}, which no state file holds"
            )
        if name in arrays:
            raise TypeError(f"state[{name!r}] can be read in two ways; use keys without a slash")
        arrays[name] = array
        return {_REFERENCE: name}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _REFERENCE:
                raise TypeError(f"state[{name!r}] has the key {key!r}; keys must be plain strings")
        return {key: take_arrays(item, f"{name}/{key}", arrays) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [take_arrays(item, f"{name}/{index}", arrays) for index, item in enumerate(value)]
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return take_arrays(value.item(), name, arrays)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(
        f"state[{name!r}] is a {type(value).__name__}; only arrays and JSON values can be saved"
    )


def _is_kept(array: np.ndarray[Any, Any]) -> bool:
    return f"{array.dtype.kind}{array.dtype.itemsize}" in _DTYPES


def _checksum(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Digest of everything in the file but the checksum itself."""
    digest = hashlib.sha256()
    digest.update(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
