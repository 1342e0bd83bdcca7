"""The memory of the KV pool: allocated once, in blocks of `block_size` tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.config import ModelConfig
from kernels.contract import LayerCache, Plane
from kernels.kv_format import KVFormat, head_bytes

CPU_DEFAULT_CAP = 4 << 30
"""Bytes that the pool takes at most on a CPU when nobody said how many."""
GPU_SHARE = 0.9
"""Of what a GPU has free: the rest is for whatever else draws on it."""


class KVCache:
    """Keys and values of every layer, uninitialized.

    Raises ConfigError when `num_blocks` blocks cannot be allocated.
    """

    def __init__(
        self, model: ModelConfig, num_blocks: int, block_size: int, format: KVFormat, device: torch.device
    ) -> None:
        self.num_blocks = num_blocks
        try:
            self._planes = [
                torch.empty(
                    (model.n_layer, num_blocks, block_size * model.n_kv_head * head_bytes(storage, model.head_dim)),
                    dtype=torch.uint8,
                    device=device,
                )
                for storage in format
            ]
        except RuntimeError:
            raise ConfigError(
                f"kv_memory: {num_blocks * block_size * token_bytes(model, format):,} bytes for the KV cache could not "
                f"be allocated on {device}; set a smaller kv_memory"
            ) from None
        sizes = (block_size, model.n_kv_head, model.head_dim)
        self.layers: Sequence[LayerCache] = [
            LayerCache(*(Plane(blocks, storage, *sizes) for blocks, storage in zip(layer, format, strict=True)))
            for layer in zip(*self._planes, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self._planes)

    @property
    def block_bytes(self) -> int:
        """Of a block in all layers, as it is allocated."""
        return self.nbytes // self.num_blocks

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """For each (source block, target block): copy a block in all layers, in this order. Whole, since only the
        kernels know where in it a token lies."""
        for source, target in copies:
            for plane in self._planes:
                plane[:, target] = plane[:, source]


def token_bytes(model: ModelConfig, format: KVFormat) -> int:
    """Bytes of the keys and values of one token in all layers."""
    return model.n_layer * model.n_kv_head * sum(head_bytes(storage, model.head_dim) for storage in format)


def count_blocks(
    config: EngineConfig, model: ModelConfig, format: KVFormat, device: torch.device, workspace: int = 0
) -> int:
    """Blocks that fit into the pool's cap; `workspace` is what steps need beside it, of the device's memory. Raises
    ConfigError when that is not even one, or a GPU does not have it."""
    cap = default_cap(device, workspace) if config.kv_memory is None else config.kv_memory
    if device.type == "cuda" and config.kv_memory and cap > (free := free_memory(device) - workspace):
        raise ConfigError(
            f"kv_memory of {cap:,} bytes does not fit: {device} has {max(0, free):,} bytes free beside the weights and "
            "what a step needs"
        )
    block_bytes = token_bytes(model, format) * config.block_size
    if cap < block_bytes:
        raise ConfigError(
            f"kv_memory of {cap:,} bytes holds no block: one of {config.block_size} tokens takes {block_bytes:,} bytes"
        )
    return cap // block_bytes


def default_cap(device: torch.device, workspace: int = 0) -> int:
    """Bytes of the pool when nobody said how many: GPU_SHARE of what a GPU has free now beside the workspace; on a CPU
    a quarter of what is free, at most CPU_DEFAULT_CAP."""
    if device.type == "cuda":
        return max(0, int((free_memory(device) - workspace) * GPU_SHARE))
    return min(free_memory(device) // 4, CPU_DEFAULT_CAP)


def free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return min(psutil.virtual_memory().available, _cgroup_room())


def _cgroup_room(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that the container this process is in may still take; page cache that can be dropped counts as free."""
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        limit = "max"
    if limit == "max":
        return 1 << 62
    return max(0, int(limit) - used + int(stat["inactive_file"]))
