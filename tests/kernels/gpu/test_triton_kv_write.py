"""Rotary embedding and cache writes in Triton's interpreter, against the reference."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.contract import LayerCache, Plane
from kernels.gpu.kv_write import rotary_kv_write, slot_offset
from kernels.kv_format import Groups, KVFormat, head_bytes, rotate
from kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
SLOTS = [3, 60, 17, 16]
PLAIN = [KVFormat(dtype, dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)]


def empty(format: KVFormat, block_size: int, n_kv_head: int, head_dim: int) -> LayerCache:
    """64 slots, every byte of them 0xAA."""
    return LayerCache(
        *(
            Plane(
                torch.full(
                    (64 // block_size, block_size * n_kv_head * head_bytes(storage, head_dim)), 0xAA, dtype=torch.uint8
                ),
                storage,
                block_size,
                n_kv_head,
                head_dim,
            )
            for storage in format
        )
    )


def tokens(n_head: int, n_kv_head: int, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Heads, cos and sin of four tokens."""
    heads = torch.randn(4, n_head + 2 * n_kv_head, head_dim).to(dtype)
    angles = torch.rand(4, 1, head_dim // 2) * 6
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([-angles.sin(), angles.sin()], -1)
    return heads, cos.to(dtype), sin.to(dtype)


def check(
    format: KVFormat,
    *,
    n_head: int = 6,
    n_kv_head: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    half: bool = False,
) -> None:
    dtype = torch.float16 if half else torch.float32
    ours, expected = (empty(format, block_size, n_kv_head, head_dim) for _ in range(2))
    heads, cos, sin = tokens(n_head, n_kv_head, head_dim, dtype)
    slots = torch.tensor(SLOTS)
    # The reference computes in float32 here: what it stores is what a kernel without rounding would.
    exact = (tensor.double().float() for tensor in (heads, cos, sin))
    theirs = ReferenceKernels(CPU, torch.float32).rotary_kv_write(*exact, expected, slots)
    if isinstance(format.keys, Groups) and format.keys.rotated:
        theirs = rotate(theirs)
    q = rotary_kv_write(heads, cos, sin, ours, slots)
    tolerance = 2e-3 if half else 1e-5
    assert q.dtype == dtype
    torch.testing.assert_close(q.float(), theirs, atol=tolerance, rtol=tolerance)
    for plane, wanted in zip(ours, expected, strict=True):
        if isinstance(plane.storage, Groups):
            # A sum in another order may put a value on the other side of a rounding, once in thousands.
            assert (plane.blocks != wanted.blocks).float().mean() < 0.002
        else:
            # The interpreter cuts off where a GPU rounds to bfloat16.
            mine, other = (p.blocks.view(plane.storage).float() for p in (plane, wanted))
            torch.testing.assert_close(
                mine, other, atol=1e-5, rtol=2**-7 if plane.storage == torch.bfloat16 else 2**-10
            )


@pytest.mark.parametrize("head_dim", [32, 64, 80, 96, 112, 128, 256])
@pytest.mark.parametrize(
    "format",
    [
        KVFormat(torch.float32, torch.float32),
        KVFormat(Groups(8, 16, rotated=True), Groups(4, 16)),
        "keys in one group, values in one rotated",
    ],
    ids=str,
)
def test_every_head_size(head_dim: int, format: KVFormat | str) -> None:
    if isinstance(format, str):
        format = KVFormat(Groups(8, head_dim), Groups(4, head_dim, rotated=True))
    check(format, head_dim=head_dim)


@pytest.mark.parametrize(
    "format", [*PLAIN, KVFormat(Groups(8, 64, rotated=True), Groups(8, 64, rotated=True))], ids=str
)
def test_every_format_from_half_precision(format: KVFormat) -> None:
    check(format, half=True)


@pytest.mark.parametrize(("n_head", "n_kv_head"), [(1, 1), (4, 4), (9, 3), (7, 1), (40, 8)])
def test_every_number_of_heads(n_head: int, n_kv_head: int) -> None:
    check(KVFormat(Groups(8, 32), Groups(4, 32)), n_head=n_head, n_kv_head=n_kv_head)


@pytest.mark.parametrize("block_size", [16, 32, 64])
def test_every_block_size(block_size: int) -> None:
    check(KVFormat(torch.float32, torch.float32), block_size=block_size)
    check(KVFormat(Groups(8, 64), Groups(4, 16)), block_size=block_size)


def test_a_row_without_a_slot_is_written_nowhere_and_its_query_still_turned() -> None:
    layer = empty(KVFormat(torch.float32, Groups(8, 64)), 16, 2, 64)
    heads, cos, sin = tokens(6, 2, 64, torch.float32)
    q = rotary_kv_write(heads, cos, sin, layer, torch.full((4,), -1))
    assert all((plane.blocks == 0xAA).all() for plane in layer)
    assert q.isfinite().all() and not torch.equal(q, heads[:, :6])


def test_equal_values_are_stored_exactly() -> None:
    format = KVFormat(Groups(8, 64), Groups(4, 16))
    ours, expected = empty(format, 16, 2, 64), empty(format, 16, 2, 64)
    heads = torch.full((1, 10, 64), 0.5)
    cos, sin = torch.ones(1, 1, 64), torch.zeros(1, 1, 64)
    rotary_kv_write(heads, cos, sin, ours, torch.tensor([5]))
    ReferenceKernels(CPU, torch.float32).rotary_kv_write(heads, cos, sin, expected, torch.tensor([5]))
    for plane, wanted in zip(ours, expected, strict=True):
        assert torch.equal(plane.blocks, wanted.blocks)


@triton.jit
def offset_kernel(slots, heads, out, SLOTS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(out + i, slot_offset(tl.load(slots + i), tl.load(heads + i), SLOTS, HEADS, SIZE, BLOCK))


def test_offsets_reach_beyond_two_to_the_31() -> None:
    slots, heads = torch.tensor([0, 17, 1 << 27, (1 << 34) + 5]), torch.tensor([0, 7, 3, 1], dtype=torch.int32)
    out = torch.empty(4, dtype=torch.int64)
    offset_kernel[(1,)](slots, heads, out, SLOTS=16, HEADS=8, SIZE=128, BLOCK=16 * 8 * 128)
    assert out.tolist() == [(slot * 8 + head) * 128 for slot, head in zip(slots.tolist(), heads.tolist(), strict=True)]
    assert out.max() > 2**31
