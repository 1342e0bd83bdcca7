"""Tiny models as GGUF files, written the way llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, TokenType
from tokenizers.pre_tokenizers import ByteLevel

SPECIALS = {"<|endoftext|>": TokenType.CONTROL, "<|im_start|>": TokenType.CONTROL, "<|im_end|>": TokenType.CONTROL}
ALPHABET = sorted(ByteLevel.alphabet())
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "1 2", "12 3", "Ġ Ġ"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"

HIDDEN, N_HEAD, N_KV_HEAD, N_LAYER, FEED_FORWARD = 64, 4, 2, 2, 96

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass
class TinyGGUF:
    """What goes into the file; a test changes what it is about."""

    architecture: str = "llama"
    tied: bool = True
    kind: GGMLQuantizationType = GGMLQuantizationType.F32
    """Of the matrices; norms and biases are always F32."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Set or, with None, left out."""
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    """Further tensors, by their GGUF names."""
    head_dim: int = HIDDEN // N_HEAD

    @property
    def vocabulary(self) -> list[str]:
        tokens: list[str] = self.all_metadata()["tokenizer.ggml.tokens"]
        return tokens

    def all_metadata(self) -> dict[str, Any]:
        tokens = [*SPECIALS, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]
        name = self.architecture
        entries = {
            f"{name}.block_count": N_LAYER,
            f"{name}.context_length": 128,
            f"{name}.embedding_length": HIDDEN,
            f"{name}.feed_forward_length": FEED_FORWARD,
            f"{name}.attention.head_count": N_HEAD,
            f"{name}.attention.head_count_kv": N_KV_HEAD,
            f"{name}.attention.key_length": self.head_dim,
            f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{name}.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [int(SPECIALS.get(token, TokenType.NORMAL)) for token in tokens],
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": TEMPLATE,
        }
        return {key: value for key, value in (entries | self.metadata).items() if value is not None}

    def weights(self) -> dict[str, np.ndarray]:
        """Random float32 weights by their Hugging Face names."""
        rng = np.random.default_rng(7)
        head = self.head_dim

        def matrix(rows: int, columns: int) -> np.ndarray:
            return rng.normal(0, 0.2, (rows, columns)).astype(np.float32)

        def vector(size: int, mean: float) -> np.ndarray:
            return rng.normal(mean, 0.2, size).astype(np.float32)

        found = {
            "model.embed_tokens.weight": matrix(len(self.vocabulary), HIDDEN),
            "model.norm.weight": vector(HIDDEN, 1),
        }
        if not self.tied:
            found["lm_head.weight"] = matrix(len(self.vocabulary), HIDDEN)
        for index in range(N_LAYER):
            layer = {
                "input_layernorm.weight": vector(HIDDEN, 1),
                "post_attention_layernorm.weight": vector(HIDDEN, 1),
                "self_attn.q_proj.weight": matrix(N_HEAD * head, HIDDEN),
                "self_attn.k_proj.weight": matrix(N_KV_HEAD * head, HIDDEN),
                "self_attn.v_proj.weight": matrix(N_KV_HEAD * head, HIDDEN),
                "self_attn.o_proj.weight": matrix(HIDDEN, N_HEAD * head),
                "mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
                "mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
                "mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
            }
            if self.architecture == "qwen2":
                layer |= {
                    "self_attn.q_proj.bias": vector(N_HEAD * head, 0),
                    "self_attn.k_proj.bias": vector(N_KV_HEAD * head, 0),
                    "self_attn.v_proj.bias": vector(N_KV_HEAD * head, 0),
                }
            if self.architecture == "qwen3":
                layer |= {"self_attn.q_norm.weight": vector(head, 1), "self_attn.k_norm.weight": vector(head, 1)}
            found |= {f"model.layers.{index}.{name}": value for name, value in layer.items()}
        return found

    def write(self, path: Path) -> dict[str, np.ndarray]:
        """Write the file and return the weights by their Hugging Face names, as float32 before quantization."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.all_metadata().items():
            _add(writer, key, value)
        weights = self.weights()
        for name, value in weights.items():
            stored = self._permuted(name, value)
            if value.ndim == 1:
                writer.add_tensor(_gguf_name(name), stored)
            else:
                writer.add_tensor(_gguf_name(name), gguf.quantize(stored, self.kind), raw_dtype=self.kind)
        for name, value in self.tensors.items():
            writer.add_tensor(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return weights

    def _permuted(self, name: str, value: np.ndarray) -> np.ndarray:
        """llama.cpp's order of rotary rows: the two halves of each head interleaved."""
        heads = {"q_proj": N_HEAD, "k_proj": N_KV_HEAD}.get(name.split(".")[-2])
        if self.architecture != "llama" or heads is None:
            return value
        interleaved = np.empty_like(value)
        half = self.head_dim // 2
        for head in range(heads):
            start = head * self.head_dim
            interleaved[start : start + self.head_dim : 2] = value[start : start + half]
            interleaved[start + 1 : start + self.head_dim : 2] = value[start + half : start + self.head_dim]
        return interleaved


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, index, rest = stem.split(".", 3)
        return f"blk.{index}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def sentencepiece_metadata(pieces: Mapping[str, float]) -> dict[str, Any]:
    """Metadata of a SentencePiece tokenizer: <unk>, <s>, </s>, the 256 bytes, then the pieces with their scores."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, *pieces]
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.scores": [0.0] * (len(tokens) - len(pieces)) + list(pieces.values()),
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.unknown_token_id": 0,
    }
