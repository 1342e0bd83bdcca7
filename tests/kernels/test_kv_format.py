"""Keys and values as integers in groups."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.kv_format import Groups, KVFormat, dequantize, head_bytes, quantize, rotate

HEADS = [8, 16, 32, 64, 80, 96, 112, 128, 256]


def back(x: Tensor, groups: Groups) -> Tensor:
    stored = dequantize(*quantize(x, groups), groups)
    return rotate(stored) if groups.rotated else stored


@settings(deadline=None)
@given(
    head_dim=st.sampled_from(HEADS),
    bits=st.sampled_from([4, 8]),
    whole=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    shift=st.sampled_from([0.0, 5.0]),
    seed=st.integers(0, 2**32),
)
def test_a_value_is_off_by_half_a_step_of_its_group_at_most(
    head_dim: int, bits: int, whole: bool, scale: float, shift: float, seed: int
) -> None:
    groups = Groups(bits, head_dim if whole else 8)
    x = (torch.randn(5, 2, head_dim, generator=torch.Generator().manual_seed(seed)) + shift) * scale
    low, high = x.unflatten(-1, (-1, groups.size)).aminmax(dim=-1, keepdim=True)
    in_float16 = 2.0**-10 * (low.abs() + high.abs()) + 2.0**-24 * 2**bits
    step = (high - low) / (2**bits - 1)
    off = (back(x, groups) - x).abs().unflatten(-1, (-1, groups.size))
    assert (off <= 0.501 * step + in_float16).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_what_lies_on_the_grid_comes_back_exactly(bits: int) -> None:
    codes = torch.arange(16.0).repeat(4)
    codes[15] = 2**bits - 1
    assert torch.equal(back(codes * 0.25 - 2, Groups(bits, 64)), codes * 0.25 - 2)
    assert torch.equal(back(torch.full((64,), 0.5), Groups(bits, 32)), torch.full((64,), 0.5))


@pytest.mark.parametrize("head_dim", HEADS)
def test_a_rotation_keeps_lengths_and_products_and_undoes_itself(head_dim: int) -> None:
    q, k = torch.randn(2, 7, head_dim, dtype=torch.float64)
    torch.testing.assert_close(rotate(rotate(q)), q)
    torch.testing.assert_close((rotate(q) * rotate(k)).sum(-1), (q * k).sum(-1))


def test_a_rotation_spreads_an_outlier() -> None:
    x = torch.zeros(64)
    x[5] = 8
    assert rotate(x).abs().max() == 1


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("head_dim", HEADS)
def test_the_bytes_of_a_head_are_those_of_what_is_stored(head_dim: int, bits: int) -> None:
    for size in (8, head_dim):
        groups = Groups(bits, size)
        stored = quantize(torch.randn(head_dim), groups)
        assert head_bytes(groups, head_dim) == sum(part.nbytes for part in stored)
    assert head_bytes(torch.bfloat16, head_dim) == 2 * head_dim


def test_a_format_says_what_it_is() -> None:
    int4 = Groups(4, 32, rotated=True)
    assert str(KVFormat(int4, int4)) == "int4/32 rotated"
    assert str(KVFormat(Groups(8, 64), int4)) == "keys int8/64, values int4/32 rotated"
    assert str(KVFormat(torch.bfloat16, torch.bfloat16)) == "bfloat16"
