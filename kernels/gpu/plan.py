"""What the attention of every layer of a step reads on the GPU: block tables and a list of work, in one copy."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.contract import Span
from kernels.gpu.attention import Workspace
from kernels.gpu.launch import Shape, Work, decode_shape, max_slots, plan_work, prefill_shape
from kernels.kv_format import Storage

ALIGNMENT = 4
"""int32 values: Triton compiles again for a pointer that is no multiple of 16 bytes."""


class Sizes(NamedTuple):
    """What the shape of a launch depends on, beside the spans."""

    n_head: int
    n_kv_head: int
    head_dim: int
    keys: Storage
    values: Storage
    dtype: torch.dtype
    sm_count: int
    hopper: bool
    """See `kernels.gpu.launch.decode_shape`."""

    def shape(self, decodes: bool) -> Shape:
        choose = decode_shape if decodes else prefill_shape
        return choose(self.n_head // self.n_kv_head, self.head_dim, self.keys, self.values, self.dtype, self.hopper)

    def work(self, spans: Sequence[Span], first_row: int, shape: Shape, window: int | None) -> Work:
        lengths = [(span.rows, span.context) for span in spans]
        return plan_work(lengths, first_row, self.n_kv_head, shape, window, self.sm_count)

    def slots(self, shape: Shape) -> int:
        return max_slots(self.n_kv_head, shape, self.sm_count)

    def workspace(self, shapes: Sequence[Shape], device: torch.device) -> Workspace:
        """Enough for launches of each of these shapes, one after the other."""
        slots, rows = max(self.slots(shape) for shape in shapes), max(shape.tile_rows for shape in shapes)
        return Workspace.allocate(slots, rows, self.n_head, self.head_dim, device)


class Launch(NamedTuple):
    """Arguments of `kernels.gpu.attention.paged_attention`."""

    block_tables: Tensor
    items: Tensor
    merges: Tensor
    shape: Shape


@dataclass(frozen=True, slots=True)
class Plan:
    launches: list[Launch]
    workspace: Workspace
    window: int | None


def plan_spans(spans: Sequence[Span], sizes: Sizes, window: int | None, device: torch.device) -> Plan:
    """One launch for neighbouring decodes, one for neighbouring prefill chunks."""
    arrays: list[np.ndarray] = []
    shapes: list[Shape] = []
    row = 0
    for decodes, members in groupby(spans, lambda span: span.rows == 1):
        run = list(members)
        shape = sizes.shape(decodes)
        arrays += [_tables(run, max(len(span.block_table) for span in run)), *sizes.work(run, row, shape, window)]
        shapes.append(shape)
        row += sum(span.rows for span in run)
    parts = _upload(arrays, device)
    launches = [Launch(*arguments) for arguments in zip(parts[::3], parts[1::3], parts[2::3], shapes, strict=True)]
    return Plan(launches, sizes.workspace(shapes, device), window)


class ReservedPlan:
    """`plan` over arrays that stay where they are; see `TritonKernels.reserve_decodes`."""

    def __init__(self, sequences: int, blocks: int, sizes: Sizes, window: int | None, device: torch.device) -> None:
        self._sizes, self._window = sizes, window
        self._shape = sizes.shape(decodes=True)
        self._sequences = sequences
        empty = sizes.work([], 0, self._shape, window).padded(sequences, sizes.slots(self._shape))
        self._host = [np.zeros((sequences, blocks), np.int32), *empty]
        self._parts = tables, items, merges = _upload(self._host, device)
        workspace = sizes.workspace([self._shape], device)
        self.plan = Plan([Launch(tables, items, merges, self._shape)], workspace, window)

    def fill(self, spans: Sequence[Span]) -> None:
        """Decodes, as the rows of the step from the first on."""
        tables, items, merges = self._host
        work = self._sizes.work(spans, 0, self._shape, self._window)
        items[:], merges[:] = work.padded(self._sequences, self._sizes.slots(self._shape))
        for row, span in zip(tables, spans, strict=False):
            row[: len(span.block_table)] = array("i", span.block_table)
        for part, values in zip(self._parts, self._host, strict=True):
            part.copy_(torch.from_numpy(values))


def _tables(spans: Sequence[Span], width: int) -> np.ndarray:
    tables = np.zeros((len(spans), width), np.int32)
    for row, span in zip(tables, spans, strict=True):
        row[: len(span.block_table)] = array("i", span.block_table)
    return tables


def _upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Each on the device, all in one copy."""
    starts = np.cumsum([0, *(-(-part.size // ALIGNMENT) * ALIGNMENT for part in arrays)])
    joined = np.zeros(starts[-1], np.int32)
    for start, part in zip(starts, arrays, strict=False):
        joined[start : start + part.size] = part.ravel()
    on_device = torch.from_numpy(joined).to(device)
    return [on_device[start : start + part.size].view(part.shape) for start, part in zip(starts, arrays, strict=False)]
