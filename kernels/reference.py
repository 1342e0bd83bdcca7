"""The kernel contract in plain torch: the specification, on any device and in any floating dtype."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.contract import Activation, PackedLinear, Span
from kernels.tiles import Tile, plan_tiles


class ReferenceKernels:
    """What each op does is told in `kernels.contract.Kernels`."""

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

    def rotary_(self, heads: Tensor, cos: Tensor, sin: Tensor) -> None:
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(cos).addcmul_(swapped, sin)

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")).mul_(up)

    def kv_write(self, kv: Tensor, layer: Tensor, slots: Tensor) -> None:
        layer.flatten(1, 2).index_copy_(1, slots, kv.transpose(0, 1).to(layer.dtype))

    def plan_attention(self, spans: Sequence[Span], block_size: int, group_size: int, window: int | None) -> list[Tile]:
        return plan_tiles(spans, block_size, group_size, window, self.dtype, self.device)

    def paged_attention(self, q: Tensor, layer: Tensor, plan: list[Tile]) -> Tensor:
        if len(plan) == 1:
            return self._attend_tile(q, layer, plan[0])
        return torch.cat([self._attend_tile(q[tile.rows], layer, tile) for tile in plan])

    def _attend_tile(self, q: Tensor, layer: Tensor, tile: Tile) -> Tensor:
        _, _, _, n_kv_head, head_dim = layer.shape
        # Gathered head by head: attention reads one dense matrix per head faster than strided rows of the cache,
        # even where blocks happen to be neighbours, and by more than the copy costs.
        kv = layer.permute(0, 3, 1, 2, 4).index_select(2, tile.blocks)
        if tile.stale is not None:
            kv.flatten(2, 3).index_fill_(2, tile.stale, 0)
        k, v = kv.view(2, n_kv_head, tile.batch, -1, head_dim)[:, :, :, tile.keys].to(q.dtype)
        # The G query heads of a key/value head are rows of one matrix, so that no key is repeated or read twice.
        grouped = q.view(tile.batch, -1, n_kv_head, q.shape[1] // n_kv_head, head_dim).permute(2, 0, 1, 3, 4)
        out = self._attend(grouped.flatten(2, 3), k, v, tile.mask).view(grouped.shape)
        return out.permute(1, 2, 0, 3, 4).reshape(q.shape[0], -1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """q [Hkv, B, T * G, D] over k, v [Hkv, B, S, D]; mask broadcasts to [B, T * G, S]. Contiguous like q."""
        return F.scaled_dot_product_attention(q, k, v, mask)
