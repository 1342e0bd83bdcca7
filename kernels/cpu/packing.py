"""Weights in few bits, laid out as the native kernels read them.

A weight [out, in] is quantized in groups of 32 inputs: `scale * code + offset` with float16 scale and offset and codes
of 4 or 8 bits. The grids that GGUF's Q4_0, Q4_1 and Q8_0 choose for the values (github.com/ggml-org/ggml, docs/gguf.md)
are among those tried, so that weights which came from such a file are packed as good as without loss.

A tile holds 16 outputs and all their inputs: group after group its codes, 16 scales and 16 offsets, one stream of bytes
that the hardware can read ahead. Codes are [8 quads, 16 outputs, 4 inputs] bytes; in int4 quads 2i and 2i + 1 share 64
bytes, the even one in the low halves. Outputs are padded to whole tiles and inputs to whole groups, with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32
TILE = 16
SLICE = 4096
"""Rows packed at a time: the temporaries are many times as large."""
LAYOUT = 4
"""Changes whenever packed bytes would be others, or read differently."""

_HALF_MAX = torch.finfo(torch.float16).max


class Quantized(NamedTuple):
    """N outputs, G groups of 32 inputs."""

    codes: Tensor
    """[N, G, 32] uint8"""
    scales: Tensor
    """[N, G] float16"""
    offsets: Tensor
    """[N, G] float16"""

    def dequantize(self) -> Tensor:
        """[N, G * 32] float32."""
        return _values(self.codes, self.scales, self.offsets).flatten(1)


def tile_bytes(inputs: int, bits: int) -> int:
    """Of one tile."""
    return -(-inputs // GROUP) * TILE * (GROUP * bits // 8 + 4)


def quantize(weight: Tensor, bits: int) -> Quantized:
    """A weight [N, K] in any floating dtype, each group on the nearest of the grids tried."""
    groups = F.pad(weight.float(), (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    flat = groups.flatten(0, 1)
    codes = torch.zeros_like(flat, dtype=torch.uint8)
    scales, offsets = torch.zeros(2, len(flat), dtype=torch.float16)
    least = torch.full((len(flat),), float("inf"))
    left = torch.arange(len(flat))
    for scale, offset in _grids(flat, bits):
        values, scale, offset = flat[left], scale[left], offset[left]
        code = _codes(values, scale, offset, 2**bits - 1)
        # Compared as they are stored: what the grid holds may have been rounded since.
        error = (_values(code, scale, offset).to(weight.dtype).float() - values).square_().sum(-1)
        better = error < least[left]
        target = left[better]
        codes[target], scales[target], offsets[target] = code[better].to(torch.uint8), scale[better], offset[better]
        least[target] = error[better]
        left = left[least[left] > 0]
        if not len(left):
            break
    shape = groups.shape[:2]
    return Quantized(codes.view(groups.shape), scales.view(shape), offsets.view(shape))


def _grids(groups: Tensor, bits: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Scales and offsets to try for groups [M, 32], float16."""
    low, high = groups.aminmax(dim=-1)
    # From the least value to the greatest, as Q4_1.
    for scale in _neighbours((high - low) / (2**bits - 1)):
        yield scale, _half(low)
    if bits == 4:  # Q4_0: the value of the largest magnitude is -8 scales
        extreme = torch.where(high > -low, high, low)
        yield _half(extreme / -8), _half(extreme)
    else:  # Q8_0: the largest magnitude is 127 scales
        for scale in _neighbours(torch.maximum(high, -low) / 127):
            yield scale, _half(-128 * scale.float())


def _neighbours(scale: Tensor) -> Iterator[Tensor]:
    """The float16 numbers around a scale, which cannot be read off exactly; positive ones count like their bits."""
    bits = _half(scale).view(torch.int16)
    for step in (0, 1, -1):
        yield (bits + step).clamp_(min=0).view(torch.float16)


def _half(values: Tensor) -> Tensor:
    return values.clamp(-_HALF_MAX, _HALF_MAX).half()


def _codes(groups: Tensor, scales: Tensor, offsets: Tensor, most: int) -> Tensor:
    scales = scales.float().unsqueeze(-1)
    shifted = groups - offsets.float().unsqueeze(-1)
    return torch.where(scales == 0, 0.0, shifted / scales).round_().clamp_(0, most)


def _values(codes: Tensor, scales: Tensor, offsets: Tensor) -> Tensor:
    return codes.float() * scales.float().unsqueeze(-1) + offsets.float().unsqueeze(-1)


def pack(weight: Tensor, format: str) -> tuple[Tensor, int]:
    """A weight [N, K] in any floating dtype -> its tiles, uint8 [ceil(N / 16), tile_bytes(K, bits)], and their bits.

    `format` is "int8", "int4", or "auto": 4 bits if they hold the weight exactly, else 8.
    """
    if format != "int8":
        tiles = []
        for rows in weight.split(SLICE):
            quantized = quantize(_whole_tiles(rows), 4)
            if format == "auto" and not _is_exact(quantized, rows):
                break
            tiles.append(_tiles(quantized, 4))
        else:
            return torch.cat(tiles), 4
    return torch.cat([_tiles(quantize(_whole_tiles(rows), 8), 8) for rows in weight.split(SLICE)]), 8


def _whole_tiles(rows: Tensor) -> Tensor:
    return F.pad(rows, (0, 0, 0, -len(rows) % TILE))


def _is_exact(quantized: Quantized, rows: Tensor) -> bool:
    """Whether these are the values, to the precision they are stored in."""
    return torch.equal(quantized.dequantize()[: rows.shape[0], : rows.shape[1]].to(rows.dtype), rows)


def _tiles(quantized: Quantized, bits: int) -> Tensor:
    groups = quantized.scales.shape[1]
    codes = quantized.codes.view(-1, TILE, groups, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    if bits == 4:
        codes = codes[:, :, 0::2] | codes[:, :, 1::2] << 4
    parts = [codes.flatten(2)]
    for values in (quantized.scales, quantized.offsets):
        parts.append(values.view(-1, TILE, groups).transpose(1, 2).contiguous().view(torch.uint8))
    return torch.cat(parts, 2).flatten(1)
