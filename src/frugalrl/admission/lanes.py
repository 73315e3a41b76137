"""Questions to many numbers at once, by instructions for vectors.

To look at one child of a node after the other ends at a place that the processor guesses wrong, on
every level of a tree, and that costs more than to look at all of them.

Each function reads LANES numbers of a flattened array, from a first one on: they must be there.
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

_NONE = 64
"""What counting the zeros below the lowest bit gives when no bit is set."""
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


def _as_lanes(builder: Any, bits: Any) -> Any:
    """Of 64 bits the lowest, one a lane."""
    return builder.bitcast(builder.trunc(bits, _BITS), ir.VectorType(ir.IntType(1), LANES))


def _bits_between(builder: Any, start: Any, end: Any) -> Any:
    """64 bits, of which those from `start` to before `end` are set; both are below 64."""
    one = _WHOLE(1)
    below_end = builder.sub(builder.shl(one, end), one)
    return builder.xor(below_end, builder.sub(builder.shl(one, start), one))


def _function(builder: Any, name: str, kind: Any, vector: Any, result: Any) -> Any:
    """One of LLVM's functions of a vector, such as "fabs" for kind "f64"."""
    signature = ir.FunctionType(result, [vector])
    full_name = f"llvm.{name}.v{LANES}{kind}"
    return cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, signature, full_name
    )


def _distances(builder: Any, numbers: Any, origin: Any) -> Any:
    fabs = _function(builder, "fabs", "f64", numbers.type, numbers.type)
    return builder.call(fabs, [builder.fsub(numbers, _everywhere(builder, origin))])


def _make_count_below(_: Any, numbers: Any, first: Any, among: Any, origin: Any, bound: Any) -> Any:
    """Count which of the `among` numbers from `first` on are below a bound.

    What is counted is `number - origin < bound`.
    """
    signature = types.int64(numbers, types.int64, types.int64, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, among, origin, bound = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        differences = builder.fsub(loaded, _everywhere(builder, origin))
        are_below = builder.fcmp_ordered("<", differences, _everywhere(builder, bound))
        found = builder.zext(builder.bitcast(are_below, _BITS), _WHOLE)
        return builder.ctpop(builder.and_(found, _bits_between(builder, _WHOLE(0), among)))

    return signature, generate


def _make_index_of_least(_: Any, numbers: Any, first: Any, start: Any, end: Any) -> Any:
    """Tell which of the whole numbers from `start` to before `end` is the least.

    There must be one; of equal ones the first. Places are counted from `first`.
    """
    signature = types.int64(numbers, types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, start, end = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        asked = _bits_between(builder, start, end)
        element = loaded.type.element
        most = _everywhere(builder, element(2 ** (element.width - 1) - 1))
        candidates = builder.select(_as_lanes(builder, asked), loaded, most)
        kind = f"i{element.width}"
        reduce = _function(builder, "vector.reduce.smin", kind, loaded.type, element)
        least = _everywhere(builder, builder.call(reduce, [candidates]))
        are_least = builder.bitcast(builder.icmp_signed("==", candidates, least), _BITS)
        found = builder.and_(builder.zext(are_least, _WHOLE), asked)
        return builder.cttz(found, ir.IntType(1)(0))

    return signature, generate


def _make_first_near(
    _: Any, numbers: Any, first: Any, start: Any, end: Any, origin: Any, within: Any
) -> Any:
    """Tell which of the numbers from `start` to before `end` is the first that is near.

    Places are counted from `first`; 64 if there is none.
    """
    signature = types.int64(
        numbers, types.int64, types.int64, types.int64, types.float64, types.float64
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, start, end, origin, within = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        distances = _distances(builder, loaded, origin)
        are_near = builder.fcmp_ordered("<=", distances, _everywhere(builder, within))
        found = builder.zext(builder.bitcast(are_near, _BITS), _WHOLE)
        found = builder.and_(found, _bits_between(builder, start, end))
        return builder.cttz(found, ir.IntType(1)(0))

    return signature, generate


def _make_least_distance(
    _: Any, numbers: Any, first: Any, start: Any, end: Any, origin: Any
) -> Any:
    """Distance of the nearest of the numbers from `start` to before `end`; infinite without any.

    Places are counted from `first`.
    """
    signature = types.float64(numbers, types.int64, types.int64, types.int64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, start, end, origin = arguments
        loaded = _load(context, builder, signature.args[0], numbers, first)
        asked = _as_lanes(builder, _bits_between(builder, start, end))
        nothing = _everywhere(builder, loaded.type.element(np.inf))
        candidates = builder.select(asked, _distances(builder, loaded, origin), nothing)
        element = loaded.type.element
        reduce = _function(builder, "vector.reduce.fmin", "f64", loaded.type, element)
        return builder.call(reduce, [candidates], fastmath=("nnan",))

    return signature, generate


count_below: Any = intrinsic(_make_count_below)
index_of_least: Any = intrinsic(_make_index_of_least)
first_near: Any = intrinsic(_make_first_near)
least_distance: Any = intrinsic(_make_least_distance)


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _count_below(numbers: Any, first: Whole, among: Whole, origin: Real, bound: Real) -> int:
        asked = numbers.reshape(-1)[first : first + among]
        return int(np.count_nonzero(asked - origin < bound))

    def _index_of_least(numbers: Any, first: Whole, start: Whole, end: Whole) -> int:
        return int(start + np.argmin(numbers.reshape(-1)[first + start : first + end]))

    def _first_near(
        numbers: Any, first: Whole, start: Whole, end: Whole, origin: Real, within: Real
    ) -> int:
        asked = numbers.reshape(-1)[first + start : first + end]
        near = np.flatnonzero(np.abs(asked - origin) <= within)
        return int(start + near[0]) if len(near) else _NONE

    def _least_distance(
        numbers: Any, first: Whole, start: Whole, end: Whole, origin: Real
    ) -> float:
        asked = numbers.reshape(-1)[first + start : first + end]
        return float(np.abs(asked - origin).min(initial=np.inf))

    count_below, index_of_least = _count_below, _index_of_least
    first_near, least_distance = _first_near, _least_distance
