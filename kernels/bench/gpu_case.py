"""Attention to measure: sequences with a cache full of random keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kernels.contract import LayerCache, Plane, Span
from kernels.kv_format import Groups, KVFormat, head_bytes
from kernels.reference import ReferenceKernels

AT_ONCE = 8192
"""Tokens written to a cache in one go."""


@dataclass(frozen=True, slots=True)
class Case:
    lengths: Sequence[tuple[int, int]]
    """Rows and context of each sequence."""
    n_head: int = 32
    n_kv_head: int = 8
    head_dim: int = 128
    block_size: int = 16
    window: int | None = None

    @property
    def tokens(self) -> int:
        """In the cache."""
        return sum(context for _, context in self.lengths)

    @property
    def visible(self) -> int:
        """Keys that the queries see, one after the other."""
        seen = ((rows, context, rows * context - rows * (rows - 1) // 2) for rows, context in self.lengths)
        return sum(keys for _, _, keys in seen)


@dataclass(frozen=True, slots=True)
class Built:
    q: Tensor
    layer: LayerCache
    spans: list[Span]


def build(case: Case, format: KVFormat, dtype: torch.dtype, device: torch.device) -> Built:
    """Blocks lie in a random order; slots that belong to no token hold NaN."""
    counts = [-(-context // case.block_size) for _, context in case.lengths]
    order = torch.randperm(sum(counts)).tolist()
    tables = [order[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]
    layer = empty_layer(case, sum(counts), format, device)
    reference = ReferenceKernels(device, torch.float32)
    for (_, context), table in zip(case.lengths, tables, strict=True):
        first = torch.tensor(table, device=device) * case.block_size
        slots = (first[:, None] + torch.arange(case.block_size, device=device)).flatten()[:context]
        for part in slots.split(AT_ONCE):
            kv = torch.randn(len(part), 2, case.n_kv_head, case.head_dim, device=device)
            reference.kv_write(kv, layer, part)
    rows = sum(rows for rows, _ in case.lengths)
    q = torch.randn(rows, case.n_head, case.head_dim, device=device).to(dtype)
    spans = [Span(*length, table) for length, table in zip(case.lengths, tables, strict=True)]
    return Built(q, layer, spans)


def empty_layer(case: Case, blocks: int, format: KVFormat, device: torch.device) -> LayerCache:
    """Every float in it is NaN."""
    sizes = (case.block_size, case.n_kv_head, case.head_dim)
    return LayerCache(
        *(
            Plane(
                torch.full(
                    (blocks, case.block_size * case.n_kv_head * head_bytes(storage, case.head_dim)),
                    0xFF,
                    dtype=torch.uint8,
                    device=device,
                ),
                storage,
                *sizes,
            )
            for storage in format
        )
    )


def formats(dtype: torch.dtype, head_dim: int) -> dict[str, KVFormat]:
    int8 = Groups(8, head_dim, rotated=True)
    return {
        "plain": KVFormat(dtype, dtype),
        "int8": KVFormat(int8, int8),
        "int4": KVFormat(int8, Groups(4, head_dim, rotated=True)),
    }


def turns(dtype: torch.dtype, rows: int, head_dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin as `kernels.contract.Kernels.rotary_kv_write` takes them, of random angles."""
    angles = torch.rand(rows, 1, head_dim // 2, device=device) * 6
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([-angles.sin(), angles.sin()], -1)
    return cos.to(dtype), sin.to(dtype)
