"""Questions to all children of a node at once, by instructions for vectors.

To look at one child after the other ends at a place that the processor guesses wrong, on every
level of a tree, and that costs more than to look at all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from frugalrl.admission.compiled import Real, Whole

LANES = 32
"""How many numbers are read at once."""

_INDEX, _WHOLE, _BITS = ir.IntType(32), ir.IntType(64), ir.IntType(LANES)


def _load(context: Any, builder: Any, array_type: Any, array: Any, first: Any) -> Any:
    """LANES elements of a flattened array, from `first` on."""
    data = context.make_array(array_type)(context, builder, array).data
    element = context.get_data_type(array_type.dtype)
    lanes = ir.VectorType(element, LANES)
    place = builder.bitcast(builder.gep(data, [first]), lanes.as_pointer())
    return builder.load(place, align=array_type.dtype.bitwidth // 8)


def _everywhere(builder: Any, value: Any) -> Any:
    """A vector of LANES times the same."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(nothing, value, _INDEX(0))
    zeros = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, nothing, zeros)


def _bits_below(builder: Any, count: Any) -> Any:
    """64 bits of which the lowest `count` < 64 are set."""
    return builder.sub(builder.shl(_WHOLE(1), count), _WHOLE(1))


def _make_count_below(_: Any, numbers: Any, first: Any, among: Any, origin: Any, bound: Any) -> Any:
    """Count which of the `among` <= LANES numbers from `first` on are below a bound.

    What is counted is `number - origin < bound`. LANES numbers are read.
    """
    signature = types.int64(numbers, types.int64, types.int64, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, among, origin, bound = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        distances = builder.fsub(loaded, _everywhere(builder, origin))
        are_below = builder.fcmp_ordered("<", distances, _everywhere(builder, bound))
        found = builder.zext(builder.bitcast(are_below, _BITS), _WHOLE)
        return builder.ctpop(builder.and_(found, _bits_below(builder, among)))

    return signature, generate


def _make_index_of_least(_: Any, numbers: Any, first: Any, start: Any, end: Any) -> Any:
    """Tell which of the numbers from `first + start` to before `first + end` is the least.

    The index is counted from `first`; of equal numbers the first. LANES numbers are read.
    """
    signature = types.int64(numbers, types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, start, end = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        asked = builder.xor(_bits_below(builder, end), _bits_below(builder, start))
        is_asked = builder.bitcast(builder.trunc(asked, _BITS), ir.VectorType(ir.IntType(1), LANES))
        element = loaded.type.element
        most = _everywhere(builder, element(2 ** (element.width - 1) - 1))
        candidates = builder.select(is_asked, loaded, most)
        kind = ir.FunctionType(element, [loaded.type])
        name = f"llvm.vector.reduce.smin.v{LANES}i{element.width}"
        reduce = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, name
        )
        least = _everywhere(builder, builder.call(reduce, [candidates]))
        are_least = builder.bitcast(builder.icmp_signed("==", candidates, least), _BITS)
        found = builder.and_(builder.zext(are_least, _WHOLE), asked)
        return builder.cttz(found, ir.IntType(1)(0))

    return signature, generate


count_below: Any = intrinsic(_make_count_below)
index_of_least: Any = intrinsic(_make_index_of_least)


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _count_below(numbers: Any, first: Whole, among: Whole, origin: Real, bound: Real) -> int:
        asked = numbers.reshape(-1)[first : first + among]
        return int(np.count_nonzero(asked - origin < bound))

    def _index_of_least(numbers: Any, first: Whole, start: Whole, end: Whole) -> int:
        return int(start + np.argmin(numbers.reshape(-1)[first + start : first + end]))

    count_below, index_of_least = _count_below, _index_of_least
