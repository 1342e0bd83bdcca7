"""Runs steps on the model: the only place where a batch becomes tensors. Importing it imports torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from engine.api import ModelInfo
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import KVCache, count_blocks, token_bytes
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, Step
from engine.model.loader import Checkpoint
from engine.model.rope import Rope
from engine.model.weights import WeightsLoader
from kernels import select
from kernels.contract import Span


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
        torch.set_num_threads(config.threads or usable_cores())
        device = _device(config.device)
        dtype = native_dtype(device) if config.dtype == "auto" else getattr(torch, config.dtype)
        kv_dtype = dtype if config.kv_dtype == "auto" else getattr(torch, config.kv_dtype)

        self.config = ModelConfig.read(folder)
        context_length = _context_length(config, self.config)
        kernels = select(device, dtype)
        checkpoint = Checkpoint(folder, device, dtype)
        with torch.inference_mode():
            weights = WeightsLoader(self.config, checkpoint, kernels).load(
                lambda fraction: report("loading the weights", fraction)
            )
            del checkpoint
            rope = Rope(self.config.rope, self.config.head_dim, context_length)
            self._decoder = Decoder(self.config, weights, rope, kernels)
            self._cache = KVCache(
                self.config,
                count_blocks(config, self.config, kv_dtype, device),
                config.block_size,
                kv_dtype,
                device,
            )
        self._device = device
        self.num_blocks, self.block_bytes = self._cache.num_blocks, self._cache.block_bytes
        self.block_size = config.block_size
        self.info = ModelInfo(
            name=folder.resolve().name,
            context_length=context_length,
            n_layer=self.config.n_layer,
            n_head=self.config.n_head,
            n_kv_head=self.config.n_kv_head,
            head_dim=self.config.head_dim,
            dtype=str(dtype).removeprefix("torch."),
            kv_dtype=str(kv_dtype).removeprefix("torch."),
            device=str(device),
            weight_bytes=weights.count * dtype.itemsize,
            kv_token_bytes=token_bytes(self.config, kv_dtype),
        )

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute every chunk, its keys and values included, and return the logits that were asked for, in the
        order of the chunks: [number of chunks that want logits, vocab] float32."""
        return self._decoder.forward(self._step(chunks), self._cache.layers)

    @torch.inference_mode()
    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """For each (source block, target block, rows): copy the keys and values of the block's first rows."""
        self._cache.copy_rows(copies)

    def _step(self, chunks: Sequence[Chunk]) -> Step:
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        spans: list[Span] = []
        last_rows: dict[int, int] = {}
        # Decodes first, by length: those that attention handles together are neighbours.
        for index in sorted(range(len(chunks)), key=lambda i: (len(chunks[i].token_ids) > 1, chunks[i].start)):
            ids, start, table, _ = chunks[index]
            end = start + len(ids)
            token_ids += ids
            positions += range(start, end)
            slots += [table[p // self.block_size] * self.block_size + p % self.block_size for p in range(start, end)]
            spans.append(Span(len(ids), end, table))
            last_rows[index] = len(token_ids) - 1
        logit_rows = [last_rows[index] for index, chunk in enumerate(chunks) if chunk.wants_logits]
        return Step(
            token_ids=self._tensor(token_ids),
            positions=self._tensor(positions),
            slots=self._tensor(slots),
            spans=spans,
            logit_rows=self._tensor(logit_rows),
        )

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


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


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} is not there: this machine has {torch.cuda.device_count()} CUDA devices")
    return device


def native_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device computes in it natively, else float32."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def _context_length(config: EngineConfig, model: ModelConfig) -> int:
    wanted = config.context_length or model.context_length
    if wanted > model.context_length and model.rope.kind != "dynamic":
        raise ConfigError(
            f"context_length of {wanted} tokens is more than the {model.context_length} that the model was trained for"
        )
    return wanted
