"""Rotary embedding and the write into the paged cache in one kernel: floats, or integers in groups."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.contract import LayerCache, Plane
from kernels.kv_format import Groups

TILE = 1024
"""Values of a program: as many heads of one token, about."""


@triton.jit
def slot_offset(slot, head, SLOTS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Where a head of a slot begins in a plane, as int64: a pool may have more than 2^31 values.

    SLOTS of a block, HEADS of a slot, SIZE of a head; BLOCK_SIZE is the distance of two blocks.
    """
    slot = slot.to(tl.int64)
    return slot // SLOTS * BLOCK_SIZE + (slot % SLOTS * HEADS + head) * SIZE


@triton.jit
def hadamard(x, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """x [SIZE] times an orthonormal Hadamard matrix, 2^STAGES values at a time, by butterflies."""
    for stage in tl.static_range(STAGES):
        pairs = tl.trans(tl.reshape(x, [SIZE // (2 << stage), 2, 1 << stage]), 0, 2, 1)
        a, b = tl.split(pairs)
        x = tl.reshape(tl.trans(tl.join(a + b, a - b), 0, 2, 1), [SIZE])
    return x * (1 << STAGES) ** -0.5


@triton.jit
def nearest(x):
    """Rounded to the nearest integer, ties to even, for 0 <= x < 2^22: larger floats have no room for a fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def store_heads(
    x,
    live,
    plane,
    parameters,
    slot,
    head,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_BYTES: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    H: tl.constexpr,
    DP: tl.constexpr,
    GP: tl.constexpr,
):
    """x [H, DP] float32 into a slot, heads [H] where `live`. BITS is 0 for floats, whose plane has their type; else the
    plane is of bytes, `parameters` the same memory as float16. GP is GROUP, or DP where one group is the whole head."""
    if BITS == 0:
        d = tl.arange(0, DP)[None, :]
        width: tl.constexpr = plane.dtype.element_ty.primitive_bitwidth // 8
        start = slot_offset(slot, head, SLOTS, HEADS, D, BLOCK_BYTES // width)
        tl.store(plane + start[:, None] + d, x.to(plane.dtype.element_ty), live[:, None] & (d < D))
    else:
        if STAGES > 0:
            x = tl.reshape(hadamard(tl.reshape(x, [H * DP]), H * DP, STAGES), [H, DP])
        N: tl.constexpr = DP // GP
        grouped = tl.reshape(x, [H, N, GP])
        g, s = tl.arange(0, N)[None, :, None], tl.arange(0, GP)[None, None, :]
        inside = (g * GP + s < D) & (s < GROUP)
        low = tl.min(tl.where(inside, grouped, float("inf")), 2)
        high = tl.max(tl.where(inside, grouped, float("-inf")), 2)
        real = tl.arange(0, N)[None, :] * GP < D
        low, high = tl.where(real, low, 0.0), tl.where(real, high, 0.0)
        steps: tl.constexpr = (1 << BITS) - 1
        scale, offset = (tl.div_rn(high - low, float(steps))).to(tl.float16), low.to(tl.float16)

        places: tl.constexpr = D // GROUP
        codes_bytes: tl.constexpr = SLOTS * HEADS * D * BITS // 8
        start = slot_offset(slot, head, SLOTS, HEADS, places * 2, BLOCK_BYTES // 2) + codes_bytes // 2
        where = start[:, None] + tl.arange(0, N)[None, :] * 2
        tl.store(parameters + where, scale, live[:, None] & real)
        tl.store(parameters + where + 1, offset, live[:, None] & real)

        scale, offset = scale.to(tl.float32)[:, :, None], offset.to(tl.float32)[:, :, None]
        code = tl.where(scale == 0.0, 0.0, tl.div_rn(grouped - offset, tl.where(scale == 0.0, 1.0, scale)))
        code = tl.reshape(nearest(tl.minimum(tl.maximum(code, 0.0), float(steps))), [H, DP]).to(tl.uint8)
        start = slot_offset(slot, head, SLOTS, HEADS, D * BITS // 8, BLOCK_BYTES)
        if BITS == 4:
            first, second = tl.split(tl.reshape(code, [H, DP // 2, 2]))
            d = tl.arange(0, DP // 2)[None, :]
            tl.store(plane + start[:, None] + d, first | (second << 4), live[:, None] & (d < D // 2))
        else:
            d = tl.arange(0, DP)[None, :]
            tl.store(plane + start[:, None] + d, code, live[:, None] & (d < D))


@triton.jit
def rotary_kv_write_kernel(
    heads,
    cos,
    sin,
    slots,
    q_out,
    keys,
    key_parameters,
    values,
    value_parameters,
    row_stride,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    SLOTS: tl.constexpr,
    KEY_BYTES: tl.constexpr,
    KEY_BITS: tl.constexpr,
    KEY_GROUP: tl.constexpr,
    KEY_STAGES: tl.constexpr,
    VALUE_BYTES: tl.constexpr,
    VALUE_BITS: tl.constexpr,
    VALUE_GROUP: tl.constexpr,
    VALUE_STAGES: tl.constexpr,
    H: tl.constexpr,
    DP: tl.constexpr,
    KEY_GP: tl.constexpr,
    VALUE_GP: tl.constexpr,
):
    """A program takes H heads of one token: of its queries, of its keys, or of its values, in this order."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    q_tiles: tl.constexpr = (HQ + H - 1) // H
    kv_tiles: tl.constexpr = (HKV + H - 1) // H
    kind = tl.where(tile < q_tiles, 0, tl.where(tile < q_tiles + kv_tiles, 1, 2))
    first = (tile - tl.where(kind == 0, 0, q_tiles + (kind - 1) * kv_tiles)) * H
    head = first + tl.arange(0, H)
    live = head < tl.where(kind == 0, HQ, HKV)
    d = tl.arange(0, DP)[None, :]
    inside = live[:, None] & (d < D)
    source = heads + row * row_stride + tl.where(kind == 0, 0, HQ + (kind - 1) * HKV) * D + head[:, None] * D
    x = tl.load(source + d, inside, 0.0).to(tl.float32)
    slot = tl.load(slots + row)
    if kind == 2:
        if slot >= 0:
            store_heads(
                x, live, values, value_parameters, slot, head,
                SLOTS, HKV, D, VALUE_BYTES, VALUE_BITS, VALUE_GROUP, VALUE_STAGES, H, DP, VALUE_GP,
            )  # fmt: skip
    else:
        partner = tl.load(source + (d + D // 2) % D, inside, 0.0).to(tl.float32)
        c = tl.load(cos + row * D + d, d < D, 0.0).to(tl.float32)
        s = tl.load(sin + row * D + d, d < D, 0.0).to(tl.float32)
        x = x * c + partner * s
        if kind == 0:
            if KEY_STAGES > 0:
                x = tl.reshape(hadamard(tl.reshape(x, [H * DP]), H * DP, KEY_STAGES), [H, DP])
            tl.store(q_out + (row * HQ + head[:, None]) * D + d, x.to(q_out.dtype.element_ty), inside)
        else:
            if slot >= 0:
                store_heads(
                    x, live, keys, key_parameters, slot, head,
                    SLOTS, HKV, D, KEY_BYTES, KEY_BITS, KEY_GROUP, KEY_STAGES, H, DP, KEY_GP,
                )  # fmt: skip


def rotary_kv_write(heads: Tensor, cos: Tensor, sin: Tensor, layer: LayerCache, slots: Tensor) -> Tensor:
    """See `kernels.contract.Kernels.rotary_kv_write`. A row whose slot is negative is not written."""
    rows, n_heads, head_dim = heads.shape
    n_kv_head = layer.keys.n_kv_head
    n_head = n_heads - 2 * n_kv_head
    q = torch.empty(rows, n_head, head_dim, dtype=heads.dtype, device=heads.device)
    constants = launch_constants(layer, n_head)
    tiles = triton.cdiv(n_head, constants["H"]) + 2 * triton.cdiv(n_kv_head, constants["H"])
    memory = (part for plane in layer for part in _memory(plane))
    rotary_kv_write_kernel[(rows, tiles)](heads, cos, sin, slots, q, *memory, heads.stride(0), **constants)
    return q


def launch_constants(layer: LayerCache, n_head: int) -> dict[str, Any]:
    """What the kernel is compiled for."""
    head_dim, n_kv_head = layer.keys.head_dim, layer.keys.n_kv_head
    padded = triton.next_power_of_2(head_dim)
    heads = max(1, min(TILE // padded, triton.next_power_of_2(n_head)))
    constants: dict[str, Any] = {
        "HQ": n_head,
        "HKV": n_kv_head,
        "D": head_dim,
        "SLOTS": layer.keys.block_size,
        "H": heads,
        "DP": padded,
        "num_warps": max(1, heads * padded // 256),
        "enable_fp_fusion": True,
    }
    for name, plane in zip(("KEY", "VALUE"), layer, strict=True):
        groups = plane.storage if isinstance(plane.storage, Groups) else Groups(0, head_dim)
        whole = groups.size == head_dim
        constants |= {
            f"{name}_BYTES": plane.blocks.shape[1],
            f"{name}_BITS": groups.bits,
            f"{name}_GROUP": groups.size,
            f"{name}_STAGES": (head_dim & -head_dim).bit_length() - 1 if groups.rotated else 0,
            f"{name}_GP": padded if whole else groups.size,
        }
    return constants


def _memory(plane: Plane) -> tuple[Tensor, Tensor | None]:
    """A plane as its floats, or as codes and parameters."""
    if isinstance(plane.storage, Groups):
        return plane.blocks, plane.blocks.view(torch.float16)
    return plane.blocks.view(plane.storage), None
