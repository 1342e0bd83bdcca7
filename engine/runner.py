"""Runs steps on the model: the only place where a batch becomes tensors. Importing it imports torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import torch
from torch import Tensor

from engine.api import ModelInfo
from engine.config import EngineConfig
from engine.device import check_head_size, compute_dtype, find_device
from engine.errors import ConfigError
from engine.gpu_memory import measure_workspace
from engine.kv_cache import KVCache, count_blocks, token_bytes
from engine.kv_choice import GATES, choose_format
from engine.locate import cache_dir
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, Step, TorchModel, load_torch
from engine.model.graphs import GraphDecoder
from engine.model.loader import Checkpoint
from engine.model.native import NativeDecoder, NativeModel, load_native, obstacle
from engine.model.rope import Rope
from engine.model.weights import ModelTensors
from engine.sampler import DrawTokens
from kernels import select
from kernels.contract import Span
from kernels.kv_format import KVFormat, name_of


class Chunk(NamedTuple):
    """One sequence's share of a step: a decode when it has one token, else a chunk of prefill."""

    token_ids: Sequence[int]
    start: int
    """Position of the first of them; keys and values of all positions before are in the cache."""
    block_table: Sequence[int]
    """Blocks of positions 0, block_size, 2 * block_size, ...; those of this chunk included."""
    wants_logits: bool
    """Whether the token after the last one is asked for."""


class ModelRunner:
    """A loaded model with its KV pool.

    Loading raises ModelError for a bad folder and ConfigError for settings that do not fit the model or the machine.
    `on_progress(text, fraction)` is told what loading is doing.
    """

    def __init__(
        self, folder: Path, config: EngineConfig, on_progress: Callable[[str, float], None] | None = None
    ) -> None:
        report = on_progress or (lambda text, fraction: None)
        threads = config.threads or usable_cores()
        torch.set_num_threads(threads)
        self._device = device = find_device(config.device)
        self.dtype = dtype = compute_dtype(config.dtype, device)
        self.config = ModelConfig.read(folder)
        check_head_size(device, self.config.head_dim)
        format, warning = choose_format(config.kv_dtype, self.config, folder, dtype)
        context_length = _context_length(config, self.config)
        self._rope = Rope(self.config.rope, self.config.head_dim, context_length, device)
        self._weights: NativeModel | TorchModel
        with torch.inference_mode():
            tensors = ModelTensors(self.config, Checkpoint(folder, device))
            if wants_native(config, self.config, device, format):
                self._weights = load_native(folder, self.config, tensors, config.weights, threads, report)
                # The native kernels have threads of their own: torch's would fight with them for the cores.
                torch.set_num_threads(1)
            else:
                try:
                    self._weights = load_torch(self.config, tensors, select(device, dtype), dtype, report)
                except torch.OutOfMemoryError:
                    raise ConfigError(
                        f"{device} has too little memory for the weights of this model: take a smaller one, or set "
                        "device to cpu"
                    ) from None
        self.info = ModelInfo(
            name=folder.resolve().name,
            context_length=context_length,
            n_layer=self.config.n_layer,
            n_head=self.config.n_head,
            n_kv_head=self.config.n_kv_head,
            head_dim=self.config.head_dim,
            dtype=name_of(dtype),
            weights=self._weights.format,
            kv_dtype=config.kv_dtype if config.kv_dtype in GATES else str(format),
            kv_warning=warning,
            device=str(device),
            weight_bytes=self._weights.weight_bytes,
            kv_token_bytes=token_bytes(self.config, format),
        )
        self.block_size = config.block_size
        if device.type == "cuda" and isinstance(self._weights, TorchModel):
            self._open_on_gpu(self._weights, config, format, report)
        else:
            self._open_cache(format, count_blocks(config, self.config, format, device))

    @torch.inference_mode()
    def _open_cache(self, format: KVFormat, num_blocks: int) -> None:
        self.kv_format, self.num_blocks = format, num_blocks
        self._cache = KVCache(self.config, num_blocks, self.block_size, format, self._device)
        self.block_bytes = self._cache.block_bytes
        self._decoder: Decoder | GraphDecoder | NativeDecoder = self._weights.decoder(
            self.config, self._rope, self._cache.layers
        )

    @torch.inference_mode()
    def _open_on_gpu(
        self, weights: TorchModel, config: EngineConfig, format: KVFormat, report: Callable[[str, float], None]
    ) -> None:
        """A cache of what the GPU has left beside the largest steps, and its decodes recorded: what later steps need
        is there already."""
        torch.cuda.set_device(self._device)
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir() / "triton"))
        report("compiling the GPU kernels (once)", 0.0)
        context_length = self.info.context_length
        workspace = measure_workspace(config, self.config, weights, self._rope, format, context_length)
        self._open_cache(format, count_blocks(config, self.config, format, self._device, workspace))
        blocks = -(-context_length // self.block_size)
        decoder = weights.decoder(self.config, self._rope, self._cache.layers)
        self._decoder = GraphDecoder(decoder, config.max_sequences, blocks, report)

    @property
    def pool_bytes(self) -> int:
        """Of the memory that the pool really takes."""
        return self._cache.nbytes

    def with_cache(self, format: KVFormat, tokens: int) -> ModelRunner:
        """A runner of the same weights over a cache of its own, for so many tokens."""
        twin = copy(self)
        twin._open_cache(format, -(-tokens // self.block_size))
        twin.info = msgspec.structs.replace(
            self.info, kv_dtype=str(format), kv_warning="", kv_token_bytes=token_bytes(self.config, format)
        )
        return twin

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute every chunk, its keys and values included, and return the logits that were asked for, in the
        order of the chunks: [number of chunks that want logits, vocab] float32. They may change at the next call."""
        return self._decoder.forward(plan_step(chunks, self.block_size))

    @torch.inference_mode()
    def read(self, chunk: Chunk) -> Tensor:
        """Compute a chunk and return the logits of every token of it, [its length, vocab] float32, which may change at
        the next call."""
        step = plan_step([chunk], self.block_size)
        step.logit_rows[:] = range(len(chunk.token_ids))
        return self._decoder.forward(step)

    @property
    def draw(self) -> DrawTokens | None:
        """The kernels' own way to draw tokens, where they have one; see `kernels.contract.Kernels.draw`."""
        return self._weights.kernels.draw if isinstance(self._weights, TorchModel) else None

    @torch.inference_mode()
    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """For each (source block, target block): copy the keys and values of a block."""
        self._cache.copy_blocks(copies)


def plan_step(chunks: Sequence[Chunk], block_size: int) -> Step:
    step = Step([], [], [], [], [])
    last_rows: dict[int, int] = {}
    # Decodes first, by length: those that attention handles together are neighbours.
    for index in sorted(range(len(chunks)), key=lambda i: (len(chunks[i].token_ids) > 1, chunks[i].start)):
        ids, start, table, _ = chunks[index]
        end = start + len(ids)
        step.token_ids.extend(ids)
        step.positions.extend(range(start, end))
        step.slots.extend(table[p // block_size] * block_size + p % block_size for p in range(start, end))
        step.spans.append(Span(len(ids), end, table))
        last_rows[index] = len(step.token_ids) - 1
    step.logit_rows.extend(last_rows[index] for index, chunk in enumerate(chunks) if chunk.wants_logits)
    return step


def wants_native(config: EngineConfig, model: ModelConfig, device: torch.device, format: KVFormat) -> bool:
    """Whether the settings and the machine call for the native kernels."""
    if config.weights == "bf16" or (config.weights == "auto" and config.dtype != "auto"):
        return False
    problem = obstacle(model, config.block_size, device, format)
    if problem and config.weights != "auto":
        raise ConfigError(f"weights {config.weights!r} need the native kernels, which cannot be used here: {problem}")
    return problem is None


def usable_cores() -> int:
    """Physical cores that this process may run on, by its affinity and a container's quota."""
    cores = psutil.cpu_count(logical=False) or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except FileNotFoundError:
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def _context_length(config: EngineConfig, model: ModelConfig) -> int:
    wanted = config.context_length or model.context_length
    if wanted > model.context_length and model.rope.kind != "dynamic":
        raise ConfigError(
            f"context_length of {wanted:,} tokens is more than the {model.context_length:,} that "
            "the model was trained for"
        )
    return wanted
