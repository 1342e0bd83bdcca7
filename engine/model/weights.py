"""The weights of a decoder, in the form its kernels read: query/key/value and gate/up fused, linears packed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.loader import Checkpoint
from kernels import Kernels
from kernels.contract import PackedLinear


@dataclass(slots=True)
class LayerWeights:
    attention_norm: Tensor
    qkv: PackedLinear
    """[(n_head + 2 n_kv_head) * head_dim, hidden]"""
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: PackedLinear
    """[hidden, n_head * head_dim]"""
    mlp_norm: Tensor
    gate_up: PackedLinear
    """[2 intermediate, hidden]"""
    down: PackedLinear
    """[hidden, intermediate]"""


@dataclass(slots=True)
class Weights:
    embedding: Tensor
    """[vocab, hidden], in the dtype it is stored in"""
    layers: list[LayerWeights]
    norm: Tensor
    head: PackedLinear
    """[vocab, hidden]"""


NORMS = {
    "attention_norm": "input_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
}
LINEARS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""The fields of a layer and their names in a checkpoint. Linear layers that read the same input are fused."""


class ModelTensors:
    """What the config describes, out of a checkpoint, in the dtypes it is stored in. Raises ModelError."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint) -> None:
        self._config, self._checkpoint = config, checkpoint
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        q_size, kv_size = config.n_head * head_dim, config.n_kv_head * head_dim
        self._shapes = {
            "self_attn.q_proj": (q_size, hidden),
            "self_attn.k_proj": (kv_size, hidden),
            "self_attn.v_proj": (kv_size, hidden),
            "self_attn.o_proj": (hidden, q_size),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (head_dim,),
            "self_attn.k_norm": (head_dim,),
        }
        self._biased = {
            "qkv": config.qkv_bias,
            "out": config.out_bias,
            "gate_up": config.mlp_bias,
            "down": config.mlp_bias,
        }

    @property
    def count(self) -> int:
        """Values in all, a tied embedding counted once."""
        config = self._config
        tables = 1 if self._head_is_tied else 2
        layer = sum(
            math.prod(self._shapes[name]) + self._shapes[name][0] * self._biased[field]
            for field, names in LINEARS.items()
            for name in names
        )
        norms = 2 * config.hidden_size + 2 * config.head_dim * config.qk_norm
        return tables * config.vocab_size * config.hidden_size + config.n_layer * (layer + norms) + config.hidden_size

    @property
    def _head_is_tied(self) -> bool:
        return self._config.tied_embeddings and "lm_head.weight" not in self._checkpoint

    @property
    def embedding(self) -> Tensor:
        """[vocab, hidden]"""
        return self._checkpoint.take(("model.embed_tokens.weight", (self._config.vocab_size, self._config.hidden_size)))

    @property
    def norm(self) -> Tensor:
        """[hidden]"""
        return self._checkpoint.take(("model.norm.weight", (self._config.hidden_size,)))

    @property
    def head(self) -> Tensor:
        """[vocab, hidden]"""
        if self._head_is_tied:
            return self.embedding
        return self._checkpoint.take(("lm_head.weight", (self._config.vocab_size, self._config.hidden_size)))

    def norms(self, layer: int, dtype: torch.dtype) -> dict[str, Tensor | None]:
        """Every field of NORMS, None for what the model does not have."""
        absent = () if self._config.qk_norm else ("q_norm", "k_norm")
        return {
            field: None if field in absent else self._take(layer, "weight", name).to(dtype)
            for field, name in NORMS.items()
        }

    def weight(self, layer: int, field: str) -> Tensor:
        """Of a field of LINEARS, [out, in]."""
        return self._take(layer, "weight", *LINEARS[field])

    def bias(self, layer: int, field: str) -> Tensor | None:
        """Of a field of LINEARS, [out]."""
        return self._take(layer, "bias", *LINEARS[field]) if self._biased[field] else None

    def check_all_taken(self) -> None:
        """Raises ModelError when tensors are left that would change what the model computes."""
        self._checkpoint.check_all_taken()

    def _take(self, layer: int, kind: str, *names: str) -> Tensor:
        def shape(name: str) -> tuple[int, ...]:
            return self._shapes[name] if kind == "weight" else self._shapes[name][:1]

        return self._checkpoint.take(*((f"model.layers.{layer}.{name}.{kind}", shape(name)) for name in names))


def load_weights(
    config: ModelConfig,
    tensors: ModelTensors,
    kernels: Kernels,
    dtype: torch.dtype,
    on_progress: Callable[[float], None],
) -> Weights:
    """The weights for kernels that compute in `dtype`. `on_progress` is told the fraction done, layer by layer."""
    layers = []
    for layer in range(config.n_layer):
        linears = {}
        for field in LINEARS:
            bias = tensors.bias(layer, field)
            bias = None if bias is None else bias.to(dtype)
            linears[field] = kernels.pack_linear(tensors.weight(layer, field).to(dtype), bias)
        layers.append(LayerWeights(**tensors.norms(layer, dtype), **linears))  # type: ignore[arg-type]
        on_progress((layer + 1) / config.n_layer)
    head = kernels.pack_linear(tensors.head.to(dtype))
    weights = Weights(tensors.embedding, layers, tensors.norm.to(dtype), head)
    tensors.check_all_taken()
    return weights
