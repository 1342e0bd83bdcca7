"""LLVM building blocks for the native kernels: vectors of 16 lanes at raw addresses, and the dot product of bytes.

The vector code is LLVM's generic kind, which every CPU gets in its own width; only the dot product of bytes and the
conversion from float16 differ by tier (`kernels.cpu.tier`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from kernels.cpu.tier import tier

LANES = 16

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
HALF, F32 = ir.HalfType(), ir.FloatType()
V16F, V16H, V16I = ir.VectorType(F32, LANES), ir.VectorType(HALF, LANES), ir.VectorType(I32, LANES)
V64B = ir.VectorType(I8, 4 * LANES)


class _BFloat16(ir.Type):
    """llvmlite has none."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


V32B = ir.VectorType(_BFloat16(), 2 * LANES)

Builder = Any


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def at(builder: Builder, address: Any, offset: Any, kind: ir.Type) -> Any:
    if isinstance(offset, int):
        offset = ir.Constant(I64, offset)
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def load(builder: Builder, address: Any, offset: Any, kind: ir.Type, align: int = 4) -> Any:
    return builder.load(at(builder, address, offset, kind), align=align)


def splat(builder: Builder, value: Any, lanes: int = LANES) -> Any:
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def select_lanes(builder: Builder, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def call(builder: Builder, name: str, result: ir.Type, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def multiply_add(builder: Builder, a: Any, b: Any, c: Any) -> Any:
    return call(builder, "llvm.fmuladd.v16f32", V16F, a, b, c)


# The dot product of bytes: sums [16 x i32], weights [16 x 4 x u8], activations 4 x i8 in one i32 for all lanes


def _dot_avx512_vnni(builder: Builder, sums: Any, weights: Any, x: Any) -> Any:
    spread = builder.bitcast(splat(builder, x), V64B)
    return call(builder, "llvm.x86.avx512.vpdpbusd.512", V16I, sums, weights, spread)


def _dot_avx_vnni(builder: Builder, sums: Any, weights: Any, x: Any) -> Any:
    bytes32, lanes8 = ir.VectorType(I8, 32), ir.VectorType(I32, 8)
    spread = builder.bitcast(splat(builder, x, 8), bytes32)
    halves = [
        call(
            builder,
            "llvm.x86.avx512.vpdpbusd.256",
            lanes8,
            select_lanes(builder, sums, sums, range(first, first + 8)),
            select_lanes(builder, weights, weights, range(4 * first, 4 * first + 32)),
            spread,
        )
        for first in (0, 8)
    ]
    return select_lanes(builder, halves[0], halves[1], range(16))


def _dot_avx2(builder: Builder, sums: Any, weights: Any, x: Any) -> Any:
    """Products of 16-bit pairs: those of 8-bit ones (vpmaddubsw) would saturate."""
    words = ir.VectorType(I16, 32)
    weights = builder.bitcast(weights, words)
    spread = builder.bitcast(splat(builder, x), words)
    eight = constant(words, 8)
    pairs = (
        (builder.and_(weights, constant(words, 0xFF)), builder.ashr(builder.shl(spread, eight), eight)),
        (builder.lshr(weights, eight), builder.ashr(spread, eight)),
    )
    for w, v in pairs:
        halves = [
            call(
                builder,
                "llvm.x86.avx2.pmadd.wd",
                ir.VectorType(I32, 8),
                *(select_lanes(builder, side, side, range(first, first + 16)) for side in (w, v)),
            )
            for first in (0, 16)
        ]
        sums = builder.add(sums, select_lanes(builder, halves[0], halves[1], range(16)))
    return sums


def _dot_portable(builder: Builder, sums: Any, weights: Any, x: Any) -> Any:
    weights = builder.bitcast(weights, V16I)
    for byte in range(4):
        w = builder.and_(builder.lshr(weights, constant(V16I, 8 * byte)), constant(V16I, 0xFF))
        v = builder.sext(builder.trunc(builder.lshr(x, ir.Constant(I32, 8 * byte)), I8), I32)
        sums = builder.add(sums, builder.mul(w, splat(builder, v)))
    return sums


DOTS = {
    "avx512_bf16": _dot_avx512_vnni,
    "avx512_vnni": _dot_avx512_vnni,
    "avx_vnni": _dot_avx_vnni,
    "avx2": _dot_avx2,
    "portable": _dot_portable,
}


def load_halves(builder: Builder, address: Any, offset: Any) -> Any:
    """16 float16 as float32."""
    if tier() != "portable":
        return builder.fpext(load(builder, address, offset, V16H, 2), V16F)
    # Without an instruction for it: shift the fields into float32's places, then correct the exponent's bias.
    bits = builder.zext(load(builder, address, offset, ir.VectorType(I16, LANES), 2), V16I)
    magnitude = builder.shl(builder.and_(bits, constant(V16I, 0x7FFF)), constant(V16I, 13))
    scaled = builder.fmul(builder.bitcast(magnitude, V16F), constant(V16F, 2.0**112))
    sign = builder.shl(builder.and_(bits, constant(V16I, 0x8000)), constant(V16I, 16))
    return builder.bitcast(builder.or_(builder.bitcast(scaled, V16I), sign), V16F)


def store(builder: Builder, value: Any, address: Any, offset: Any, align: int = 4) -> None:
    builder.store(value, at(builder, address, offset, value.type), align=align)


def maximum(builder: Builder, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def fold(builder: Builder, vector: Any, combine: Any) -> Any:
    """All lanes of a vector combined into one value."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        low = select_lanes(builder, vector, vector, range(half))
        high = select_lanes(builder, vector, vector, range(half, 2 * half))
        vector = combine(low, high)
    return builder.extract_element(vector, ir.Constant(I32, 0))


def exponential(builder: Builder, x: Any) -> Any:
    """e^x of 16 lanes, to about 1e-7; 0 below -87. Cephes' reduction and polynomial (Moshier, expf)."""
    tiny = builder.fcmp_ordered("<", x, constant(V16F, -87.0))
    x = builder.select(tiny, constant(V16F, -87.0), x)
    x = builder.select(builder.fcmp_ordered(">", x, constant(V16F, 88.0)), constant(V16F, 88.0), x)
    n = call(builder, "llvm.rint.v16f32", V16F, builder.fmul(x, constant(V16F, 1.44269504088896341)))
    r = multiply_add(builder, n, constant(V16F, -0.693359375), x)
    r = multiply_add(builder, n, constant(V16F, 2.12194440e-4), r)
    p = constant(V16F, 1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = multiply_add(builder, p, r, constant(V16F, term))
    p = multiply_add(builder, builder.fmul(p, r), r, builder.fadd(r, constant(V16F, 1.0)))
    power = builder.shl(builder.add(builder.fptosi(n, V16I), constant(V16I, 127)), constant(V16I, 23))
    return builder.select(tiny, constant(V16F, 0.0), builder.fmul(p, builder.bitcast(power, V16F)))


def multiply_pairs(builder: Builder, sums: Any, a: Any, b: Any) -> Any:
    """sums [16 x f32] + the dot products of pairs of bfloat16 in a and b [16 x i32]."""
    pairs = [builder.bitcast(words, V32B) for words in (a, b)]
    return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", V16F, sums, *pairs)


def to_bfloat16(builder: Builder, values: Any) -> Any:
    """float32 rounded to nearest, ties to even, as 16-bit integers."""
    bits = builder.bitcast(values, ir.VectorType(I32, values.type.count))
    c = lambda value: constant(bits.type, value)  # noqa: E731
    odd = builder.and_(builder.lshr(bits, c(16)), c(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, c(0x7FFF))), c(16))
    return builder.trunc(rounded, ir.VectorType(I16, values.type.count))
