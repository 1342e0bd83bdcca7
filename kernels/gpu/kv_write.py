"""Rotary embedding and the write into the paged cache in one kernel: floats, or integers in groups.

A block holds its tokens' heads one after the other, [block_size, Hkv, head], then, of groups, their scales and offsets
as float16 [block_size, Hkv, D / size, 2]: the reference's layout, see `kernels.kv_format`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.contract import LayerCache, Plane
from kernels.kv_format import Groups

TILE = 1024
"""Values that one program handles, about: as many heads of a token as that is."""


@triton.jit
def slot_offset(slot, head, SLOTS: tl.constexpr, HEADS: tl.constexpr, BYTES: tl.constexpr, BLOCK_BYTES: tl.constexpr):
    """Where in a plane the bytes of a head in a slot begin, as int64: a pool may have more than 2^31 bytes."""
    slot = slot.to(tl.int64)
    return slot // SLOTS * BLOCK_BYTES + (slot % SLOTS * HEADS + head) * BYTES


@triton.jit
def hadamard(x, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """x [SIZE] times an orthonormal Hadamard matrix, WIDTH values at a time (both powers of 2): butterflies."""
    half: tl.constexpr = 1
    for stage in tl.static_range(WIDTH.bit_length() - 1):
        step: tl.constexpr = 1 << stage
        pairs = tl.trans(tl.reshape(x, [SIZE // (2 * step), 2, step]), 0, 2, 1)
        a, b = tl.split(pairs)
        x = tl.reshape(tl.trans(tl.join(a + b, a - b), 0, 2, 1), [SIZE])
    return x * WIDTH**-0.5
