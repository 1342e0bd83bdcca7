"""Native attention over tiles of 16 keys, with a running softmax (Milakov & Gimelshein 2018; FlashAttention, Dao 2022).

A tile of keys holds its values in words of 4 bytes, one value in float32 or two neighbours in bfloat16: keys
[head_dim / per word, block_size] words, so that a vector is one word of 16 keys; values [block_size / per word,
head_dim] words, so that a vector is 16 places of one or two keys. Nothing is moved about between lanes, and a CPU that
multiplies pairs of bfloat16 does so on what lies in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.ir import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    V16F,
    V16I,
    Builder,
    at,
    call,
    constant,
    exponential,
    fold,
    load,
    maximum,
    multiply_add,
    multiply_pairs,
    splat,
    store,
    to_bfloat16,
)
from kernels.cpu.tier import has_pairs

AT_ONCE = 64
"""Keys whose scores are turned into weights together."""


def _words(builder: Builder, address: Any, offset: Any, bfloat16: bool) -> tuple[Any, ...]:
    """A vector of words as what is multiplied: pairs as they are, or the values they hold."""
    if not bfloat16:
        return (load(builder, address, offset, V16F),)
    words = load(builder, address, offset, V16I)
    if has_pairs():
        return (words,)
    first = builder.shl(words, constant(V16I, 16))
    second = builder.and_(words, constant(V16I, 0xFFFF0000))
    return builder.bitcast(first, V16F), builder.bitcast(second, V16F)


def _multiply(builder: Builder, words: tuple[Any, ...], factors: Any, index: Any, sums: Any, bfloat16: bool) -> Any:
    """sums + words * the factors of word `index`, the same for all lanes.

    Factors are pairs of bfloat16 where pairs are multiplied, else float32.
    """
    if bfloat16 and has_pairs():
        pair = splat(builder, load(builder, factors, builder.mul(index, ir.Constant(I64, 4)), I32))
        return multiply_pairs(builder, sums, words[0], pair)
    for position, values in enumerate(words):
        offset = builder.add(builder.mul(index, ir.Constant(I64, 4 * len(words))), ir.Constant(I64, 4 * position))
        sums = multiply_add(builder, values, splat(builder, load(builder, factors, offset, F32)), sums)
    return sums


def make_score(rows: int, bfloat16: bool) -> Any:
    """The scores of `rows` queries over a tile of keys.

    score(q, q_stride, keys, words, key_stride, out): q of `words` words a row (pairs of bfloat16 or float32, see
    `multiplies_pairs`), rows q_stride bytes apart; vectors of keys key_stride bytes apart; out float32 [rows,
    64].
    """
    unrolled = 4
    chains = 4 if rows == 1 else 2

    @intrinsic
    def score(typing: Any, q: Any, q_stride: Any, keys: Any, words: Any, key_stride: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            q, q_stride, keys, words, key_stride, out = arguments
            c = lambda value: ir.Constant(I64, value)  # noqa: E731
            queries = [builder.add(q, builder.mul(q_stride, c(row))) for row in range(rows)]
            sums = [
                [cgutils.alloca_once_value(builder, constant(V16F, 0.0)) for _ in range(chains)] for _ in range(rows)
            ]
            with cgutils.for_range_slice(builder, c(0), words, c(unrolled), I64) as (index, _):
                for step in range(unrolled):
                    word = builder.add(index, c(step))
                    tile = _words(builder, keys, builder.mul(word, key_stride), bfloat16)
                    for row in range(rows):
                        slot = sums[row][step % chains]
                        builder.store(_multiply(builder, tile, queries[row], word, builder.load(slot), bfloat16), slot)
            for row in range(rows):
                total = builder.load(sums[row][0])
                for slot in sums[row][1:]:
                    total = builder.fadd(total, builder.load(slot))
                store(builder, total, out, 4 * AT_ONCE * row)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return score


def make_mix(rows: int, bfloat16: bool) -> Any:
    """Adds the weighted values of a tile to the outputs of `rows` queries.

    mix(weights, values, words, value_stride, size, out, out_stride): weights as `soften` leaves them, of `words` words
    of keys, rows 64 places apart; rows of values value_stride bytes apart; out float32 [rows, size].
    """

    @intrinsic
    def mix(
        typing: Any, weights: Any, values: Any, words: Any, value_stride: Any, size: Any, out: Any, out_stride: Any
    ) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            weights, values, words, value_stride, size, out, out_stride = arguments
            c = lambda value: ir.Constant(I64, value)  # noqa: E731
            wide = builder.and_(size, c(-4 * LANES))
            for begin, end, vectors in ((c(0), wide, 4), (wide, size, 1)):
                with cgutils.for_range_slice(builder, begin, end, c(vectors * LANES), I64) as (place, _):
                    offset = builder.mul(place, c(4))
                    targets = [
                        builder.add(builder.add(out, builder.mul(out_stride, c(row))), offset) for row in range(rows)
                    ]
                    sums = [
                        [
                            cgutils.alloca_once_value(builder, load(builder, target, 64 * v, V16F))
                            for v in range(vectors)
                        ]
                        for target in targets
                    ]
                    with cgutils.for_range(builder, words) as loop:
                        source = builder.add(builder.add(values, builder.mul(loop.index, value_stride)), offset)
                        for v in range(vectors):
                            tile = _words(builder, source, 64 * v, bfloat16)
                            for row in range(rows):
                                factors = builder.add(weights, c(row * AT_ONCE * 4))
                                slot = sums[row][v]
                                builder.store(
                                    _multiply(builder, tile, factors, loop.index, builder.load(slot), bfloat16), slot
                                )
                    for row, target in enumerate(targets):
                        for v in range(vectors):
                            store(builder, builder.load(sums[row][v]), target, 64 * v)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return mix


def make_soften(bfloat16: bool) -> Any:
    """Turns the scores of one query over 64 keys into weights, and makes room for them in what was there before.

    soften(scores, first, last, size, out, state): scores float32 [64], of which [first, last) count and may hold
    anything elsewhere, become weights: float32 or, where pairs are multiplied, bfloat16 at the front. state float32
    [2]: the largest score so far (-inf at first) and the sum of the weights relative to it; out float32 [size] is
    brought into line.
    """

    @intrinsic
    def soften(typing: Any, scores: Any, first: Any, last: Any, size: Any, out: Any, state: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            scores, first, last, size, out, state = arguments
            count = AT_ONCE // LANES
            from_first, to_last = (splat(builder, builder.trunc(bound, I32)) for bound in (first, last))
            vectors = []
            for v in range(count):
                lane = ir.Constant(V16I, list(range(LANES * v, LANES * (v + 1))))
                counts = builder.and_(
                    builder.icmp_signed(">=", lane, from_first), builder.icmp_signed("<", lane, to_last)
                )
                vectors.append(
                    builder.select(counts, load(builder, scores, 64 * v, V16F), constant(V16F, float("-inf")))
                )
            both = lambda a, b: maximum(builder, a, b)  # noqa: E731
            before = load(builder, state, 0, F32)
            largest = maximum(
                builder, before, fold(builder, both(both(vectors[0], vectors[1]), both(vectors[2], vectors[3])), both)
            )
            spread = splat(builder, largest)
            weights = [exponential(builder, builder.fsub(vector, spread)) for vector in vectors]
            add = lambda a, b: builder.fadd(a, b)  # noqa: E731
            total = fold(builder, add(add(weights[0], weights[1]), add(weights[2], weights[3])), add)
            shrink = exponential(builder, splat(builder, builder.fsub(before, largest)))
            factor = builder.extract_element(shrink, ir.Constant(I32, 0))
            store(builder, largest, state, 0)
            store(builder, builder.fadd(builder.fmul(load(builder, state, 4, F32), factor), total), state, 4)
            for v, vector in enumerate(weights):
                if bfloat16 and has_pairs():
                    store(builder, to_bfloat16(builder, vector), scores, 32 * v)
                else:
                    store(builder, vector, scores, 64 * v)
            with (
                builder.if_then(builder.fcmp_ordered("!=", factor, ir.Constant(F32, 1.0))),
                cgutils.for_range_slice(builder, ir.Constant(I64, 0), size, ir.Constant(I64, LANES), I64) as (place, _),
            ):
                offset = builder.mul(place, ir.Constant(I64, 4))
                store(builder, builder.fmul(load(builder, out, offset, V16F), shrink), out, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return soften


@intrinsic
def pair_16(typing: Any, source: Any, target: Any) -> Any:
    """Round 16 float32 to bfloat16."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        source, target = arguments
        store(builder, to_bfloat16(builder, load(builder, source, 0, V16F)), target, 0, align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def multiplies_pairs(typing: Any) -> Any:
    """Whether pairs of bfloat16 are multiplied as they are, which wants queries and weights as such pairs."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        return ir.Constant(ir.IntType(1), int(has_pairs()))

    return types.boolean(), codegen


@intrinsic
def read_ahead(typing: Any, address: Any, lines: Any, stride: Any) -> Any:
    """Ask for cache lines, `stride` bytes apart, that come soon: the hardware does not see from block to block."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        address, lines, stride = arguments
        hints = [ir.Constant(I32, hint) for hint in (0, 2, 1)]  # to read, into the second level, data
        with cgutils.for_range(builder, lines) as loop:
            line = at(builder, address, builder.mul(loop.index, stride), I8)
            call(builder, "llvm.prefetch.p0", ir.VoidType(), line, *hints)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen
