"""Paged attention over the cache in place: decodes and prefill chunks, a ragged batch in one launch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.contract import LayerCache
from kernels.gpu.launch import Shape


class Workspace(NamedTuple):
    """Partial results of split tiles; one serves all layers, decodes and prefills one after the other."""

    out: Tensor
    """float32 [slots * tile_rows * Hq * D]"""
    lse: Tensor
    """float32 [slots * tile_rows * Hq]: base-2 logarithm of the sum of exponentials."""

    @classmethod
    def allocate(cls, slots: int, tile_rows: int, n_head: int, head_dim: int, device: torch.device) -> Workspace:
        rows = slots * tile_rows * n_head
        return cls(*(torch.empty(size, dtype=torch.float32, device=device) for size in (rows * head_dim, rows)))


def paged_attention(
    q: Tensor,
    layer: LayerCache,
    block_tables: Tensor,
    items: Tensor,
    merges: Tensor,
    shape: Shape,
    out: Tensor,
    workspace: Workspace,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Causal attention of the query rows that `items` names, into the same rows of `out`; other rows stay as they are.

    q [T, Hq, D] in float16, bfloat16 or float32, rows may be parts of wider ones; out [T, Hq * D], dense, same dtype.
    block_tables int32 [sequences, W]. items int32 [I, 8] and merges int32 [M, 4]: `kernels.gpu.launch.plan_work`'s
    with the same `shape` and `window`, on the device; their lengths alone decide the grid, so that a captured launch
    may be replayed over new contents. No row of `merges` means no second launch.

    Layers lie as in `kernels.reference`. Where keys are rotated, q must have been; where values are, out is still.
    Scores are scaled by 1 / sqrt(D), then, with a `softcap` c, become c * tanh(score / c) (Gemma Team 2024).
    """
    raise NotImplementedError
