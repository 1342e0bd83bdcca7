"""The metadata of a GGUF file as a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.errors import ModelError
from kvchat.catalogue.tensor_file import TensorSpec

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

TORCH_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The same in every Llama 3.x; the factor differs."""


def model_config(
    metadata: Mapping[str, Any], specs: Mapping[str, TensorSpec], rope_divisors: np.ndarray | None
) -> dict[str, Any]:
    """config.json without the token ids. `rope_divisors` [head_dim / 2] is the file's rope_freqs tensor.

    Raises ModelError for an unsupported architecture or variant, KeyError for metadata that must be there.
    """
    architecture = metadata["general.architecture"]
    if architecture not in ARCHITECTURES:
        raise ModelError(f"architecture {architecture!r} is not supported; {', '.join(ARCHITECTURES)} are")

    def optional(key: str, default: Any) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    def required(key: str) -> Any:
        return metadata[f"{architecture}.{key}"]

    for key in ("feed_forward_length", "attention.head_count", "attention.head_count_kv"):
        if isinstance(optional(key, None), list):
            raise ModelError(f"{architecture}.{key} differs from layer to layer, which is not supported")
    n_head = required("attention.head_count")
    head_dim = optional("attention.key_length", required("embedding_length") // n_head)
    if optional("rope.dimension_count", head_dim) != head_dim:
        raise ModelError("only a part of each head is rotated, which is not supported")
    rope_theta = shortest(optional("rope.freq_base", 10000.0))
    embedding = specs["model.embed_tokens.weight"]
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": embedding.shape[0],
        "hidden_size": required("embedding_length"),
        "intermediate_size": required("feed_forward_length"),
        "num_hidden_layers": required("block_count"),
        "num_attention_heads": n_head,
        "num_key_value_heads": optional("attention.head_count_kv", n_head),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": required("context_length"),
        "rms_norm_eps": shortest(required("attention.layer_norm_rms_epsilon")),
        "rope_theta": rope_theta,
        "rope_scaling": _rope_scaling(optional)
        if rope_divisors is None
        else _llama3_scaling(rope_divisors, rope_theta),
        "tie_word_embeddings": "lm_head.weight" not in specs,
        "torch_dtype": TORCH_DTYPES[embedding.dtype],
    }


def shortest(value: float) -> float:
    """The shortest decimal that is this float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope_scaling(optional: Callable[[str, Any], Any]) -> dict[str, Any] | None:
    kind = optional("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise ModelError(f"rope scaling {kind!r} is not supported; linear, yarn and llama3 are")
    scaling = {"rope_type": kind, "factor": shortest(optional("rope.scaling.factor", 1.0))}
    original = optional("rope.scaling.original_context_length", None)
    if kind == "yarn" and original is not None:
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3_scaling(divisors: np.ndarray, rope_theta: float) -> dict[str, Any]:
    """Llama 3.1 and later: the file keeps the divisors of the inverse frequencies, the config how they come about."""
    scaling = {"rope_type": "llama3", "factor": shortest(divisors.max()), **LLAMA3_ROPE}
    if not np.allclose(divisors, llama3_divisors(scaling, rope_theta, len(divisors)), rtol=1e-4):
        raise ModelError("its rope_freqs do not follow the Llama 3 scaling rule, and no other is supported")
    return scaling


def llama3_divisors(scaling: Mapping[str, Any], rope_theta: float, count: int) -> np.ndarray:
    """What Llama 3's rule divides the inverse rotary frequencies by: float64 [count], from 1 (fast) to factor (slow).

    Turns within the original context decide: many turns keep the frequency, few divide it, between them it blends.
    """
    frequency = rope_theta ** (-np.arange(count) / count)
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / (keep + (1 - keep) / scaling["factor"])
