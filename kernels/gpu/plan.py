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

ALIGNMENT = 16
"""Triton compiles again for a pointer that is no multiple of 16 bytes, or a stride that is none of 16 values."""


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
        width = max(len(span.block_table) for span in run)
        arrays += [_fill(_tables(len(run), width), run), *sizes.work(run, row, shape, window)]
        shapes.append(shape)
        row += sum(span.rows for span in run)
    parts = _upload(arrays, device)
    launches = [Launch(*arguments) for arguments in zip(parts[::3], parts[1::3], parts[2::3], shapes, strict=True)]
    return Plan(launches, sizes.workspace(shapes, device), window)


class ReservedPlan:
    """`plan` over arrays that stay where they are; see `TritonKernels.reserve_decodes`."""

    def __init__(self, sequences: int, blocks: int, sizes: Sizes, window: int | None, device: torch.device) -> None:
        self._sizes, self._window, self._sequences = sizes, window, sequences
        self._shape = sizes.shape(decodes=True)
        empty = sizes.work([], 0, self._shape, window).padded(sequences, sizes.slots(self._shape))
        self._host = [_tables(sequences, blocks), *empty]
        self._device = _join(self._host).to(device)
        tables, items, merges = _split(self._device, self._host)
        workspace = sizes.workspace([self._shape], device)
        self.plan = Plan([Launch(tables, items, merges, self._shape)], workspace, window)

    def fill(self, spans: Sequence[Span]) -> None:
        """Decodes, as the rows of the step from the first on."""
        tables, items, merges = self._host
        work = self._sizes.work(spans, 0, self._shape, self._window)
        items[:], merges[:] = work.padded(self._sequences, self._sizes.slots(self._shape))
        _fill(tables, spans)
        self._device.copy_(_join(self._host))


def _tables(rows: int, width: int) -> np.ndarray:
    return np.zeros((rows, -(-width // ALIGNMENT) * ALIGNMENT), np.int32)


def _fill(tables: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    for row, span in zip(tables, spans, strict=False):
        row[: len(span.block_table)] = array("i", span.block_table)
    return tables


def _upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Each on the device, all in one copy."""
    return _split(_join(arrays).to(device), arrays)


def _join(arrays: Sequence[np.ndarray]) -> Tensor:
    """One after the other, each from a multiple of ALIGNMENT on."""
    parts = (np.pad(part.ravel(), (0, -part.size % ALIGNMENT)) for part in arrays)
    return torch.from_numpy(np.concatenate([*parts]))


def _split(joined: Tensor, arrays: Sequence[np.ndarray]) -> list[Tensor]:
    """The parts of what `_join` made of these."""
    sizes = [part.size + -part.size % ALIGNMENT for part in arrays]
    return [part[: like.size].view(like.shape) for part, like in zip(joined.split(sizes), arrays, strict=True)]
