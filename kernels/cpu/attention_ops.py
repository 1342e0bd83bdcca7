"""The native attention of one query head over up to 16 keys, with a running softmax (Milakov & Gimelshein 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.ir import (
    F32,
    I32,
    I64,
    LANES,
    V16F,
    V16I,
    Builder,
    at,
    constant,
    exponential,
    fold,
    load,
    maximum,
    multiply_add,
    select_lanes,
    splat,
    store,
)

WIDE = 4
"""Vectors of an output that stay in registers together."""


@intrinsic  # type: ignore[misc]
def attend_16(
    typing: Any, q: Any, keys: Any, values: Any, stride: Any, size: Any, first: Any, last: Any, out: Any, state: Any
) -> Any:
    """Fold keys and values [first, last) of 16 into the output of one query.

    q float32 [size], scaled; keys, values float32, rows `stride` bytes apart; size is a multiple of 16. state float32
    [2]: the largest score so far (-inf at first) and the sum of exponentials relative to it; out float32 [size]: the
    values summed with these weights. Keys outside [first, last) are read, and may be anything but a fault.
    """

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        q, keys, values, stride, size, first, last, out, state = arguments
        scores = _mask(builder, _scores(builder, q, keys, stride, size), first, last)
        before = load(builder, state, 0, F32)
        largest = maximum(builder, before, fold(builder, scores, lambda a, b: maximum(builder, a, b)))
        weights = exponential(builder, builder.fsub(scores, splat(builder, largest)))
        shrink = exponential(builder, splat(builder, builder.fsub(before, largest)))
        total = builder.fmul(load(builder, state, 4, F32), builder.extract_element(shrink, ir.Constant(I32, 0)))
        total = builder.fadd(total, fold(builder, weights, lambda a, b: builder.fadd(a, b)))
        store(builder, largest, state, 0)
        store(builder, total, state, 4)

        slot = cgutils.alloca_once(builder, V16F)
        builder.store(weights, slot, align=64)
        weights_at = builder.ptrtoint(slot, I64)
        wide = builder.and_(size, ir.Constant(I64, -WIDE * LANES))
        for begin, end, vectors in ((ir.Constant(I64, 0), wide, WIDE), (wide, size, 1)):
            with cgutils.for_range_slice(builder, begin, end, ir.Constant(I64, vectors * LANES), I64) as (index, _):
                offset = builder.mul(index, ir.Constant(I64, 4))
                target, source = builder.add(out, offset), builder.add(values, offset)
                sums = [
                    cgutils.alloca_once_value(builder, builder.fmul(load(builder, target, 64 * i, V16F), shrink))
                    for i in range(vectors)
                ]
                with cgutils.for_range_slice(builder, first, last, ir.Constant(I64, 1), I64) as (key, _):
                    weight = splat(builder, load(builder, weights_at, builder.mul(key, ir.Constant(I64, 4)), F32))
                    row = builder.add(source, builder.mul(key, stride))
                    for i, summed in enumerate(sums):
                        value = load(builder, row, 64 * i, V16F)
                        builder.store(multiply_add(builder, weight, value, builder.load(summed)), summed)
                for i, summed in enumerate(sums):
                    store(builder, builder.load(summed), target, 64 * i)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), codegen


def _scores(builder: Builder, q: Any, keys: Any, stride: Any, size: Any) -> Any:
    """q times each of 16 keys, one a lane."""
    products = [cgutils.alloca_once_value(builder, constant(V16F, 0.0)) for _ in range(LANES)]
    with cgutils.for_range_slice(builder, ir.Constant(I64, 0), size, ir.Constant(I64, LANES), I64) as (index, _):
        offset = builder.mul(index, ir.Constant(I64, 4))
        query = load(builder, q, offset, V16F)
        row = builder.add(keys, offset)
        for product in products:
            builder.store(multiply_add(builder, query, load(builder, row, 0, V16F), builder.load(product)), product)
            row = builder.add(row, stride)
    # Add neighbouring lanes of two vectors into the halves of one, until lane i of the last is the sum of vector i.
    vectors = [builder.load(product) for product in products]
    while len(vectors) > 1:
        vectors = [
            builder.fadd(
                select_lanes(builder, a, b, range(0, 2 * LANES, 2)), select_lanes(builder, a, b, range(1, 2 * LANES, 2))
            )
            for a, b in zip(vectors[0::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _mask(builder: Builder, scores: Any, first: Any, last: Any) -> Any:
    lane = ir.Constant(V16I, list(range(LANES)))
    from_first = builder.icmp_signed(">=", lane, splat(builder, builder.trunc(first, I32)))
    to_last = builder.icmp_signed("<", lane, splat(builder, builder.trunc(last, I32)))
    return builder.select(builder.and_(from_first, to_last), scores, constant(V16F, float("-inf")))
