"""Native operations on rows of activations: quantizing them, packed linear layers, gated activations.

All addresses are int64 and every operation is called with plain integers, inside a compiled function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.ir import (
    DOTS,
    F32,
    I8,
    I32,
    I64,
    LANES,
    V16F,
    V16I,
    V64B,
    Builder,
    at,
    call,
    constant,
    exponential,
    fold,
    load,
    load_halves,
    maximum,
    multiply_add,
    splat,
    store,
)
from kernels.cpu.tier import tier


def make_tile_dot(bits: int, rows: int) -> Any:
    """The kernel of a packed linear layer: one tile of 16 outputs (`kernels.cpu.packing`) times `rows` rows.

    dot(tile, groups, x, x_scales, x_sums, out): x int8 [rows, groups * 32], its scales and the sums of each group
    (scaled) float32 [rows, groups], out float32 [rows, 16].
    """
    code_bytes = 32 * LANES * bits // 8
    group_bytes = code_bytes + 2 * LANES * (2 if bits == 4 else 1)

    @intrinsic
    def tile_dot(typing: Any, tile: Any, groups: Any, x: Any, x_scales: Any, x_sums: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            tile, groups, x, x_scales, x_sums, out = arguments
            dot = DOTS[tier()]
            c = lambda value: ir.Constant(I64, value)  # noqa: E731
            results = [cgutils.alloca_once_value(builder, constant(V16F, 0.0)) for _ in range(rows)]
            x_stride, scale_stride = builder.mul(groups, c(32)), builder.mul(groups, c(4))
            with cgutils.for_range(builder, groups) as loop:
                g = loop.index
                data = builder.add(tile, builder.mul(g, c(group_bytes)))
                x_at = [
                    builder.add(x, builder.add(builder.mul(g, c(32)), builder.mul(x_stride, c(row))))
                    for row in range(rows)
                ]
                sums = [constant(V16I, 0)] * rows
                for quad, weights in enumerate(_weights(builder, data, bits)):
                    for row in range(rows):
                        sums[row] = dot(builder, sums[row], weights, load(builder, x_at[row], 4 * quad, I32))
                scale = load_halves(builder, data, code_bytes)
                if bits == 4:
                    offset = load_halves(builder, data, code_bytes + 2 * LANES)
                for row in range(rows):
                    place = builder.add(builder.mul(g, c(4)), builder.mul(scale_stride, c(row)))
                    x_scale = splat(builder, load(builder, x_scales, place, F32))
                    x_sum = splat(builder, load(builder, x_sums, place, F32))
                    product = builder.sitofp(sums[row], V16F)
                    result = builder.load(results[row])
                    if bits == 4:
                        result = multiply_add(builder, scale, builder.fmul(product, x_scale), result)
                        result = multiply_add(builder, offset, x_sum, result)
                    else:  # stored with 128 added
                        shift = builder.fmul(x_sum, constant(V16F, -128.0))
                        result = multiply_add(builder, scale, multiply_add(builder, product, x_scale, shift), result)
                    builder.store(result, results[row])
            for row in range(rows):
                builder.store(builder.load(results[row]), at(builder, out, 4 * LANES * row, V16F), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return tile_dot


def _weights(builder: Builder, data: Any, bits: int) -> Any:
    """A group's weights, 4 inputs of 16 outputs at a time."""
    for position in range(32 * LANES * bits // 8 // 64):
        packed = load(builder, data, 64 * position, V64B, 1)
        if bits == 8:
            yield packed
        else:
            yield builder.and_(packed, constant(V64B, 0x0F))
            yield builder.lshr(packed, constant(V64B, 4))


@intrinsic
def quantize_group(typing: Any, x: Any, codes: Any, scale: Any, total: Any) -> Any:
    """Quantize 32 float32 at x to int8 codes; write their scale and the scaled sum of the codes, float32."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        x, codes, scale, total = arguments
        halves = [load(builder, x, 4 * LANES * half, V16F) for half in range(2)]
        sizes = [call(builder, "llvm.fabs.v16f32", V16F, half) for half in halves]
        largest = fold(builder, maximum(builder, *sizes), lambda a, b: maximum(builder, a, b))
        step = builder.fmul(largest, ir.Constant(F32, 1 / 127))
        nothing = builder.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
        inverse = builder.select(nothing, ir.Constant(F32, 0.0), builder.fdiv(ir.Constant(F32, 127.0), largest))
        rounded = [
            call(builder, "llvm.rint.v16f32", V16F, builder.fmul(half, splat(builder, inverse))) for half in halves
        ]
        for half, values in enumerate(rounded):
            whole = builder.fptosi(values, V16I)
            store(builder, builder.trunc(whole, ir.VectorType(I8, LANES)), codes, LANES * half, align=1)
        summed = fold(builder, builder.fadd(*rounded), lambda a, b: builder.fadd(a, b))
        store(builder, step, scale, 0)
        store(builder, builder.fmul(summed, step), total, 0)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def gate_16(typing: Any, gate: Any, up: Any, out: Any, gelu: Any) -> Any:
    """out = silu(gate) * up, or with `gelu` gelu_tanh(gate) * up, of 16 float32."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        gate, up, out, gelu = arguments
        g, u = load(builder, gate, 0, V16F), load(builder, up, 0, V16F)
        # Both are g * sigmoid(z): gelu's tanh(y) is 2 * sigmoid(2 * y) - 1.
        cubic = multiply_add(
            builder,
            builder.fmul(g, builder.fmul(g, g)),
            constant(V16F, 0.044715 * 1.5957691216057308),
            builder.fmul(g, constant(V16F, 1.5957691216057308)),
        )
        z = builder.select(builder.icmp_signed("!=", gelu, ir.Constant(I64, 0)), cubic, g)
        e = exponential(builder, builder.fneg(z))
        store(builder, builder.fdiv(builder.fmul(g, u), builder.fadd(e, constant(V16F, 1.0))), out, 0)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen
