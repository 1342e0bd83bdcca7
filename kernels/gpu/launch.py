"""How the attention of a step is cut into programs: plain arithmetic on the host, once for all layers of a step.

A tile is some query rows of one sequence, packed with the query heads that share a key/value head. Its keys are one
item of work, or several when there would be too few to fill the GPU: then each item leaves a partial result, and a
second kernel merges those (Flash-Decoding, Dao et al. 2023). Decodes and prefill chunks differ in their `Shape` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from kernels.kv_format import Groups, Storage

PER_SM = 2
"""Programs that an SM holds at once, about; as many items per key/value head as fill all SMs are aimed at."""


class Shape(NamedTuple):
    """Of one program of the attention kernel."""

    tile_rows: int
    """Query rows of a tile; each brings its G query heads."""
    block_m: int
    """At least tile_rows * G, a power of two."""
    block_n: int
    """Keys that a program reads at a time."""
    num_warps: int
    num_stages: int


class Work(NamedTuple):
    """The items and merges of a step, as the kernels read them. Rows of zeros are no work."""

    items: np.ndarray
    """int32 [I, 8]: sequence (row of the block tables), first query row, query rows, position of the first of them,
    first key, end of the keys, slot of the partial result or -1 where the result is final; the last is unused."""
    merges: np.ndarray
    """int32 [M, 4]: first query row, query rows, first slot, slots (consecutive)."""

    def padded(self, items: int, merges: int) -> Work:
        """With rows of zeros up to these numbers: a captured launch has as many programs each time."""
        return Work(*(_padded(rows, count) for rows, count in zip(self, (items, merges), strict=True)))


class Capacity(NamedTuple):
    """What `plan_work` needs at most."""

    items: int
    """Slots also."""
    merges: int


def decode_shape(group: int, head_dim: int, keys: Storage, values: Storage, dtype: torch.dtype) -> Shape:
    """For one query row per sequence."""
    raise NotImplementedError


def prefill_shape(group: int, head_dim: int, keys: Storage, values: Storage, dtype: torch.dtype) -> Shape:
    """For chunks of several query rows."""
    raise NotImplementedError


def plan_work(
    spans: Sequence[tuple[int, int]], first_row: int, n_kv_head: int, shape: Shape, window: int | None, sm_count: int
) -> Work:
    """Work for sequences of (query rows, context), see `kernels.contract.Span`, whose rows follow each other from
    `first_row` on. Sequence i has row i of the block tables."""
    raise NotImplementedError


def decode_capacity(sequences: int, n_kv_head: int, sm_count: int) -> Capacity:
    """For so many sequences of one query row each, however long."""
    raise NotImplementedError
