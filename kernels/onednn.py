"""What torch has faster for a CPU: linear layers prepacked by oneDNN and FBGEMM, fused norms.

A matrix times the rows of a batch reads a weight in oneDNN's own blocked layout (github.com/uxlfoundation/oneDNN) about
twice as fast as a plain one. For one or two rows, which is a conversation decoding alone, FBGEMM's half precision
(github.com/pytorch/FBGEMM) is another 1.3 to 1.6 times faster, but much slower for prefill: a bfloat16 weight is
kept in both forms, while the second copies take less than SECOND_COPIES bytes. The rest is as in the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.reference import ReferenceKernels

FEW_ROWS = 2
SECOND_COPIES = 512 << 20
HALF_MAX = torch.finfo(torch.float16).max


class _Linear(NamedTuple):
    blocked: Tensor
    bias: Tensor | None
    half: torch.ScriptObject | None
    """The same values: every bfloat16 weight within its range is a float16 one."""


class OneDNNKernels(ReferenceKernels):
    """For CPUs whose torch comes with oneDNN."""

    @staticmethod
    def supports(device: torch.device, dtype: torch.dtype) -> bool:
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype)
        self._second_copies = 0

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> _Linear:
        return _Linear(torch.ops.mkldnn._reorder_linear_weight(weight), bias, self._pack_half(weight, bias))

    def _pack_half(self, weight: Tensor, bias: Tensor | None) -> torch.ScriptObject | None:
        if self.dtype != torch.bfloat16 or "fbgemm" not in torch.backends.quantized.supported_engines:
            return None
        if self._second_copies + weight.nbytes > SECOND_COPIES or weight.abs().max() > HALF_MAX:
            return None
        self._second_copies += weight.nbytes
        return torch.ops.quantized.linear_prepack_fp16(weight.float(), None if bias is None else bias.float())

    def linear(self, x: Tensor, packed: _Linear) -> Tensor:
        if packed.half is not None and x.shape[0] <= FEW_ROWS:
            return torch.ops.quantized.linear_dynamic_fp16.default(x.float(), packed.half).to(x.dtype)
        return torch.ops.mkldnn._linear_pointwise.default(x, packed.blocked, packed.bias, "none", [], "")

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        # torch's own is a chain of ten ops here, its layer norm a single one. x beside -x has mean 0 and the mean
        # square of x as its variance, so the layer norm of both is the RMS norm of both.
        size = x.shape[-1]
        return F.layer_norm(torch.cat((x, -x), -1), (2 * size,), eps=eps)[..., :size] * weight
