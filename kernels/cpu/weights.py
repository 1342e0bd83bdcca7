"""What the native kernels are given of a model. Importable without Numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from kernels.contract import Activation


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
