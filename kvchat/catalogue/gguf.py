"""GGUF to a Hugging Face folder: config.json, generation_config.json, model.safetensors and the tokenizer's files.

A tensor keeps its dtype where it has a floating-point one; quantized tensors become float16. A quantized value is a
small integer times a float16 scale, perhaps plus a minimum: 15 bits of mantissa for 4-bit values, 18 for 8-bit ones.
float16 keeps 11 of them, an error of at most 0.06 quantization steps (measured on the default model: a KL divergence
of 1e-5); bfloat16 keeps 8, up to half a step; float32 would double the file for nothing that can be seen.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, dequantize

from engine.errors import ModelError
from kvchat.catalogue.gguf_config import model_config
from kvchat.catalogue.gguf_tokenizer import write_tokenizer
from kvchat.catalogue.progress import OnProgress, Progress
from kvchat.catalogue.space import require_space
from kvchat.catalogue.tensor_file import TensorSpec, write_tensors

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

KEPT_DTYPES = {
    GGMLQuantizationType.F32: "F32",
    GGMLQuantizationType.F16: "F16",
    GGMLQuantizationType.BF16: "BF16",
}

PIECE_BYTES = 1 << 26
"""How much of a tensor is held in float32 at once."""

ROPE_FREQS = "rope_freqs.weight"


def convert(source: Path, folder: Path, on_progress: OnProgress) -> None:
    """Write the model of a GGUF file into an existing folder.

    Raises ModelError when the file is damaged or of a kind that is not supported.
    """
    on_progress(Progress("reading"))
    reader, metadata = _read(source)
    try:
        if metadata.get("split.count", 1) > 1:
            raise ModelError("it is one part of a split model; merge the parts with `llama-gguf-split --merge` first")
        tensors = {_target_name(tensor.name): tensor for tensor in reader.tensors if tensor.name != ROPE_FREQS}
        specs = {name: _spec(name, tensor) for name, tensor in tensors.items()}
        divisors = next((tensor.data for tensor in reader.tensors if tensor.name == ROPE_FREQS), None)
        config = model_config(metadata, specs, divisors)
        ends = write_tokenizer(metadata, folder, config["max_position_embeddings"])
        ids = {"bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"), "eos_token_id": ends}
        _write_json(folder / "config.json", config | ids)
        _write_json(folder / "generation_config.json", ids)
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        done, total = 0, sum(spec.nbytes for spec in specs.values())
        require_space(folder, total)

        def values(name: str) -> Iterator[bytes]:
            nonlocal done
            tensor, layer = tensors[name], name.split(".")[-2]
            permuted = config["model_type"] == "llama" and layer in heads
            rows = unpermute(tensor.data, heads[layer]) if permuted else tensor.data
            for piece in _pieces(tensor, rows):
                yield piece
                done += len(piece)
                on_progress(Progress("converting", done, total))

        write_tensors(folder / "model.safetensors", specs.values(), values)
    except ModelError as error:
        raise ModelError(f"{source} cannot be used: {error}") from None
    except KeyError as error:
        raise ModelError(f"{source} cannot be used: it lacks {error}") from None


def unpermute(rows: np.ndarray, n_head: int) -> np.ndarray:
    """Undo the order in which llama-family GGUF files keep the rows of the query and key projections.

    [n_head * head_dim, anything]. The file pairs rotary dimensions as (0, 1), (2, 3), ...; a Hugging Face model
    pairs (0, d/2), (1, d/2 + 1), .... Rows move whole, so quantized ones may stay quantized.
    """
    half = rows.shape[0] // n_head // 2
    return rows.reshape(n_head, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _read(source: Path) -> tuple[GGUFReader, dict[str, Any]]:
    try:
        reader = GGUFReader(source)
        return reader, {name: field.contents() for name, field in reader.fields.items()}
    except OSError as error:
        raise ModelError(f"{source} cannot be read: {error.strerror or error}") from None
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ModelError(f"{source} is damaged, cut off or no GGUF file ({error})") from None


def _target_name(name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?([a-z_]+)\.(weight|bias)", name)
    if match is None or match[2] not in NAMES:
        raise ModelError(f"tensor {name} belongs to a variant of its architecture that is not supported")
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{NAMES[match[2]]}.{match[3]}"


def _spec(name: str, tensor: ReaderTensor) -> TensorSpec:
    shape = tuple(int(size) for size in reversed(tensor.shape))
    return TensorSpec(name, KEPT_DTYPES.get(tensor.tensor_type, "F16"), shape)


def _pieces(tensor: ReaderTensor, rows: np.ndarray) -> Iterator[bytes]:
    count = max(1, PIECE_BYTES // (4 * int(tensor.shape[0])))
    for start in range(0, len(rows), count):
        piece = rows[start : start + count]
        if tensor.tensor_type not in KEPT_DTYPES:
            piece = _to_half(tensor, piece)
        yield piece.tobytes()


def _to_half(tensor: ReaderTensor, rows: np.ndarray) -> np.ndarray:
    try:
        values = dequantize(rows, tensor.tensor_type)
    except NotImplementedError:
        raise ModelError(f"tensor {tensor.name} is quantized as {tensor.tensor_type.name}: unsupported") from None
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise ModelError(f"tensor {tensor.name} has values that are not finite; the file may be damaged")
    return half


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
