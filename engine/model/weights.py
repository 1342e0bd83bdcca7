"""The weights of a decoder, in the form its kernels read: query/key/value and gate/up fused, linears packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """[vocab, hidden]"""
    layers: list[LayerWeights]
    norm: Tensor
    head: PackedLinear
    """[vocab, hidden]"""
    count: int
    """Values in all, a tied embedding counted once."""


class WeightsLoader:
    """Takes what the config describes out of a checkpoint, tensor by tensor. Raises ModelError."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, kernels: Kernels) -> None:
        self._config, self._checkpoint, self._kernels = config, checkpoint, kernels
        self._count = 0

    def load(self, on_progress: Callable[[float], None]) -> Weights:
        """`on_progress` is told the fraction of layers done, after each."""
        config = self._config
        embedding = self._take(("model.embed_tokens.weight", (config.vocab_size, config.hidden_size)))
        layers = []
        for index in range(config.n_layer):
            layers.append(self._layer(f"model.layers.{index}."))
            on_progress((index + 1) / config.n_layer)
        norm = self._take(("model.norm.weight", (config.hidden_size,)))
        tied = config.tied_embeddings and "lm_head.weight" not in self._checkpoint
        head = embedding if tied else self._take(("lm_head.weight", (config.vocab_size, config.hidden_size)))
        self._checkpoint.check_all_taken()
        return Weights(embedding, layers, norm, self._kernels.pack_linear(head), self._count)

    def _layer(self, prefix: str) -> LayerWeights:
        config = self._config
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        q_size, kv_size = config.n_head * head_dim, config.n_kv_head * head_dim
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        qkv = ((attention + "q_proj", q_size), (attention + "k_proj", kv_size), (attention + "v_proj", kv_size))
        return LayerWeights(
            attention_norm=self._take((prefix + "input_layernorm.weight", (hidden,))),
            qkv=self._linear(hidden, config.qkv_bias, *qkv),
            q_norm=self._take((attention + "q_norm.weight", (head_dim,))) if config.qk_norm else None,
            k_norm=self._take((attention + "k_norm.weight", (head_dim,))) if config.qk_norm else None,
            out=self._linear(q_size, config.out_bias, (attention + "o_proj", hidden)),
            mlp_norm=self._take((prefix + "post_attention_layernorm.weight", (hidden,))),
            gate_up=self._linear(hidden, config.mlp_bias, (mlp + "gate_proj", inner), (mlp + "up_proj", inner)),
            down=self._linear(inner, config.mlp_bias, (mlp + "down_proj", hidden)),
        )

    def _linear(self, inputs: int, bias: bool, *parts: tuple[str, int]) -> PackedLinear:
        """Linear layers that read the same input, fused into one."""
        weight = self._take(*((f"{name}.weight", (outputs, inputs)) for name, outputs in parts))
        biases = self._take(*((f"{name}.bias", (outputs,)) for name, outputs in parts)) if bias else None
        return self._kernels.pack_linear(weight, biases)

    def _take(self, *parts: tuple[str, tuple[int, ...]]) -> Tensor:
        tensor = self._checkpoint.take(*parts)
        self._count += tensor.numel()
        return tensor
