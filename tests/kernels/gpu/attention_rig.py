"""Attention in Triton's interpreter, over caches that hold NaN wherever no token was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.contract import LayerCache, Plane, Span
from kernels.gpu.attention import Workspace, paged_attention
from kernels.gpu.launch import decode_shape, max_slots, plan_work, prefill_shape
from kernels.kv_format import Groups, KVFormat, Storage, head_bytes, rotate
from kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
FLOAT32 = KVFormat(torch.float32, torch.float32)


@dataclass(slots=True)
class Rig:
    """Sequences of (query rows, context), all decodes or all prefill chunks, in blocks of a shuffled pool."""

    spans: Sequence[tuple[int, int]]
    group: int = 3
    n_kv_head: int = 2
    head_dim: int = 32
    block_size: int = 16
    format: KVFormat = FLOAT32
    dtype: torch.dtype = torch.float32
    window: int | None = None
    sm_count: int = 4
    layer: LayerCache = field(init=False)
    tables: Tensor = field(init=False)
    q: Tensor = field(init=False)

    def __post_init__(self) -> None:
        counts = [-(-context // self.block_size) for _, context in self.spans]
        spare, *blocks = torch.randperm(sum(counts) + 1).tolist()
        self.layer = LayerCache(*(self._poisoned(storage, sum(counts) + 1) for storage in self.format))
        # Beyond a sequence's blocks a table names one that holds nothing but NaN.
        self.tables = torch.full((len(counts), max(counts) + 1), spare, dtype=torch.int32)
        queries = []
        for table, (rows, context), count in zip(self.tables, self.spans, counts, strict=True):
            table[:count] = torch.tensor(blocks[:count])
            del blocks[:count]
            queries.append(self._write(table, context)[-rows:])
        self.q = torch.cat(queries)

    def _poisoned(self, storage: Storage, blocks: int) -> Plane:
        size = self.block_size * self.n_kv_head * head_bytes(storage, self.head_dim)
        content = torch.full((blocks, size), 0xFF, dtype=torch.uint8)
        return Plane(content, storage, self.block_size, self.n_kv_head, self.head_dim)

    def _write(self, table: Tensor, tokens: int) -> Tensor:
        """Random keys and values; returns random queries, [tokens, Hq, D]."""
        heads = torch.randn(tokens, (self.group + 2) * self.n_kv_head, self.head_dim)
        i = torch.arange(tokens)
        slots = table.long()[i // self.block_size] * self.block_size + i % self.block_size
        unmoved = torch.ones(tokens, 1, self.head_dim), torch.zeros(tokens, 1, self.head_dim)
        return ReferenceKernels(CPU, torch.float32).rotary_kv_write(heads, *unmoved, self.layer, slots).to(self.dtype)

    def expected(self) -> Tensor:
        """By the reference, in float32."""
        kernels = ReferenceKernels(CPU, torch.float32)
        spans = [Span(*span, table.tolist()) for span, table in zip(self.spans, self.tables, strict=True)]
        plan = kernels.plan_attention(spans, self.layer, self.q.shape[1], self.window)
        return kernels.paged_attention(self.q.float(), self.layer, plan)

    def attend(self, softcap: float | None = None, spare_work: bool = False) -> Tensor:
        """As float32; outputs and partial results are NaN at first."""
        choose = decode_shape if self.spans[0][0] == 1 else prefill_shape
        shape = choose(self.group, self.head_dim, *self.format, self.dtype)
        work = plan_work(self.spans, 0, self.n_kv_head, shape, self.window, self.sm_count)
        slots = max_slots(self.n_kv_head, shape, self.sm_count)
        if spare_work:
            work = work.padded(len(self.spans), slots)
        workspace = Workspace.allocate(slots, shape.tile_rows, self.q.shape[1], self.head_dim, CPU)
        out = torch.empty(self.q.shape, dtype=self.dtype).flatten(1)
        for tensor in (out, *workspace):
            tensor.fill_(float("nan"))
        items, merges = (torch.from_numpy(rows) for rows in work)
        q = rotate(self.q.float()).to(self.dtype) if rotated(self.format.keys) else self.q
        paged_attention(
            q, self.layer, self.tables, items, merges, shape, out, workspace, window=self.window, softcap=softcap
        )
        if rotated(self.format.values):
            return rotate(out.float().view(self.q.shape)).flatten(1)
        return out.float()


def rotated(storage: Storage) -> bool:
    return isinstance(storage, Groups) and storage.rotated
