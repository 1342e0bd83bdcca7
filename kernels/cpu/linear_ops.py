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

X_BYTES = 64
"""Of a group of quantized activations."""


def make_tile_dot(bits: int, rows: int) -> Any:
    """The kernel of a packed linear layer: one tile of 16 outputs (`kernels.cpu.packing`) times `rows` rows.

    dot(tile, groups, x, x_scales, x_sums, out): x, x_scales and x_sums as `quantize_group` leaves them, [rows, groups];
    out float32 [rows, 16]. Weights of 4 bits take the coarse codes alone, those of 8 the fine ones too.
    """
    code_bytes = 32 * LANES * bits // 8
    group_bytes = code_bytes + 4 * LANES

    @intrinsic
    def tile_dot(typing: Any, tile: Any, groups: Any, x: Any, x_scales: Any, x_sums: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            tile, groups, x, x_scales, x_sums, out = arguments
            dot = DOTS[tier()]
            c = lambda value: ir.Constant(I64, value)  # noqa: E731
            results = [cgutils.alloca_once_value(builder, constant(V16F, 0.0)) for _ in range(rows)]
            x_stride, scale_stride = builder.mul(groups, c(X_BYTES)), builder.mul(groups, c(4))
            with cgutils.for_range(builder, groups) as loop:
                g = loop.index
                data = builder.add(tile, builder.mul(g, c(group_bytes)))
                x_at = [
                    builder.add(x, builder.add(builder.mul(g, c(X_BYTES)), builder.mul(x_stride, c(row))))
                    for row in range(rows)
                ]
                sums = [constant(V16I, 0)] * rows
                fine = [constant(V16I, 0)] * rows
                for quad, weights in enumerate(_weights(builder, data, bits)):
                    for row in range(rows):
                        sums[row] = dot(builder, sums[row], weights, load(builder, x_at[row], 4 * quad, I32))
                        if bits == 8:
                            fine[row] = dot(builder, fine[row], weights, load(builder, x_at[row], 32 + 4 * quad, I32))
                scale = load_halves(builder, data, code_bytes)
                offset = load_halves(builder, data, code_bytes + 2 * LANES)
                for row in range(rows):
                    place = builder.add(builder.mul(g, c(4)), builder.mul(scale_stride, c(row)))
                    x_scale = splat(builder, load(builder, x_scales, place, F32))
                    which = builder.add(builder.mul(place, c(2)), c(0 if bits == 4 else 4))
                    x_sum = splat(builder, load(builder, x_sums, which, F32))
                    whole = sums[row]
                    if bits == 8:
                        whole = builder.add(builder.shl(whole, constant(V16I, 8)), fine[row])
                        x_scale = builder.fmul(x_scale, constant(V16F, 1 / 256))
                    product = builder.fmul(builder.sitofp(whole, V16F), x_scale)
                    result = multiply_add(builder, scale, product, builder.load(results[row]))
                    builder.store(multiply_add(builder, offset, x_sum, result), results[row])
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
    """Quantize 32 float32 at x: 32 coarse codes and 32 fine ones, int8, x = scale * (coarse + fine / 256), of which the
    coarse alone are x to the nearest code; write the scale, and what the coarse codes and both sum up to: an offset
    must be multiplied with the sum of the very same codes, or their errors do not cancel. All float32."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        x, codes, scale, total = arguments
        halves = [load(builder, x, 4 * LANES * half, V16F) for half in range(2)]
        sizes = [call(builder, "llvm.fabs.v16f32", V16F, half) for half in halves]
        largest = fold(builder, maximum(builder, *sizes), lambda a, b: maximum(builder, a, b))
        nothing = builder.fcmp_ordered("==", largest, ir.Constant(F32, 0.0))
        steps = builder.fdiv(ir.Constant(F32, 127.0 * 256), largest)
        steps = splat(builder, builder.select(nothing, ir.Constant(F32, 0.0), steps))
        narrow = ir.VectorType(I8, LANES)
        step = builder.fmul(largest, ir.Constant(F32, 1 / 127))
        coarse_sum, whole_sum = constant(V16I, 0), constant(V16I, 0)
        for half, values in enumerate(halves):
            rounded = call(builder, "llvm.rint.v16f32", V16F, builder.fmul(values, steps))
            whole = builder.fptosi(rounded, V16I)
            coarse = builder.ashr(builder.add(whole, constant(V16I, 128)), constant(V16I, 8))
            fine = builder.sub(whole, builder.shl(coarse, constant(V16I, 8)))
            store(builder, builder.trunc(coarse, narrow), codes, LANES * half, align=1)
            store(builder, builder.trunc(fine, narrow), codes, 32 + LANES * half, align=1)
            coarse_sum, whole_sum = builder.add(coarse_sum, coarse), builder.add(whole_sum, whole)
        store(builder, step, scale, 0)
        for place, (codes_sum, unit) in enumerate(((coarse_sum, 1.0), (whole_sum, 1 / 256))):
            summed = builder.sitofp(fold(builder, codes_sum, lambda a, b: builder.add(a, b)), F32)
            store(builder, builder.fmul(summed, builder.fmul(step, ir.Constant(F32, unit))), total, 4 * place)
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
