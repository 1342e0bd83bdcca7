"""Paged attention over the cache in place: decodes and prefill chunks, a ragged batch in one launch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels.contract import LayerCache, Plane
from kernels.gpu.attention_kernels import attend, merge
from kernels.gpu.launch import Shape, power_of_2
from kernels.kv_format import Groups


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
    may be replayed over new contents. No row of `merges` means no second launch. The workspace must have
    `kernels.gpu.launch.max_slots`.

    Layers lie as in `kernels.reference`. Where keys are rotated, q must have been; where values are, out is still.
    Scores are scaled by 1 / sqrt(D), then, with a `softcap` c, become c * tanh(score / c) (Gemma Team 2024).
    """
    n_head, size = q.shape[1:]
    constants = attend_constants(n_head, layer, shape, window, softcap)
    if len(items):
        attend[(layer.keys.n_kv_head, len(items))](
            q,
            out,
            *_pointers(layer.keys),
            *_pointers(layer.values),
            block_tables,
            items,
            *workspace,
            _score_scale(size, softcap),
            q.stride(0),
            block_tables.stride(0),
            **constants,
        )
    if len(merges):
        merge[(n_head, len(merges), shape.tile_rows)](out, merges, *workspace, **merge_constants(n_head, size, shape))


def attend_constants(
    n_head: int, layer: LayerCache, shape: Shape, window: int | None, softcap: float | None
) -> dict[str, Any]:
    """What `attend` is compiled for."""
    keys, values = layer
    key_bits, key_group = _groups(keys)
    value_bits, value_group = _groups(values)
    return {
        "TILE_ROWS": shape.tile_rows,
        "PACKED": n_head // keys.n_kv_head,
        "WINDOW": window or 0,
        "SOFTCAP": softcap or 0.0,
        "SIZE": keys.head_dim,
        "PADDED": power_of_2(keys.head_dim),
        "HEADS": keys.n_kv_head,
        "SLOTS": keys.block_size,
        "KEY_BITS": key_bits,
        "KEY_GROUP": key_group,
        "VALUE_BITS": value_bits,
        "VALUE_GROUP": value_group,
        "BLOCK_M": shape.block_m,
        "BLOCK_N": shape.block_n,
        "num_warps": shape.num_warps,
        "num_stages": shape.num_stages,
        "enable_fp_fusion": True,
        # All there are: left to itself, ptxas would rather spill than keep a fourth program of decodes off an SM.
        **({"maxnreg": 255} if shape.tile_rows == 1 else {}),
    }


def merge_constants(n_head: int, head_dim: int, shape: Shape) -> dict[str, Any]:
    """What `merge` is compiled for."""
    return {
        "TILE_ROWS": shape.tile_rows,
        "N_HEAD": n_head,
        "SIZE": head_dim,
        "PADDED": power_of_2(head_dim),
        "AT_ONCE": 16,
        "num_warps": 4,
        "enable_fp_fusion": True,
    }


def _pointers(plane: Plane) -> tuple[Tensor, Tensor]:
    """What its heads are read through, and the words of a scale and an offset, which only groups have."""
    if isinstance(plane.storage, Groups):
        return plane.blocks, plane.blocks.view(torch.int32)
    blocks = plane.blocks.view(plane.storage)
    return blocks, blocks


def _groups(plane: Plane) -> tuple[int, int]:
    """Bits, 0 of floats, and group size."""
    return (plane.storage.bits, plane.storage.size) if isinstance(plane.storage, Groups) else (0, 0)


def _score_scale(head_dim: int, softcap: float | None) -> float:
    """What makes a dot product the exponent of 2 that its score is, or with a soft cap that of the cap's tanh."""
    scale = math.log2(math.e) / math.sqrt(head_dim)
    return scale if softcap is None else 2 * scale / softcap
