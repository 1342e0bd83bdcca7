"""What the weights and the KV cache of a model really take: before the model is loaded, and of memory that is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from engine.config import EngineConfig
from engine.device import compute_dtype
from engine.kv_cache import KVCache, free_memory, token_bytes
from engine.locate import cache_dir
from engine.model.config import ModelConfig
from engine.model.loader import Checkpoint
from engine.model.packed import stored_bytes
from engine.model.weights import ModelTensors
from engine.runner import wants_native
from kernels.cpu.packing import TILE, tile_bytes
from kernels.kv_format import KVFormat

POOL_BYTES = 128 << 20
"""Of the pool that a token's share is measured on: pages of 2 MiB blur it by a few percent."""


@dataclass(frozen=True, slots=True)
class WeightMemory:
    step_bytes: int
    """Of the weights that a step reads: `ModelInfo.weight_bytes` of the engine that is loaded."""
    is_bound: bool
    """It may be less: which weights 4 bits hold exactly is known when they have been packed, at the first start."""
    embedding_bytes: int
    """Of the table of embeddings where it is kept beside them: of it a step reads a row for each token."""

    @property
    def total(self) -> int:
        return self.step_bytes + self.embedding_bytes


def weight_memory(
    folder: Path, model: ModelConfig, config: EngineConfig, device: torch.device, format: KVFormat
) -> WeightMemory:
    """As the engine of `config` will hold them. Raises ConfigError where it could not."""
    tensors = ModelTensors(model, Checkpoint(folder, device))
    if not wants_native(config, model, device, format):
        return WeightMemory(tensors.count * compute_dtype(config.dtype, device).itemsize, False, 0)
    embedding = tensors.embedding.nbytes
    packed = stored_bytes(folder, config.weights, cache_dir() / "packed")
    if packed is not None:
        return WeightMemory(packed, False, embedding)
    layers = sum(_tiles(*shape, 4 if config.weights == "int4" else 8) for shape in _linears(model))
    head = _tiles(model.vocab_size, model.hidden_size, 8)
    return WeightMemory(layers + head, config.weights == "auto", embedding)


def measured_token_bytes(model: ModelConfig, format: KVFormat, block_size: int, device: torch.device) -> float:
    """Bytes of memory that a pool took of the machine, for each token that it holds. Raises ConfigError when there is
    none to take."""
    block_bytes = token_bytes(model, format) * block_size
    blocks = max(1, min(POOL_BYTES, free_memory(device) // 4) // block_bytes)
    before = _taken(device)
    cache = KVCache(model, blocks, block_size, format, device)
    for layer in cache.layers:
        for plane in layer:
            plane.blocks.zero_()  # memory of a CPU is taken when it is first written
    return (_taken(device) - before) / (blocks * block_size)


def _taken(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return psutil.Process().memory_info().rss


def _linears(model: ModelConfig) -> list[tuple[int, int]]:
    """[out, in] of every linear layer but the head."""
    hidden, inner = model.hidden_size, model.intermediate_size
    rows = model.n_head * model.head_dim
    kv_rows = model.n_kv_head * model.head_dim
    layer = [(rows + 2 * kv_rows, hidden), (hidden, rows), (2 * inner, hidden), (hidden, inner)]
    return layer * model.n_layer


def _tiles(outputs: int, inputs: int, bits: int) -> int:
    return -(-outputs // TILE) * tile_bytes(inputs, bits)
