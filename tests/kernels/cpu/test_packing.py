"""Weights in few bits: a GGUF's grid is kept to the bit, and the bytes lie where the kernels look for them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.cpu import packing
from kernels.cpu.packing import GROUP, TILE

HALF_ULP = 2.0**-11
"""The relative error of rounding to float16."""


def scales(groups: int) -> Tensor:
    """[groups, 1], float16 values of either sign over three decades."""
    return (10 ** torch.empty(groups, 1).uniform_(-4, -1) * (1 - 2 * torch.randint(0, 2, (groups, 1)))).half().float()


def q4_0(groups: int) -> Tensor:
    """Each group's value of the largest magnitude is -8 scales, as GGUF's quantizer leaves it."""
    codes = torch.randint(0, 16, (groups, GROUP)).float()
    codes.scatter_(1, torch.randint(0, GROUP, (groups, 1)), 0)
    return (codes - 8) * scales(groups)


def q4_1(groups: int) -> Tensor:
    """Each group's least value is the offset, its largest 15 scales more."""
    codes = torch.randint(0, 16, (groups, GROUP)).float()
    codes[:, 3], codes[:, 29] = 0, 15
    scale = scales(groups).abs()
    return codes * scale - (scale * torch.empty(groups, 1).uniform_(3, 12)).half().float()


def q8_0(groups: int) -> Tensor:
    """Each group's value of the largest magnitude is 127 scales or -127."""
    codes = torch.randint(-127, 128, (groups, GROUP)).float()
    codes.scatter_(1, torch.randint(0, GROUP, (groups, 1)), 127)
    return codes * scales(groups)


def matrix(groups: Tensor, width: int) -> Tensor:
    """Groups [N, 32] as the rows of a weight that is `width` groups wide."""
    return groups.view(-1, width * GROUP)


def unpack(tiles: Tensor, bits: int, outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [outputs, G, 32], scales and offsets [outputs, G], byte by byte as the packing's description has them."""
    groups = -(-inputs // GROUP)
    codes = torch.empty(len(tiles), TILE, groups, GROUP, dtype=torch.int64)
    halves = torch.empty(2, len(tiles), TILE, groups, dtype=torch.float16)
    code_bytes = GROUP * TILE * bits // 8
    for group in range(groups):
        first = group * (code_bytes + 4 * TILE)
        for output in range(TILE):
            for k in range(GROUP):
                quad, position = divmod(k, 4)
                if bits == 8:
                    code = tiles[:, first + 64 * quad + 4 * output + position].long()
                else:
                    both = tiles[:, first + 64 * (quad // 2) + 4 * output + position].long()
                    code = both >> 4 if quad % 2 else both & 15
                codes[:, output, group, k] = code
        for kind in range(2):
            begin = first + code_bytes + 2 * TILE * kind
            halves[kind, :, :, group] = tiles[:, begin : begin + 2 * TILE].contiguous().view(torch.float16)
    codes, (scale, offset) = codes.flatten(0, 1)[:outputs], halves.flatten(1, 2)[:, :outputs]
    return codes, scale, offset


@pytest.mark.parametrize("grid", [q4_0, q4_1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_lies_on_a_four_bit_grid_is_met_exactly(grid, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    weight = matrix(grid(6000), 3).to(dtype)
    assert torch.equal(packing.quantize(weight, 4).dequantize().to(dtype), weight)
    assert packing.pack(weight, "auto")[1] == 4


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(2.0**-10, 0.5, width=16),
    negative=st.booleans(),
    offset=st.floats(-12, -3),
    codes=st.lists(st.integers(0, 15), min_size=GROUP - 2, max_size=GROUP - 2),
)
def test_any_group_of_a_four_bit_grid_is_met_exactly(
    scale: float, negative: bool, offset: float, codes: list[int]
) -> None:
    all_codes = torch.tensor([0, *codes, 15], dtype=torch.float32)
    least = torch.tensor(offset * scale).half().float()
    for values in ((all_codes - 8) * (-scale if negative else scale), all_codes * scale + least):
        for weight in (values[None], values[None].half()):
            assert torch.equal(packing.quantize(weight, 4).dequantize().to(weight.dtype), weight)


def test_what_lies_on_the_eight_bit_grid_is_met_exactly() -> None:
    weight = matrix(q8_0(6000), 3)
    assert torch.equal(packing.quantize(weight, 8).dequantize(), weight)


def test_the_eight_bit_grid_stored_in_float16_keeps_its_codes() -> None:
    """The largest value, rounded, may give the scale's neighbour, which moves the values by less than they were."""
    weight = matrix(q8_0(6000), 3)
    exact, rounded = packing.quantize(weight, 8), packing.quantize(weight.half(), 8)
    assert torch.equal(rounded.codes, exact.codes)
    torch.testing.assert_close(rounded.dequantize(), weight, rtol=2 * HALF_ULP, atol=0)


def test_auto_takes_eight_bits_when_a_single_value_is_off_the_four_bit_grid() -> None:
    weight = q4_0(packing.SLICE + 100)
    assert packing.pack(weight, "auto")[1] == 4
    row = weight[packing.SLICE + 70]  # long after the first slice
    row[5] = 0.3 * row.abs().max()
    tiles, bits = packing.pack(weight, "auto")
    assert bits == 8
    assert torch.equal(tiles, packing.pack(weight, "int8")[0])


@pytest.mark.parametrize("weight", [torch.randn(50, 64), matrix(q8_0(100), 2)])
def test_auto_takes_eight_bits_for_what_four_cannot_hold(weight: Tensor) -> None:
    assert packing.pack(weight, "auto")[1] == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eight_bits_are_off_by_half_a_step_and_the_scales_rounding_at_most(dtype: torch.dtype) -> None:
    weight = torch.randn(64, 320).mul(0.03).to(dtype)
    error = (packing.quantize(weight, 8).dequantize() - weight.float()).abs().unflatten(1, (-1, GROUP))
    steps = weight.float().unflatten(1, (-1, GROUP)).abs().amax(-1, keepdim=True) / 127
    # The scale is rounded, times 255 codes at most, and so is the offset, half as many steps from zero.
    assert (error <= steps * (0.5 + (255 + 128) * HALF_ULP + 1e-4)).all()


def test_four_bits_are_off_by_no_more_than_the_steps_between_least_and_largest() -> None:
    groups = torch.randn(2000, GROUP)
    error = packing.quantize(matrix(groups, 2), 4).dequantize().view(-1, GROUP) - groups
    steps = (groups.amax(-1) - groups.amin(-1)) / 15
    assert (error.square().mean(-1).sqrt() <= 0.53 * steps).all()
    # Uniform errors of half a step either way would be 0.289 steps in the mean of squares.
    assert (error.square().mean(-1).sqrt() / steps).mean() < 0.3


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 0.1, 60000.0, -60000.0, 1e-3])
def test_groups_of_one_value(bits: int, value: float) -> None:
    weight = torch.full((3, 64), value)
    torch.testing.assert_close(packing.quantize(weight, bits).dequantize(), weight, rtol=2 * HALF_ULP, atol=0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [6e4, 1e3, 1e-6, 1e-9, 1e-40])
def test_huge_and_tiny_values_stay_numbers(bits: int, size: float) -> None:
    weight = torch.empty(20, 64).uniform_(-size, size)
    found = packing.quantize(weight, bits).dequantize()
    assert found.isfinite().all()
    # Below float16's least positive number, 6e-8, a scale cannot follow.
    most = (2**bits - 1) * 2.0**-25 + 2.0**-25
    assert (found - weight).abs().max() <= 0.14 * size + most


@pytest.mark.parametrize("bits", [4, 8])
def test_a_group_of_zeros_between_others_stays_zeros(bits: int) -> None:
    weight = torch.randn(4, 96)
    weight[:, 32:64] = 0
    assert (packing.quantize(weight, bits).dequantize()[:, 32:64] == 0).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(16, 32), (32, 96), (1, 1), (17, 33), (45, 100), (3, 7), (160, 64)])
def test_tiles_hold_codes_scales_and_offsets_where_they_are_said_to_be(bits: int, shape: tuple[int, int]) -> None:
    outputs, inputs = shape
    weight = torch.randn(shape)
    tiles, found_bits = packing.pack(weight, f"int{bits}")
    assert found_bits == bits
    assert tiles.shape == (-(-outputs // TILE), packing.tile_bytes(inputs, bits))
    expected = packing.quantize(weight, bits)
    codes, scale, offset = unpack(tiles, bits, outputs, inputs)
    assert torch.equal(codes, expected.codes.long())
    assert torch.equal(scale, expected.scales)
    assert torch.equal(offset, expected.offsets)


@pytest.mark.parametrize("bits", [4, 8])
def test_odd_sizes_are_filled_up_with_zeros(bits: int) -> None:
    tiles, _ = packing.pack(torch.randn(19, 40), f"int{bits}")
    codes, scale, offset = unpack(tiles, bits, 2 * TILE, 64)
    values = codes * scale.float().unsqueeze(-1) + offset.float().unsqueeze(-1)
    assert (values[19:] == 0).all()
    assert packing.quantize(torch.randn(19, 40), bits).dequantize().shape == (19, 64)


def test_a_tile_says_nothing_of_other_rows() -> None:
    weight = torch.randn(64, 96)
    whole, _ = packing.pack(weight, "int4")
    for tile in range(4):
        alone, _ = packing.pack(weight[tile * TILE : (tile + 1) * TILE], "int4")
        assert torch.equal(alone[0], whole[tile])


def test_a_matrix_packed_in_slices_is_as_one_packed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(100, 64)
    whole = packing.pack(weight, "int8")[0]
    monkeypatch.setattr(packing, "SLICE", 32)
    assert torch.equal(packing.pack(weight, "int8")[0], whole)
