"""How the attention of a step is cut into programs: plain arithmetic on the host, once for all layers of a step.

A tile is some query rows of one sequence, packed with the query heads that share a key/value head. Its keys are one
item of work, or several when there would be too few items to fill the GPU or one would outlast the others: then each
leaves a partial result, and a second kernel merges those (Flash-Decoding, Dao et al. 2023). Decodes and prefill chunks
differ in their `Shape` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from kernels.kv_format import Groups, Storage

ITEM, MERGE = 8, 4
"""Numbers of an item and of a merge."""


class Shape(NamedTuple):
    """Of one program of the attention kernel."""

    tile_rows: int
    """Query rows of a tile; each brings its G query heads."""
    block_m: int
    """Rows of the matrix that these are: at least tile_rows * G, a power of two."""
    block_n: int
    """Keys that a program reads at a time."""
    num_warps: int
    num_stages: int
    per_sm: int
    """Programs on an SM at a time that the work is cut for."""


class Work(NamedTuple):
    """The items and merges of a step, as the kernels read them. Rows of zeros are no work."""

    items: np.ndarray
    """int32 [I, 8]: sequence (row of the block tables), first query row, query rows, position of the first of them,
    first key, end of the keys, slot of the partial result or -1 where the result is final; the last is unused."""
    merges: np.ndarray
    """int32 [M, 4]: first query row, query rows, first slot, slots (consecutive)."""

    def padded(self, sequences: int, slots: int) -> Work:
        """As many rows as decodes of so many sequences take at most, of `max_slots`: a captured launch has as many
        programs each time."""
        counts = (sequences + slots, slots // 2)
        return Work(*(np.pad(rows, ((0, count - len(rows)), (0, 0))) for rows, count in zip(self, counts, strict=True)))


def decode_shape(
    group: int, head_dim: int, keys: Storage, values: Storage, dtype: torch.dtype, hopper: bool = False
) -> Shape:
    """For one query row per sequence, computing in `dtype`; G is `group`. `hopper`: the GPU has the matrix units and
    the 227 KiB of shared memory of compute capability 9 or 10; without, 99 KiB are enough."""
    # 16 KiB of keys at a time, if they are computed in 16 bits. Block ids are loaded one stage before what they point
    # to, so that 5 stages keep two of these in shared memory and 7 keep three.
    block_n = max(16, min(128, 16384 // (power_of_2(head_dim) * dtype.itemsize)))
    block_m = max(16, power_of_2(group))
    return Shape(1, block_m, block_n, 4 if block_m <= 32 else 8, num_stages=7 if hopper else 5, per_sm=2)


def prefill_shape(
    group: int, head_dim: int, keys: Storage, values: Storage, dtype: torch.dtype, hopper: bool = False
) -> Shape:
    """For chunks of several query rows; see `decode_shape`."""
    size = power_of_2(head_dim)
    int8 = isinstance(keys, Groups) and isinstance(values, Groups) and values.bits == 8
    num_warps, num_stages = 8, 5
    if dtype == torch.float32:
        block_m, block_n, num_warps, num_stages = 32, 32, 4, 1
    elif hopper:
        block_m, block_n = (128, 64) if size <= 128 else (64, 32)
    elif size <= 64:
        block_m, block_n = 128, 32 if int8 else 64
    elif size == 128:
        block_m, block_n = 64 if int8 else 128, 32
    else:
        block_m, block_n, num_stages = 64, 32, 4
    block_m = max(block_m, power_of_2(group))
    return Shape(block_m // group, block_m, block_n, num_warps, num_stages, per_sm=1)


def plan_work(
    spans: Sequence[tuple[int, int]], first_row: int, n_kv_head: int, shape: Shape, window: int | None, sm_count: int
) -> Work:
    """Work for sequences of (query rows, context), see `kernels.contract.Span`, whose rows follow each other from
    `first_row` on. Sequence i has row i of the block tables."""
    tiles = []
    for sequence, (rows, context) in enumerate(spans):
        for start in range(0, rows, shape.tile_rows):
            count = min(shape.tile_rows, rows - start)
            position = context - rows + start
            begin = 0 if window is None else max(0, position + 1 - window)
            tiles.append((sequence, first_row + start, count, position, begin, position + count))
        first_row += rows

    share = sum(end - begin for *_, begin, end in tiles) * n_kv_head / (shape.per_sm * sm_count)
    items, merges, slots = [], [], 0
    for sequence, row, count, position, begin, end in tiles:
        step = round_up((end - begin) / max(1, round((end - begin) / share)), shape.block_n)
        pieces = -(-(end - begin) // step)
        if pieces > 1:
            merges.append((row, count, slots, pieces))
        for key in range(begin, end, step):
            slot = -1 if pieces == 1 else slots
            slots += pieces > 1
            items.append((sequence, row, count, position, key, min(key + step, end), slot, 0))
    # The longest first, so that none of them runs alone at the end.
    items.sort(key=lambda item: item[4] - item[5])
    return Work(_rows(items, ITEM), _rows(merges, MERGE))


def max_slots(n_kv_head: int, shape: Shape, sm_count: int) -> int:
    """Partial results of a step at most, whatever its sequences: a tile of x shares, x >= 1.5, makes round(x) <= 4/3 x
    of them, and all tiles together are (programs that fill the GPU) / n_kv_head shares."""
    return 4 * shape.per_sm * sm_count // (3 * n_kv_head)


def power_of_2(n: int) -> int:
    """The next one from n on."""
    return 1 << (n - 1).bit_length()


def round_up(x: float, unit: int) -> int:
    return int(-(-x // unit)) * unit


def _rows(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int32).reshape(-1, width)
