"""Tensors as arrays on the host, and states as tensors and plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def rows_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Give a tensor (rows, ...) as (rows, values) on the host."""
    if tensor.dtype == torch.bfloat16:  # which NumPy has not
        tensor = tensor.float()
    return np.asarray(tensor.detach().reshape(len(tensor), -1).cpu().numpy())


def with_tensors(value: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, all the way down.

    What results is read by `torch.load` with its safe default, `weights_only=True`.
    """
    if isinstance(value, dict):
        return {key: with_tensors(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_tensors(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value


def with_arrays(value: Any) -> Any:
    """Undo `with_tensors`."""
    if isinstance(value, dict):
        return {key: with_arrays(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_arrays(inner) for inner in value]
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value
