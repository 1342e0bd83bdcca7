"""Weights in few bits, laid out as the native kernels read them.

A weight [out, in] is quantized in groups of 32 inputs: `scale * code + offset` with float16 scale and offset, codes
0..15 in int4; in int8 codes -128..127 and no offset. These are the grids of GGUF's Q4_0, Q4_1 and Q8_0
(github.com/ggml-org/ggml, docs/gguf.md), so weights that came from such a file are packed without loss.

A tile holds 16 outputs and all their inputs: group after group its codes, 16 scales and (int4) 16 offsets, one stream
of bytes that the hardware can read ahead. Codes are [8 quads, 16 outputs, 4 inputs] bytes, int8 with 128 added; in
int4 quads 2i and 2i + 1 share 64 bytes, the even one in the low halves. Outputs are padded to whole tiles and inputs
to whole groups, with zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32
TILE = 16
SLICE = 4096
"""Rows packed at a time: the temporaries are many times as large."""
LAYOUT = 2
"""Changes whenever packed bytes would be read differently."""


class Quantized(NamedTuple):
    """N outputs, G groups of 32 inputs."""

    codes: Tensor
    """[N, G, 32] uint8 in int4, int8 in int8."""
    scales: Tensor
    """[N, G] float16"""
    offsets: Tensor | None
    """[N, G] float16"""

    def dequantize(self) -> Tensor:
        """[N, G * 32] float32."""
        return _values(self.codes, self.scales, self.offsets).flatten(1)


def tile_bytes(inputs: int, bits: int) -> int:
    """Of one tile."""
    return -(-inputs // GROUP) * TILE * (GROUP * bits // 8 + (4 if bits == 4 else 2))


def quantize(weight: Tensor, bits: int) -> Quantized:
    """A weight [N, K] in any floating dtype. What lies on the format's grid, whatever wrote it, is met exactly."""
    groups = F.pad(weight.float(), (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    return _quantize8(groups) if bits == 8 else _quantize4(groups)


def _quantize8(groups: Tensor) -> Quantized:
    # Q8_0's own scale is the largest magnitude over 127.
    scales = (groups.abs().amax(-1) / 127).half()
    return Quantized(_codes(groups, scales, None, -127, 127).to(torch.int8), scales, None)


def _quantize4(groups: Tensor) -> Quantized:
    """Of the grids that Q4_1 or Q4_0 would have chosen, each group's nearest."""
    flat = groups.flatten(0, 1)
    codes = torch.zeros_like(flat, dtype=torch.uint8)
    scales, offsets = torch.zeros(2, len(flat), dtype=torch.float16)
    least = torch.full((len(flat),), float("inf"))
    left = torch.arange(len(flat))
    for candidate in range(4):
        values = flat[left]
        scale, offset = _candidate(values, candidate)
        code = _codes(values, scale, offset, 0, 15)
        error = (_values(code, scale, offset).half().float() - values).square_().sum(-1)
        better = error < least[left]
        target = left[better]
        codes[target], scales[target], offsets[target] = code[better].to(torch.uint8), scale[better], offset[better]
        least[target] = error[better]
        left = left[least[left] > 0]
        if not len(left):
            break
    shape = groups.shape[:2]
    return Quantized(codes.view(groups.shape), scales.view(shape), offsets.view(shape))


def _candidate(values: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """A scale and an offset for each group of values [M, 32], float16."""
    low, high = values.aminmax(dim=-1)
    if number == 3:  # Q4_0: the value of the largest magnitude is -8 scales
        extreme = torch.where(high > -low, high, low)
        return (extreme / -8).half(), extreme.half()
    # Q4_1: the least value is the offset. Its scale cannot be read off exactly: one of three neighbours.
    scale = ((high - low) / 15).half()
    return (scale.view(torch.int16) + (0, 1, -1)[number]).clamp_(min=0).view(torch.float16), low.half()


def _codes(groups: Tensor, scales: Tensor, offsets: Tensor | None, least: int, most: int) -> Tensor:
    scales = scales.float().unsqueeze(-1)
    shifted = groups if offsets is None else groups - offsets.float().unsqueeze(-1)
    return torch.where(scales == 0, 0.0, shifted / scales).round_().clamp_(least, most)


def _values(codes: Tensor, scales: Tensor, offsets: Tensor | None) -> Tensor:
    values = codes.float() * scales.float().unsqueeze(-1)
    return values if offsets is None else values.add_(offsets.float().unsqueeze(-1))


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
            tiles.append(_tiles(quantized))
        else:
            return torch.cat(tiles), 4
    return torch.cat([_tiles(quantize(_whole_tiles(rows), 8)) for rows in weight.split(SLICE)]), 8


def _whole_tiles(rows: Tensor) -> Tensor:
    return F.pad(rows, (0, 0, 0, -len(rows) % TILE))


def _is_exact(quantized: Quantized, rows: Tensor) -> bool:
    """Whether these are the values, to the precision they are stored in."""
    return torch.equal(quantized.dequantize()[: rows.shape[0], : rows.shape[1]].to(rows.dtype), rows)


def _tiles(quantized: Quantized) -> Tensor:
    groups = quantized.scales.shape[1]
    codes = quantized.codes.view(-1, TILE, groups, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    bits = 8 if quantized.offsets is None else 4
    codes = _shifted(codes) if bits == 8 else codes[:, :, 0::2] | codes[:, :, 1::2] << 4
    parts = [codes.flatten(2)]
    for values in (quantized.scales, quantized.offsets):
        if values is not None:
            parts.append(values.view(-1, TILE, groups).transpose(1, 2).contiguous().view(torch.uint8))
    return torch.cat(parts, 2).flatten(1)


def _shifted(codes: Tensor) -> Tensor:
    """int8 with 128 added, as uint8."""
    return codes.contiguous().view(torch.uint8) ^ 0x80
