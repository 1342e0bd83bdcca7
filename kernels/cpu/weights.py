"""What the native kernels are given of a model. Importable without Numba."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.contract import Activation

LINE = 64
"""Bytes of a cache line."""


class DecoderShape(NamedTuple):
    hidden: int
    n_head: int
    n_kv_head: int
    head_dim: int
    inner: int
    vocab: int
    activation: Activation
    norm_eps: float


class NativeLinear(NamedTuple):
    tiles: Tensor
    """See `kernels.cpu.packing`."""
    bits: int
    bias: Tensor | None
    """float32 [out]"""


@dataclass(slots=True)
class NativeLayer:
    """One layer, queries, keys and values fused, and gate and up; norms are float32."""

    attention_norm: Tensor
    qkv: NativeLinear
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: NativeLinear
    mlp_norm: Tensor
    gate_up: NativeLinear
    down: NativeLinear


@dataclass(slots=True)
class NativeWeights:
    layers: list[NativeLayer]
    norm: Tensor
    head: NativeLinear

    def linears(self) -> Iterator[NativeLinear]:
        """All of them, in the order in which a step reads them."""
        for layer in self.layers:
            yield from (layer.qkv, layer.out, layer.gate_up, layer.down)
        yield self.head

    def in_one_piece(self) -> NativeWeights:
        """The same with all tiles copied into one piece of memory: NumPy asks for huge pages for large pieces, which
        spares translating addresses, and the hardware reads ahead from one weight into the next."""
        memory = np.empty(sum(linear.tiles.nbytes + LINE for linear in self.linears()) + LINE, np.uint8)
        rest = torch.from_numpy(memory)[-memory.ctypes.data % LINE :]

        def moved(linear: NativeLinear) -> NativeLinear:
            nonlocal rest
            size = linear.tiles.nbytes
            tiles = rest[:size].view(linear.tiles.shape)
            tiles.copy_(linear.tiles)
            rest = rest[-(-size // LINE) * LINE :]
            return linear._replace(tiles=tiles)

        layers = [
            replace(
                layer,
                qkv=moved(layer.qkv),
                out=moved(layer.out),
                gate_up=moved(layer.gate_up),
                down=moved(layer.down),
            )
            for layer in self.layers
        ]
        return NativeWeights(layers, self.norm, moved(self.head))
