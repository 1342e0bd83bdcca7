"""Packed linear layers and norms on rows of activations, compiled: each thread's share of a phase."""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from kernels.cpu.attention import padded
from kernels.cpu.compiler import compiled
from kernels.cpu.linear_ops import X_BYTES, make_tile_dot, quantize_group
from kernels.cpu.packing import GROUP, TILE
from kernels.cpu.places import Work
from kernels.cpu.pointers import as_f32
from kernels.cpu.team import take

_dot4x1, _dot4x2, _dot4x4 = (make_tile_dot(4, rows) for rows in (1, 2, 4))
_dot8x1, _dot8x2, _dot8x4 = (make_tile_dot(8, rows) for rows in (1, 2, 4))

SUMS = {"reassoc", "contract", "nsz"}
"""Sums of floats may be reordered; nothing else of fast arithmetic is allowed."""


@compiled
def dot(tile, bits, groups, codes, scales, sums, rows, out):
    """A tile of outputs of all rows, float32 [rows, 16]."""
    row = 0
    while row < rows:
        c, s, m, o = codes + row * groups * X_BYTES, scales + row * groups * 4, sums + row * groups * 8, out + row * 64
        if rows - row >= 4:
            if bits == 4:
                _dot4x4(tile, groups, c, s, m, o)
            else:
                _dot8x4(tile, groups, c, s, m, o)
            row += 4
        elif rows - row >= 2:
            if bits == 4:
                _dot4x2(tile, groups, c, s, m, o)
            else:
                _dot8x2(tile, groups, c, s, m, o)
            row += 2
        else:
            if bits == 4:
                _dot4x1(tile, groups, c, s, m, o)
            else:
                _dot8x1(tile, groups, c, s, m, o)
            row += 1


@compiled
def packed_bytes(groups, bits):
    return groups * TILE * (GROUP * bits // 8 + 4)


@compiled
def share_of(units, members):
    """Units to take at once: few enough that the threads end together."""
    return max(1, units // (8 * members))


@compiled
def linear(work, scratch, counter, members, weight, bits, bias, inputs, outputs, rows, target, stride, accumulate):
    """This thread's share of target [rows, stride] (+)= input @ weight.T + bias."""
    groups = padded(inputs, GROUP) // GROUP
    tiles = padded(outputs, TILE) // TILE
    size = packed_bytes(groups, bits)
    share = share_of(tiles, members)
    y = carray(as_f32(target), (rows, stride))
    part = carray(as_f32(scratch), (rows, TILE))
    b = carray(as_f32(bias), (outputs,))
    begin = take(counter, share)
    while begin < tiles:
        for tile in range(begin, min(begin + share, tiles)):
            dot(weight + tile * size, bits, groups, work[Work.CODES], work[Work.SCALES], work[Work.SUMS], rows, scratch)
            first = tile * TILE
            count = min(TILE, outputs - first)
            if bias != 0:
                for row in range(rows):
                    for i in range(count):
                        part[row, i] += b[first + i]
            if accumulate:
                for row in range(rows):
                    for i in range(count):
                        y[row, first + i] += part[row, i]
            else:
                for row in range(rows):
                    for i in range(count):
                        y[row, first + i] = part[row, i]
        begin = take(counter, share)


@compiled(fastmath=SUMS)
def rms_norm(x, weight, size, eps, out):
    v, w, o = carray(as_f32(x), (size,)), carray(as_f32(weight), (size,)), carray(as_f32(out), (size,))
    total = np.float32(0)
    for i in range(size):
        total += v[i] * v[i]
    inverse = np.float32(1) / np.float32(math.sqrt(total / np.float32(size) + eps))
    for i in range(size):
        o[i] = v[i] * inverse * w[i]


@compiled
def quantize_row(x, size, work, row):
    """Row `row` of the next linear layer's input; x has room for whole groups."""
    groups = padded(size, GROUP) // GROUP
    v = carray(as_f32(x), (groups * GROUP,))
    for i in range(size, groups * GROUP):
        v[i] = np.float32(0)
    for g in range(groups):
        place = row * groups + g
        quantize_group(
            x + 4 * g * GROUP,
            work[Work.CODES] + place * X_BYTES,
            work[Work.SCALES] + 4 * place,
            work[Work.SUMS] + 8 * place,
        )
