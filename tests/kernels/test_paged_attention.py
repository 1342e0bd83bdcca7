"""Paged attention against the textbook: one query at a time, one head at a time, in float64."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from kernels import select
from kernels.contract import LayerCache, Plane, Span
from kernels.kv_format import Groups, KVFormat, Storage, dequantize, head_bytes, quantize, rotate

CPU = torch.device("cpu")


def textbook(q: Tensor, keys: Tensor, values: Tensor, context: int, window: int | None) -> Tensor:
    """q [T, Hq, D], the last T of `context` tokens, over keys and values [context, Hkv, D] -> [T, Hq * D]."""
    rows, n_head, head_dim = q.shape
    group = n_head // keys.shape[1]
    out = torch.empty(rows, n_head, head_dim, dtype=torch.float64)
    for row in range(rows):
        last = context - rows + row
        first = 0 if window is None else max(0, last + 1 - window)
        for head in range(n_head):
            k, v = keys[first : last + 1, head // group].double(), values[first : last + 1, head // group].double()
            out[row, head] = (k @ q[row, head].double() / head_dim**0.5).softmax(0) @ v
    return out.flatten(1)


def poisoned(blocks: int, storage: Storage, block_size: int, n_kv_head: int, head_dim: int) -> Plane:
    """Every value in it is NaN."""
    size = block_size * n_kv_head * head_bytes(storage, head_dim)
    return Plane(torch.full((blocks, size), 0xFF, dtype=torch.uint8), storage, block_size, n_kv_head, head_dim)


def as_stored(x: Tensor, storage: Storage) -> Tensor:
    """What the cache makes of keys or values [T, Hkv, D]."""
    if isinstance(storage, torch.dtype):
        return x.to(storage)
    stored = dequantize(*quantize(x, storage), storage)
    return rotate(stored) if storage.rotated else stored


def check(
    spans: list[tuple[int, int]],
    *,
    group: int = 3,
    n_kv_head: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    window: int | None = None,
    consecutive: bool = False,
    dtype: torch.dtype = torch.float32,
    cache_format: KVFormat | None = None,
    tolerance: float = 2e-5,
) -> None:
    """Spans are (rows, context) pairs. Every slot that no token was written to holds NaN."""
    kernels = select(CPU, dtype)
    counts = [-(-context // block_size) for _, context in spans]
    blocks = list(range(sum(counts) + 3))
    if not consecutive:
        random.Random(len(spans)).shuffle(blocks)
    sizes = (block_size, n_kv_head, head_dim)
    format = cache_format or KVFormat(dtype, dtype)
    layer = LayerCache(*(poisoned(len(blocks), storage, *sizes) for storage in format))
    queries, expected, planned = [], [], []
    for (rows, context), count in zip(spans, counts, strict=True):
        table, blocks = blocks[:count], blocks[count:]
        kv = torch.randn(context, 2, n_kv_head, head_dim, dtype=dtype)
        slots = [table[i // block_size] * block_size + i % block_size for i in range(context)]
        kernels.kv_write(kv, layer, torch.tensor(slots))
        q = torch.randn(rows, n_kv_head * group, head_dim, dtype=dtype)
        keys, values = (as_stored(x, storage) for x, storage in zip(kv.unbind(1), format, strict=True))
        queries.append(q)
        expected.append(textbook(q, keys, values, context, window))
        planned.append(Span(rows, context, table))
    plan = kernels.plan_attention(planned, layer, n_kv_head * group, window)
    ours = kernels.paged_attention(torch.cat(queries), layer, plan)
    torch.testing.assert_close(ours.double(), torch.cat(expected), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("head_dim", [32, 64, 80, 128, 256])
def test_every_group_and_head_size(group: int, head_dim: int) -> None:
    check([(1, 1), (1, 37), (20, 20), (5, 50)], group=group, head_dim=head_dim)


@pytest.mark.parametrize("block_size", [1, 5, 16, 32])
@pytest.mark.parametrize("consecutive", [True, False])
def test_every_block_size_in_order_and_shuffled(block_size: int, consecutive: bool) -> None:
    check([(1, 31), (1, 32), (1, 33), (33, 64), (1, 1)], block_size=block_size, consecutive=consecutive)


def test_ragged_decodes_from_one_token_to_many_blocks() -> None:
    check([(1, length) for length in (1, 2, 15, 16, 17, 100, 129, 700, 900)])


def test_more_decodes_than_one_call_takes() -> None:
    check([(1, 500 + extra) for extra in range(17)], group=1, n_kv_head=1, head_dim=32)


def test_spans_come_in_any_order() -> None:
    check([(4, 9), (1, 700), (1, 3), (20, 61), (1, 80), (2, 2), (1, 1)])


@pytest.mark.parametrize("window", [None, 200])
def test_a_prefill_longer_than_a_tile_behind_a_long_prefix(window: int | None) -> None:
    check([(300, 750), (513, 513)], group=2, n_kv_head=1, head_dim=32, window=window)


@pytest.mark.parametrize("window", [1, 7, 16, 50, 1000])
def test_a_sliding_window_sees_the_last_tokens_only(window: int) -> None:
    check([(1, 5), (1, 60), (1, 200), (40, 90)], window=window)


def test_one_key_value_head_for_all_queries() -> None:
    check([(1, 40), (9, 40)], group=9, n_kv_head=1)


@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float16])
def test_a_cache_in_another_dtype_is_cast_on_write_and_on_read(cache_dtype: torch.dtype) -> None:
    check([(1, 40), (9, 40)], cache_format=KVFormat(cache_dtype, cache_dtype))


@pytest.mark.parametrize("head_dim", [32, 80, 256])
@pytest.mark.parametrize(
    "format",
    [
        KVFormat(Groups(8, 16), Groups(8, 16)),
        KVFormat(Groups(4, 16, rotated=True), Groups(4, 16)),
        KVFormat(Groups(8, 16), Groups(4, 16, rotated=True)),
    ],
    ids=str,
)
def test_a_cache_in_groups_is_expanded_on_read(format: KVFormat, head_dim: int) -> None:
    check([(1, 40), (9, 40), (1, 17), (1, 300)], head_dim=head_dim, block_size=5, cache_format=format)


def test_bfloat16_stays_within_its_precision() -> None:
    check([(1, 40), (9, 40), (1, 300)], dtype=torch.bfloat16, tolerance=2e-2)
