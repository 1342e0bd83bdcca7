"""One config-driven decoder for the Llama family, as Hugging Face computes it: Llama, Mistral, Qwen2, Qwen3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.rope import Rope
from engine.model.weights import LayerWeights, ModelTensors, Weights, load_weights
from kernels import Kernels
from kernels.contract import AttentionPlan, LayerCache, Span
from kernels.kv_format import name_of

READ_ROWS = 128
"""Rows of a step whose logits are asked for at most, where it is not one row of each sequence."""


class Step(NamedTuple):
    """What one forward pass computes: T tokens of several sequences, span after span."""

    token_ids: list[int]
    """T"""
    positions: list[int]
    """T, of each token within its sequence."""
    slots: list[int]
    """T, where its key and value go."""
    spans: list[Span]
    logit_rows: list[int]
    """N, the rows whose next token is asked for."""


class Inputs(NamedTuple):
    """A step on the device."""

    token_ids: Tensor
    """[T] int64, like the next two; where the slot is negative, a GPU's kernels write nothing."""
    positions: Tensor
    slots: Tensor
    logit_rows: Tensor
    """[N] int64"""
    plans: dict[int | None, AttentionPlan]
    """For each window that a layer has."""


class Decoder:
    """The forward pass over its weights and a cache."""

    def __init__(
        self, config: ModelConfig, weights: Weights, rope: Rope, kernels: Kernels, cache: Sequence[LayerCache]
    ) -> None:
        self.config, self.kernels, self.cache = config, kernels, cache
        self._weights, self._rope = weights, rope
        # Each layer's last addition is fused with the norm that comes next.
        self._next_norms = [*(layer.attention_norm for layer in weights.layers[1:]), weights.norm]

    def forward(self, step: Step) -> Tensor:
        """Write the step's keys and values into the cache and return the logits of the rows asked for, [N, vocab]
        float32."""
        return self.compute(self.inputs(step))

    def inputs(self, step: Step) -> Inputs:
        token_ids, positions, slots, logit_rows = (
            torch.tensor(values, dtype=torch.int64, device=self.device)
            for values in (step.token_ids, step.positions, step.slots, step.logit_rows)
        )
        plans = {
            window: self.kernels.plan_attention(step.spans, self.cache[0], self.config.n_head, window)
            for window in set(self.config.windows)
        }
        return Inputs(token_ids, positions, slots, logit_rows, plans)

    @property
    def device(self) -> torch.device:
        return self._weights.norm.device

    def compute(self, inputs: Inputs) -> Tensor:
        """What `forward` does, on the device alone."""
        config, weights, kernels = self.config, self._weights, self.kernels
        cos_sin = self._rope.cos_sin(inputs.positions, weights.norm.dtype)
        hidden = F.embedding(inputs.token_ids, weights.embedding).to(weights.norm.dtype)
        x = kernels.rms_norm(hidden, weights.layers[0].attention_norm, config.norm_eps)
        for layer, layer_cache, window, next_norm in zip(
            weights.layers, self.cache, config.windows, self._next_norms, strict=True
        ):
            x = self._attention(layer, x, cos_sin, inputs.slots, layer_cache, inputs.plans[window])
            x, hidden = kernels.add_rms_norm(x, hidden, layer.mlp_norm, config.norm_eps)
            x = kernels.linear(kernels.gated(kernels.linear(x, layer.gate_up), config.activation), layer.down)
            x, hidden = kernels.add_rms_norm(x, hidden, next_norm, config.norm_eps)
        return kernels.linear(x.index_select(0, inputs.logit_rows), weights.head).float()

    def _attention(
        self,
        layer: LayerWeights,
        x: Tensor,
        cos_sin: tuple[Tensor, Tensor],
        slots: Tensor,
        cache: LayerCache,
        plan: AttentionPlan,
    ) -> Tensor:
        """x [T, hidden] -> [T, hidden]; writes the keys and values of x into the layer's cache."""
        config, kernels = self.config, self.kernels
        n_head, n_kv_head = config.n_head, config.n_kv_head
        heads = kernels.linear(x, layer.qkv).unflatten(-1, (n_head + 2 * n_kv_head, config.head_dim))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = heads[:, :n_head], heads[:, n_head : n_head + n_kv_head]
            q.copy_(kernels.rms_norm(q, layer.q_norm, config.norm_eps))
            k.copy_(kernels.rms_norm(k, layer.k_norm, config.norm_eps))
        q = kernels.rotary_kv_write(heads, *cos_sin, cache, slots)
        return kernels.linear(kernels.paged_attention(q, cache, plan), layer.out)


class TorchModel(NamedTuple):
    """What a decoder in torch is made of."""

    kernels: Kernels
    weights: Weights
    weight_bytes: int
    format: str
    """The dtype."""

    def decoder(self, config: ModelConfig, rope: Rope, cache: Sequence[LayerCache]) -> Decoder:
        return Decoder(config, self.weights, rope, self.kernels, cache)


def load_torch(
    config: ModelConfig,
    tensors: ModelTensors,
    kernels: Kernels,
    dtype: torch.dtype,
    report: Callable[[str, float], None],
) -> TorchModel:
    """For kernels that compute in `dtype`. Raises ModelError for a bad checkpoint."""
    weights = load_weights(config, tensors, kernels, dtype, lambda fraction: report("loading the weights", fraction))
    return TorchModel(kernels, weights, tensors.count * dtype.itemsize, name_of(dtype))
