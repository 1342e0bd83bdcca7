"""Keys and values stored as integers in groups (`kernels.kv_format`): how a tile of 16 places becomes the words that
attention multiplies, and half floats one at a time.

A tile's codes come first: of keys [head_dim, 16], where with 4 bits a byte holds two neighbouring values of one place;
of values [16, head_dim], where with 4 bits a byte holds value i and i + 16 of 32. Then its scales and its offsets,
float16 [head_dim / group, 16] each. Every place has bytes of its own: threads write neighbours at the same time.
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
    constant,
    load,
    load_halves,
    multiply_add,
    select_lanes,
    splat,
    store,
)
from kernels.cpu.tier import has_pairs

_V16B = ir.VectorType(I8, LANES)


def _c(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _bytes(builder: Builder, address: Any, offset: Any) -> Any:
    """16 bytes as integers."""
    return builder.zext(load(builder, address, offset, _V16B, 1), V16I)


def _values(builder: Builder, codes: Any, scale: Any, offset: Any) -> Any:
    return multiply_add(builder, builder.sitofp(codes, V16F), scale, offset)


def _store_words(builder: Builder, first: Any, second: Any, out: Any, offset: Any, stride: Any) -> None:
    """Two vectors of values as one of pairs of bfloat16 where those are multiplied, else as they are, `stride` bytes
    apart."""
    if has_pairs():
        half = constant(V16I, 0x8000)
        low, high = (builder.add(builder.bitcast(values, V16I), half) for values in (first, second))
        low = builder.lshr(low, constant(V16I, 16))
        store(builder, builder.or_(low, builder.and_(high, constant(V16I, 0xFFFF0000))), out, offset)
    else:
        store(builder, first, out, offset)
        store(builder, second, out, builder.add(offset, stride))


def _parameters(builder: Builder, tile: Any, size: Any, group: Any, index: Any, bits: int) -> tuple[Any, Any]:
    """Scales and offsets of a tile's 16 places in one group."""
    scales = builder.add(tile, builder.mul(size, _c(LANES * bits // 8)))
    offsets = builder.add(scales, builder.mul(builder.sdiv(size, group), _c(2 * LANES)))
    at = builder.mul(index, _c(2 * LANES))
    return load_halves(builder, scales, at), load_halves(builder, offsets, at)


def make_expand_keys(bits: int) -> Any:
    """expand(tile, size, group, out): a tile of keys of `size` values, in groups of `group`, becomes words of 16 keys,
    as `kernels.cpu.attention_ops` reads them, without a gap."""

    @intrinsic
    def expand(typing: Any, tile: Any, size: Any, group: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            tile, size, group, out = arguments
            with cgutils.for_range(builder, builder.sdiv(size, group)) as loop:
                scale, offset = _parameters(builder, tile, size, group, loop.index, bits)
                begin = builder.mul(loop.index, group)
                with cgutils.for_range_slice(builder, begin, builder.add(begin, group), _c(2), I64) as (value, _):
                    place = builder.mul(value, _c(LANES * bits // 8))
                    first = _bytes(builder, tile, place)
                    if bits == 8:
                        second = _bytes(builder, tile, builder.add(place, _c(LANES)))
                    else:
                        second = builder.lshr(first, constant(V16I, 4))
                        first = builder.and_(first, constant(V16I, 15))
                    target = builder.mul(value, _c(2 * LANES if has_pairs() else 4 * LANES))
                    first, second = (_values(builder, codes, scale, offset) for codes in (first, second))
                    _store_words(builder, first, second, out, target, _c(4 * LANES))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return expand


def make_expand_values(bits: int) -> Any:
    """expand(tile, size, group, out): a tile of values becomes words of one or two places, `size` of them a row."""

    @intrinsic
    def expand(typing: Any, tile: Any, size: Any, group: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            tile, size, group, out = arguments
            parameters = cgutils.alloca_once(builder, V16F, size=2)
            table = builder.ptrtoint(parameters, I64)
            row = builder.mul(size, _c(4))

            def codes(place: Any, value: Any) -> Any:
                if bits == 8:
                    return _bytes(builder, tile, builder.add(builder.mul(place, size), value))
                at = builder.add(builder.mul(place, size), builder.and_(value, _c(-32)))
                packed = _bytes(builder, tile, builder.sdiv(at, _c(2)))
                shift = builder.trunc(builder.lshr(builder.and_(value, _c(16)), _c(2)), I32)
                return builder.and_(builder.lshr(packed, splat(builder, shift)), constant(V16I, 15))

            with cgutils.for_range(builder, builder.sdiv(size, group)) as loop:
                for half, vector in enumerate(_parameters(builder, tile, size, group, loop.index, bits)):
                    store(builder, vector, table, 4 * LANES * half)
                begin = builder.mul(loop.index, group)
                with cgutils.for_range_slice(builder, _c(0), _c(LANES), _c(2), I64) as (place, _):
                    places = (place, builder.add(place, _c(1)))
                    scales, offsets = (
                        [
                            splat(builder, load(builder, table, builder.add(builder.mul(p, _c(4)), _c(first)), F32))
                            for p in places
                        ]
                        for first in (0, 4 * LANES)
                    )
                    line = builder.mul(builder.sdiv(place, _c(2)) if has_pairs() else place, row)
                    end = builder.add(begin, group)
                    with cgutils.for_range_slice(builder, begin, end, _c(LANES), I64) as (value, _):
                        first, second = (
                            _values(builder, codes(p, value), scale, offset)
                            for p, scale, offset in zip(places, scales, offsets, strict=True)
                        )
                        _store_words(builder, first, second, out, builder.add(line, builder.mul(value, _c(4))), row)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return expand


@intrinsic
def mix_16(typing: Any, x: Any) -> Any:
    """16 float32 times the 16 x 16 Hadamard matrix, without its factor of 1 / 4, in place."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        [x] = arguments
        values = load(builder, x, 0, V16F)
        for half in (1, 2, 4, 8):
            signs = ir.Constant(V16F, [-1.0 if lane & half else 1.0 for lane in range(LANES)])
            partners = select_lanes(builder, values, values, [lane ^ half for lane in range(LANES)])
            values = multiply_add(builder, values, signs, partners)
        store(builder, values, x, 0)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def to_half(typing: Any, value: Any) -> Any:
    """float32 rounded to float16's bits, to nearest, ties to even."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        c = lambda value: ir.Constant(I32, value)  # noqa: E731
        bits = builder.bitcast(arguments[0], I32)
        size = builder.and_(bits, c(0x7FFFFFFF))
        odd = builder.and_(builder.lshr(size, c(13)), c(1))
        normal = builder.lshr(builder.add(builder.sub(size, c(0x38000000)), builder.add(odd, c(0xFFF))), c(13))
        # Beside 0.5 the last bit of a float32 is worth what that of float16's smallest numbers is.
        small = builder.fadd(builder.bitcast(size, F32), ir.Constant(F32, 0.5))
        small = builder.sub(builder.bitcast(small, I32), c(0x3F000000))
        half = builder.select(builder.icmp_unsigned("<", size, c(0x38800000)), small, normal)
        half = builder.select(builder.icmp_unsigned("<", size, c(0x47800000)), half, c(0x7C00))
        half = builder.select(builder.icmp_unsigned(">", size, c(0x7F800000)), c(0x7E00), half)
        half = builder.or_(half, builder.and_(builder.lshr(bits, c(16)), c(0x8000)))
        return builder.trunc(half, ir.IntType(16))

    return types.uint16(types.float32), codegen


@intrinsic
def from_half(typing: Any, bits: Any) -> Any:
    """A finite float16 as float32."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        c = lambda value: ir.Constant(I32, value)  # noqa: E731
        bits = builder.zext(arguments[0], I32)
        size = builder.bitcast(builder.shl(builder.and_(bits, c(0x7FFF)), c(13)), F32)
        scaled = builder.bitcast(builder.fmul(size, ir.Constant(F32, 2.0**112)), I32)
        sign = builder.shl(builder.and_(bits, c(0x8000)), c(16))
        return builder.bitcast(builder.or_(scaled, sign), F32)

    return types.float32(types.uint16), codegen
