"""The other ops of the contract, each against its formula in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels import select
from kernels.contract import Kernels, LayerCache, Plane
from kernels.onednn import OneDNNKernels
from kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def tolerance(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 3e-2


@pytest.fixture(params=[ReferenceKernels, OneDNNKernels])
def kinds(request: pytest.FixtureRequest) -> type[ReferenceKernels]:
    return request.param


def make(kind: type[ReferenceKernels], dtype: torch.dtype) -> Kernels:
    if kind is OneDNNKernels and not OneDNNKernels.supports(CPU, dtype):
        pytest.skip(f"this CPU's oneDNN does not compute in {dtype}")
    return kind(CPU, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 8, 130])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(kinds: type[ReferenceKernels], dtype: torch.dtype, rows: int, bias: bool) -> None:
    kernels = make(kinds, dtype)
    x, weight = torch.randn(rows, 48, dtype=dtype), torch.randn(64, 48, dtype=dtype) / 7
    added = torch.randn(64, dtype=dtype) if bias else None
    expected = F.linear(x.double(), weight.double(), None if added is None else added.double())
    ours = kernels.linear(x, kernels.pack_linear(weight, added))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), expected, atol=tolerance(dtype), rtol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm(dtype: torch.dtype) -> None:
    kernels = select(CPU, dtype)
    x, residual, weight = torch.randn(5, 96, dtype=dtype), torch.randn(5, 96, dtype=dtype), torch.rand(96, dtype=dtype)
    normed, total = kernels.add_rms_norm(x, residual, weight, 1e-5)
    exact = total.double()
    expected = exact / (exact.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(normed.double(), expected, atol=tolerance(dtype), rtol=tolerance(dtype))


def test_rotary_turns_pairs_of_values_by_their_angle() -> None:
    heads = torch.randn(4, 3, 8)
    angles = torch.rand(4, 1, 4)
    before = torch.complex(heads[..., :4].clone(), heads[..., 4:].clone())
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([-angles.sin(), angles.sin()], -1)
    ReferenceKernels(CPU, torch.float32).rotary_(heads, cos, sin)
    turned = before * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(heads, torch.cat([turned.real, turned.imag], -1))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated(activation: str) -> None:
    gate, up = torch.randn(2, 5, 24).unbind()
    curve = F.silu if activation == "silu" else lambda x: F.gelu(x, approximate="tanh")
    ours = select(CPU, torch.float32).gated(torch.cat([gate, up], -1), activation)  # type: ignore[arg-type]
    torch.testing.assert_close(ours, curve(gate) * up)


def test_kv_write_touches_its_slots_and_nothing_else() -> None:
    blocks = torch.zeros(2, 4, 3, 2, 8)
    layer = LayerCache(*(Plane(plane.view(torch.uint8).flatten(1), torch.float32, 3, 2, 8) for plane in blocks))
    kv = torch.randn(3, 2, 2, 8)
    ReferenceKernels(CPU, torch.float32).kv_write(kv, layer, torch.tensor([11, 0, 4]))
    rows = blocks.flatten(1, 2)
    for index, slot in enumerate((11, 0, 4)):
        assert torch.equal(rows[:, slot], kv[index])
    assert torch.count_nonzero(rows.sum((0, 2, 3))) == 3
