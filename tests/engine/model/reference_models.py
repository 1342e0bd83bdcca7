"""Tiny random models of every supported kind, made and answered by Hugging Face transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

SIZE: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}

KINDS: dict[str, PretrainedConfig] = {
    "mha": LlamaConfig(**SIZE | {"num_key_value_heads": 6}),
    "gqa": LlamaConfig(**SIZE),
    "mqa": LlamaConfig(**SIZE | {"num_key_value_heads": 1}),
    "tied": LlamaConfig(**SIZE, tie_word_embeddings=True),
    "biases": LlamaConfig(**SIZE, attention_bias=True, mlp_bias=True),
    "gelu": LlamaConfig(**SIZE, hidden_act="gelu_pytorch_tanh"),
    "wide heads": LlamaConfig(**SIZE, head_dim=32),
    "linear rope": LlamaConfig(**SIZE, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
    "llama3 rope": LlamaConfig(
        **SIZE,
        rope_parameters={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 500000.0,
        },
    ),
    "yarn rope": LlamaConfig(
        **SIZE,
        rope_parameters={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 10000.0,
        },
    ),
    "sliding window": MistralConfig(**SIZE, sliding_window=24),
    "qwen2": Qwen2Config(**SIZE),
    "window on some layers": Qwen2Config(**SIZE, use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZE, head_dim=16),
}


def save(kind: str, folder: Path) -> torch.nn.Module:
    """Write a random model of this kind as a Hugging Face folder, norms and biases random too; returns it."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(KINDS[kind], dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def logits_of(model: torch.nn.Module, tokens: list[int]) -> Tensor:
    """[len(tokens), vocab] float32"""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float()
