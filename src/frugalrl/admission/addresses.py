"""Arrays that compiled code is given by their addresses.

An array that is an argument costs a tenth of a microsecond a call, and compiled code counts
references to it with locked instructions; phi has a dozen, and a decision should take little more
than the memory it reads. So the owner of the arrays keeps a table of where they lie, and hands over
that. It must keep the arrays alive, and make the table anew whenever one of them has moved.

Functions that are called, not inlined, hand on the table too, and take from it what they need. The
lengths of inner axes, where they are known, are constants there, which saves multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from frugalrl.admission.compiled import Whole, inlined

_ADDRESS, _LENGTH, _WIDTH = 0, 1, 2
_IS_COMPILED = not config.DISABLE_JIT  # type: ignore[attr-defined]


def table_of(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Where contiguous arrays lie, and the lengths of their first and last axes: (arrays, 3)."""
    if not _IS_COMPILED:
        return tuple(arrays)  # no address can be followed then
    table = np.ones((len(arrays), 3), dtype=np.int64)
    for row, array in zip(table, arrays, strict=True):
        row[_ADDRESS] = array.ctypes.data
        row[_LENGTH], row[_WIDTH] = len(array), array.shape[-1]
    return table


def _make_pointer(_: Any, address: Any) -> Any:
    """Make a pointer of an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


def _make_prefetch(_: Any, array: Any, index: Any) -> Any:
    """Begin to load the element with this index of a flattened array, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        element = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        load = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        for_writing, into_all_caches, data_not_code = number(1), number(3), number(1)
        builder.call(load, [element, for_writing, into_all_caches, data_not_code])
        return context.get_dummy_value()

    return types.none(array, index), generate


_pointer: Any = intrinsic(_make_pointer)
prefetch: Any = intrinsic(_make_prefetch)


@inlined
def vector_at(table: Any, index: Whole, kind: Any) -> Any:
    """The (n,) array number `index` of a table, whose elements are of this kind."""
    return carray(_pointer(table[index, _ADDRESS]), (table[index, _LENGTH],), kind)


@inlined
def matrix_at(table: Any, index: Whole, columns: Whole, kind: Any) -> Any:
    """The (n, columns) array number `index` of a table."""
    return carray(_pointer(table[index, _ADDRESS]), (table[index, _LENGTH], columns), kind)


@inlined
def cube_at(table: Any, index: Whole, rows: Whole, columns: Whole, kind: Any) -> Any:
    """The (n, rows, columns) array number `index` of a table."""
    return carray(_pointer(table[index, _ADDRESS]), (table[index, _LENGTH], rows, columns), kind)


@inlined
def width_at(table: Any, index: Whole) -> Any:
    """Length of the last axis of an array of a table."""
    return table[index, _WIDTH]


if not _IS_COMPILED:  # the table has the arrays themselves

    def _array_at(table: Any, index: Whole, *_: Any) -> Any:
        return table[index]

    def _width_at(table: Any, index: Whole) -> Any:
        return table[index].shape[-1]

    def _do_nothing(array: Any, index: Whole) -> None:
        pass

    vector_at = matrix_at = cube_at = cast("Any", _array_at)
    width_at, prefetch = _width_at, _do_nothing
