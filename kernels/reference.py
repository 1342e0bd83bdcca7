"""The kernel contract in plain torch: the specification, on any device and in any floating dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.contract import Activation, LayerCache, PackedLinear, Plane, Span
from kernels.kv_format import Groups, dequantize, quantize, rotate
from kernels.tiles import Tile, plan_tiles


class ReferenceKernels:
    """What each op does is told in `kernels.contract.Kernels`."""

    draw = None

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        return weight, bias

    def linear(self, x: Tensor, packed: PackedLinear) -> Tensor:
        return F.linear(x, *packed)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def rotary_kv_write(self, heads: Tensor, cos: Tensor, sin: Tensor, layer: LayerCache, slots: Tensor) -> Tensor:
        n_kv_head = layer.keys.n_kv_head
        self.rotary_(heads[:, :-n_kv_head], cos, sin)
        self.kv_write(heads[:, -2 * n_kv_head :].unflatten(1, (2, n_kv_head)), layer, slots)
        return heads[:, : -2 * n_kv_head]

    def rotary_(self, heads: Tensor, cos: Tensor, sin: Tensor) -> None:
        """heads [T, H, D], in place."""
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(cos).addcmul_(swapped, sin)

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")).mul_(up)

    def kv_write(self, kv: Tensor, layer: LayerCache, slots: Tensor) -> None:
        """kv [T, 2, Hkv, D]"""
        for plane, heads in zip(layer, kv.unbind(1), strict=True):
            block, place = slots // plane.block_size, slots % plane.block_size
            if isinstance(plane.storage, Groups):
                codes, parameters = quantize(heads, plane.storage)
                _codes(plane)[block, place] = codes
                _parameters(plane, plane.storage)[block, place] = parameters
            else:
                _codes(plane)[block, place] = heads.to(plane.storage)

    def plan_attention(self, spans: Sequence[Span], layer: LayerCache, n_head: int, window: int | None) -> list[Tile]:
        group_size = n_head // layer.keys.n_kv_head
        return plan_tiles(spans, layer.keys.block_size, group_size, window, self.dtype, self.device)

    def paged_attention(self, q: Tensor, layer: LayerCache, plan: list[Tile]) -> Tensor:
        if _rotated(layer.keys):
            q = rotate(q)
        tiles = [self._attend_tile(q[tile.rows], layer, tile) for tile in plan]
        out = torch.cat(tiles) if len(tiles) > 1 else tiles[0]
        if _rotated(layer.values):
            out = rotate(out.unflatten(-1, q.shape[1:])).flatten(-2)
        return out

    def _attend_tile(self, q: Tensor, layer: LayerCache, tile: Tile) -> Tensor:
        n_kv_head, head_dim = layer.keys.n_kv_head, layer.keys.head_dim
        k, v = (self._gather(plane, tile) for plane in layer)
        # The G query heads of a key/value head are rows of one matrix, so that no key is repeated or read twice.
        grouped = q.view(tile.batch, -1, n_kv_head, q.shape[1] // n_kv_head, head_dim).permute(2, 0, 1, 3, 4)
        out = self._attend(grouped.flatten(2, 3), k, v, tile.mask).view(grouped.shape)
        return out.permute(1, 2, 0, 3, 4).reshape(q.shape[0], -1)

    def _gather(self, plane: Plane, tile: Tile) -> Tensor:
        """The keys or values of a tile, [Hkv, B, S, D]."""
        # Whole blocks, which lie in one piece each: selected in any other order, torch copies all of the pool first.
        blocks = replace(plane, blocks=plane.blocks.index_select(0, tile.blocks))
        heads = dense(blocks)
        # Then head by head: attention reads one dense matrix per head faster than strided rows, by more than the copy
        # costs.
        heads = heads.permute(2, 0, 1, 3).contiguous()
        heads = heads.flatten(1, 2)
        if tile.stale is not None:
            heads.index_fill_(1, tile.stale, 0)
        return heads.unflatten(1, (tile.batch, -1))[:, :, tile.keys].to(self.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """q [Hkv, B, T * G, D] over k, v [Hkv, B, S, D]; mask broadcasts to [B, T * G, S]. Contiguous like q."""
        return F.scaled_dot_product_attention(q, k, v, mask)


# Here a block holds its tokens' heads one after the other, then, of groups, their scales and offsets in the same order.


def dense(plane: Plane) -> Tensor:
    """What is stored, as floats [num_blocks, block_size, Hkv, D]; still rotated where the format is."""
    if isinstance(plane.storage, Groups):
        return dequantize(_codes(plane), _parameters(plane, plane.storage), plane.storage)
    return _codes(plane)


def _codes(plane: Plane) -> Tensor:
    """Floats [num_blocks, block_size, Hkv, D], or codes uint8 [num_blocks, block_size, Hkv, D * bits / 8]."""
    shape = (plane.block_size, plane.n_kv_head, -1)
    if isinstance(plane.storage, Groups):
        size = plane.block_size * plane.n_kv_head * plane.head_dim * plane.storage.bits // 8
        return plane.blocks[:, :size].unflatten(1, shape)
    return plane.blocks.view(plane.storage).unflatten(1, shape)


def _parameters(plane: Plane, groups: Groups) -> Tensor:
    """Scales and offsets, float16 [num_blocks, block_size, Hkv, D / size, 2]."""
    size = plane.block_size * plane.n_kv_head * plane.head_dim * groups.bits // 8
    return plane.blocks[:, size:].view(torch.float16).unflatten(1, (plane.block_size, plane.n_kv_head, -1, 2))


def _rotated(plane: Plane) -> bool:
    return isinstance(plane.storage, Groups) and plane.storage.rotated
