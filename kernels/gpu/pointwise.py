"""RMS norms and gated activations: one pass over memory each, float32 inside."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.contract import Activation

GATED_BLOCK = 1024
"""Values of an activation that one program computes."""


@triton.jit
def rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    total,
    eps,
    outer_stride,
    inner_stride,
    inner,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
):
    """Row r of x, which lies at (r // inner) * outer_stride + (r % inner) * inner_stride; all else is dense."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < SIZE
    start = row // inner * outer_stride + row % inner * inner_stride
    value = tl.load(x + start + i, inside, 0.0).to(tl.float32)
    if ADDS:
        value += tl.load(residual + row * SIZE + i, inside, 0.0).to(tl.float32)
        # What is normed is the sum as it is kept.
        kept = value.to(total.dtype.element_ty)
        tl.store(total + row * SIZE + i, kept, inside)
        value = kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / SIZE + eps)
    value = value * scale * tl.load(weight + i, inside, 0.0).to(tl.float32)
    tl.store(out + row * SIZE + i, value.to(out.dtype.element_ty), inside)


@triton.jit
def gated_kernel(gate_up, out, SIZE: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + i, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * SIZE + i, inside, 0.0).to(tl.float32)
    # The GELU's 0.5 * (1 + tanh(z)) is sigmoid(2 * z).
    steepness = gate if SILU else 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    tl.store(out + row * SIZE + i, (gate * tl.sigmoid(steepness) * up).to(out.dtype.element_ty), inside)


def norm_constants(size: int, adds: bool) -> dict[str, Any]:
    """What the norm of rows of so many values is compiled for."""
    block = triton.next_power_of_2(size)
    warps = max(1, min(16, block // 512))
    return {"SIZE": size, "BLOCK": block, "ADDS": adds, "num_warps": warps, "enable_fp_fusion": True}


def gated_constants(size: int, activation: Activation) -> dict[str, Any]:
    """What the activation of rows of so many values is compiled for."""
    block = min(GATED_BLOCK, triton.next_power_of_2(size))
    return {"SIZE": size, "BLOCK": block, "SILU": activation == "silu", "num_warps": 4, "enable_fp_fusion": True}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N], or [T, H, N] that may be a part of wider rows; N at most 16,384."""
    outer, inner_stride, inner = x.stride(0), 0, 1
    if x.dim() == 3:
        inner_stride, inner = x.stride(1), x.shape[1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _norm(x, None, weight, out, None, eps, outer, inner_stride, inner)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, residual [T, N] -> (rms_norm(x + residual), x + residual); N at most 16,384."""
    out, total = torch.empty_like(x), torch.empty_like(x)
    _norm(x, residual, weight, out, total, eps, x.stride(0), 0, 1)
    return out, total


def _norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    out: Tensor,
    total: Tensor | None,
    eps: float,
    outer_stride: int,
    inner_stride: int,
    inner: int,
) -> None:
    size = weight.shape[0]
    rms_norm_kernel[(out.numel() // size,)](
        x,
        residual,
        weight,
        out,
        total,
        eps,
        outer_stride,
        inner_stride,
        inner,
        **norm_constants(size, residual is not None),
    )


def gated(gate_up: Tensor, activation: Activation) -> Tensor:
    """gate_up [T, 2F], gate then up -> activation(gate) * up, [T, F]."""
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    constants = gated_constants(size, activation)
    gated_kernel[(rows, triton.cdiv(size, constants["BLOCK"]))](gate_up, out, **constants)
    return out
