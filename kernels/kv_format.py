"""How the cache stores keys and values: as floats, or as integers in groups, with what the arithmetic needs in torch.

Imported by the engine too: what a token costs, and which formats a model can have, is decided here once.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class Groups(NamedTuple):
    """A head's values as unsigned integers; `size` neighbours share a scale and an offset in float16:
    value = scale * code + offset, with the least value of a group as its offset and 2^bits - 1 steps to the largest.

    `rotated`: each head is first multiplied by an orthonormal Hadamard matrix, which spreads an outlier over all its
    values (QuaRot, Ashkboos et al. 2024). Scores do not change when the queries are rotated as well, and what comes
    out of rotated values is rotated back.
    """

    bits: int
    """4 or 8."""
    size: int
    rotated: bool = False

    def __str__(self) -> str:
        return f"int{self.bits}/{self.size}{' rotated' if self.rotated else ''}"


Storage = torch.dtype | Groups


class KVFormat(NamedTuple):
    """Both are floats of one dtype, or both are groups."""

    keys: Storage
    values: Storage

    def __str__(self) -> str:
        if self.keys == self.values:
            return name_of(self.keys)
        return f"keys {name_of(self.keys)}, values {name_of(self.values)}"


def name_of(storage: Storage) -> str:
    return str(storage).removeprefix("torch.")


def head_bytes(storage: Storage, head_dim: int) -> int:
    """Bytes of one head's key or value of one token, scales and offsets included."""
    if isinstance(storage, Groups):
        return head_dim * storage.bits // 8 + 4 * (head_dim // storage.size)
    return head_dim * storage.itemsize


def quantize(x: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """x [..., D] -> codes uint8 [..., D * bits / 8], with two of 4 bits in a byte, the first in the lower half; and
    float16 [..., D / size, 2], scales and offsets."""
    x = x.float()
    grouped = (rotate(x) if groups.rotated else x).unflatten(-1, (-1, groups.size))
    low, high = grouped.aminmax(dim=-1, keepdim=True)
    steps = 2**groups.bits - 1
    parameters = torch.cat(((high - low) / steps, low), -1).half()
    scale, offset = parameters.float().split(1, -1)
    codes = torch.where(scale == 0, 0, (grouped - offset) / scale).round().clamp(0, steps).to(torch.uint8).flatten(-2)
    if groups.bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    return codes, parameters


def dequantize(codes: Tensor, parameters: Tensor, groups: Groups) -> Tensor:
    """What `quantize` made, as float32 [..., D]; still rotated where the format is."""
    if groups.bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    scale, offset = parameters.float().split(1, -1)
    return (codes.unflatten(-1, (-1, groups.size)) * scale + offset).flatten(-2)


def rotate(x: Tensor) -> Tensor:
    """x [..., D] times an orthonormal Hadamard matrix of the largest power of two that divides D, as often as it fits.
    Its own inverse."""
    width = x.shape[-1] & -x.shape[-1]
    return (x.unflatten(-1, (-1, width)) @ _hadamard(width, x.dtype, x.device)).flatten(-2)


@cache
def _hadamard(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sylvester's construction."""
    matrix = torch.ones(1, 1)
    while len(matrix) < width:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return (matrix * width**-0.5).to(device, dtype)
