"""Keys and values stored as integers in groups, compiled: written a token at a time, read a tile at a time. What lies
where is told in `kernels.cpu.group_ops`."""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from kernels.cpu.compiler import compiled
from kernels.cpu.group_ops import from_half, make_expand_keys, make_expand_values, mix_16, to_half
from kernels.cpu.ir import LANES
from kernels.cpu.pointers import as_f32, as_u8, as_u16

_expand_keys_4, _expand_keys_8 = make_expand_keys(4), make_expand_keys(8)
_expand_values_4, _expand_values_8 = make_expand_values(4), make_expand_values(8)


@compiled
def tile_bytes(size: int, bits: int, group: int) -> int:
    """Of 16 places of one head."""
    return LANES * (size * bits // 8 + 4 * (size // group))


@compiled
def rotate(x, size):
    """`kernels.kv_format.rotate` of float32 [size] at address x, in place."""
    width = size & -size
    for i in range(0, size, LANES):
        mix_16(x + 4 * i)
    values = carray(as_f32(x), (size,))
    half = LANES
    while half < width:
        for begin in range(0, size, 2 * half):
            for i in range(begin, begin + half):
                a, b = values[i], values[i + half]
                values[i] = a + b
                values[i + half] = a - b
        half *= 2
    values *= np.float32(1 / math.sqrt(width))


@compiled
def keep_keys(tile, place, x, size, bits, group):
    """Write a key, float32 [size] at address x, to its place in a tile."""
    values = carray(as_f32(x), (size,))
    codes = carray(as_u8(tile), (LANES * size * bits // 8,))
    for g in range(size // group):
        offset, steps_per_unit = _keep_parameters(tile, place, values, size, bits, group, g)
        for i in range(g * group, (g + 1) * group):
            code = _code(values[i], offset, steps_per_unit, bits)
            if bits == 8:
                codes[i * LANES + place] = code
            elif i % 2 == 0:
                codes[i // 2 * LANES + place] = code
            else:
                codes[i // 2 * LANES + place] |= code << 4


@compiled
def keep_values(tile, place, x, size, bits, group, mate):
    """Write a value, float32 [size] at address x, to its place in a tile; with `mate`, zero to the next place."""
    values = carray(as_f32(x), (size,))
    codes = carray(as_u8(tile), (LANES, size * bits // 8))
    for g in range(size // group):
        offset, steps_per_unit = _keep_parameters(tile, place, values, size, bits, group, g)
        for i in range(g * group, (g + 1) * group):
            code = _code(values[i], offset, steps_per_unit, bits)
            if bits == 8:
                codes[place, i] = code
            elif i % 32 < 16:
                codes[place, i // 32 * 16 + i % 16] = code
            else:
                codes[place, i // 32 * 16 + i % 16] |= code << 4
    if mate and place % 2 == 0:
        _parameters(tile, size, bits, group)[:, :, place + 1] = np.uint16(0)


@compiled
def _parameters(tile, size, bits, group):
    """Scales and offsets, float16's bits."""
    return carray(as_u16(tile + LANES * size * bits // 8), (2, size // group, LANES))


@compiled
def _keep_parameters(tile, place, values, size, bits, group, g):
    """Of one group; returns its offset and 1 / its scale as they will be read."""
    low = high = values[g * group]
    for i in range(g * group + 1, (g + 1) * group):
        low, high = min(low, values[i]), max(high, values[i])
    scale, offset = to_half(np.float32((high - low) / np.float32(2**bits - 1))), to_half(low)
    parameters = _parameters(tile, size, bits, group)
    parameters[0, g, place], parameters[1, g, place] = scale, offset
    step = from_half(scale)
    return from_half(offset), np.float32(0) if step == 0 else np.float32(1) / step


@compiled
def _code(value, offset, steps_per_unit, bits):
    code = np.rint((value - offset) * steps_per_unit)
    return np.uint8(min(max(code, np.float32(0)), np.float32(2**bits - 1)))


@compiled
def expand_keys(tile, size, bits, group, out):
    if bits == 8:
        _expand_keys_8(tile, size, group, out)
    else:
        _expand_keys_4(tile, size, group, out)


@compiled
def expand_values(tile, size, bits, group, out):
    if bits == 8:
        _expand_values_8(tile, size, group, out)
    else:
        _expand_values_4(tile, size, group, out)
