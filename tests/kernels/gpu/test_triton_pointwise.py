"""Norms and activations in Triton's interpreter, against the reference."""

from __future__ import annotations

import pytest
import torch

from kernels.gpu import pointwise
from kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.float16]


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-5 if ours.dtype == torch.float32 else 4e-3
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [48, 576, 2048])
def test_rms_norm_alone_and_after_an_addition(dtype: torch.dtype, size: int) -> None:
    x, residual, weight = torch.randn(5, size).to(dtype), torch.randn(5, size).to(dtype), torch.rand(size).to(dtype)
    reference = ReferenceKernels(CPU, dtype)
    close(pointwise.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    normed, total = pointwise.add_rms_norm(x, residual, weight, 1e-5)
    expected, sums = reference.add_rms_norm(x, residual, weight, 1e-5)
    close(normed, expected)
    assert torch.equal(total, sums)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_some_heads_in_wider_rows(dtype: torch.dtype) -> None:
    heads, weight = torch.randn(4, 9, 80).to(dtype), torch.rand(80).to(dtype)
    heads[:, 5:] = torch.nan
    close(
        pointwise.rms_norm(heads[:, 2:5], weight, 1e-6),
        ReferenceKernels(CPU, dtype).rms_norm(heads[:, 2:5], weight, 1e-6),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("size", [80, 1536])
def test_gated(dtype: torch.dtype, activation: str, size: int) -> None:
    gate_up = (torch.randn(3, 2 * size) * 3).to(dtype)
    expected = ReferenceKernels(CPU, torch.float32).gated(gate_up.float(), activation)  # type: ignore[arg-type]
    close(pointwise.gated(gate_up, activation), expected.to(dtype))  # type: ignore[arg-type]
