"""A layer's keys and values as the native kernels lay them out, read and written token by token with torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.contract import LayerCache, Plane
from kernels.kv_format import Groups, KVFormat, Storage, dequantize, head_bytes, quantize, rotate


class Cache:
    """One layer's keys and values, laid out as `kernels.cpu.attention` says. Every value is NaN at first."""

    def __init__(self, format: KVFormat, blocks: int, block_size: int, n_kv_head: int, head_dim: int) -> None:
        def plane(storage: Storage) -> Plane:
            size = block_size * n_kv_head * head_bytes(storage, head_dim)
            return Plane(torch.empty(blocks, size, dtype=torch.uint8), storage, block_size, n_kv_head, head_dim)

        self.planes = LayerCache(plane(format.keys), plane(format.values))
        self.poison()

    def poison(self) -> None:
        for plane in self.planes:
            plane.blocks.fill_(0xFF)

    def read(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Keys and values of tokens, float32 [N, n_kv_head, head_dim]."""
        k, v = (self._read(plane, kind, *self._find(slots)) for kind, plane in enumerate(self.planes))
        return k, v

    def _read(self, plane: Plane, kind: int, block: Tensor, place: Tensor) -> Tensor:
        if isinstance(plane.storage, Groups):
            codes, parameters = (part[block, :, place // 16, place % 16] for part in _tiles(plane, kind, plane.storage))
            x = dequantize(_other_order(codes, kind, plane.storage, back=True), parameters, plane.storage)
            return rotate(x) if plane.storage.rotated else x
        words = _words(plane, kind)
        word, half = place // words.shape[-1], place % words.shape[-1]
        return (words[block, :, :, place].flatten(2) if kind == 0 else words[block, :, word, :, half]).float()

    def write(self, slots: Sequence[int], k: Tensor, v: Tensor) -> None:
        for kind, (plane, x) in enumerate(zip(self.planes, (k, v), strict=True)):
            self._write(plane, kind, *self._find(slots), x)

    def _write(self, plane: Plane, kind: int, block: Tensor, place: Tensor, x: Tensor) -> None:
        if isinstance(plane.storage, Groups):
            codes, parameters = quantize(x, plane.storage)
            new = (_other_order(codes, kind, plane.storage), parameters)
            for part, source in zip(_tiles(plane, kind, plane.storage), new, strict=True):
                part[block, :, place // 16, place % 16] = source
            return
        words = _words(plane, kind)
        if kind == 0:
            words[block, :, :, place] = x.unflatten(2, (-1, words.shape[-1])).to(words.dtype)
        else:
            words[block, :, place // words.shape[-1], :, place % words.shape[-1]] = x.to(words.dtype)

    def _find(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        at = torch.tensor(slots, dtype=torch.int64)
        block_size = self.planes.keys.block_size
        return at // block_size, at % block_size


def _words(plane: Plane, kind: int) -> Tensor:
    """Floats as `kernels.cpu.attention` lays them out: of keys (kind 0) [blocks, n_kv_head, head_dim / P, block_size,
    P], of values [blocks, n_kv_head, block_size / P, head_dim, P]."""
    assert isinstance(plane.storage, torch.dtype)
    per_word = 4 // plane.storage.itemsize
    first, second = (plane.head_dim, plane.block_size) if kind == 0 else (plane.block_size, plane.head_dim)
    shape = (plane.n_kv_head, first // per_word, second, per_word)
    return plane.blocks.view(plane.storage).unflatten(1, shape)


def _tiles(plane: Plane, kind: int, groups: Groups) -> tuple[Tensor, Tensor]:
    """Codes [blocks, n_kv_head, block_size / 16, 16, bytes] and parameters [..., 16, groups, 2] as
    `kernels.cpu.group_ops` lays them out."""
    tiles = plane.blocks.unflatten(1, (plane.n_kv_head, plane.block_size // 16, -1))
    width = plane.head_dim * groups.bits // 8
    codes, parameters = tiles[..., : 16 * width], tiles[..., 16 * width :].view(torch.float16)
    codes = codes.unflatten(3, (width, 16)).transpose(3, 4) if kind == 0 else codes.unflatten(3, (16, width))
    return codes, parameters.unflatten(3, (2, -1, 16)).permute(0, 1, 2, 5, 4, 3)


def _other_order(codes: Tensor, kind: int, groups: Groups, back: bool = False) -> Tensor:
    """Bytes of two values of 4 bits: neighbours in torch and in native keys, 16 apart in native values."""
    if kind == 0 or groups.bits == 8:
        return codes
    halves = torch.stack((codes & 15, codes >> 4), -1)
    if back:
        low, high = halves.unflatten(-2, (-1, 16)).transpose(-1, -2).flatten(-3).unflatten(-1, (-1, 2)).unbind(-1)
    else:
        low, high = (part.flatten(-2) for part in halves.flatten(-2).unflatten(-1, (-1, 2, 16)).unbind(-2))
    return low | high << 4
