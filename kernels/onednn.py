"""What torch has faster for a CPU: linear layers prepacked by oneDNN, fused norms.

A matrix times the rows of a batch reads a weight in oneDNN's own blocked layout (github.com/uxlfoundation/oneDNN) about
twice as fast as a plain one. The rest is as in the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.reference import ReferenceKernels


class _Linear(NamedTuple):
    blocked: Tensor
    bias: Tensor | None


class OneDNNKernels(ReferenceKernels):
    """For CPUs whose torch comes with oneDNN."""

    @staticmethod
    def supports(device: torch.device, dtype: torch.dtype) -> bool:
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> _Linear:
        return _Linear(torch.ops.mkldnn._reorder_linear_weight(weight), bias)

    def linear(self, x: Tensor, packed: _Linear) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(x, packed.blocked, packed.bias, "none", [], "")

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        # torch's own is a chain of ten ops here, its layer norm a single one. x beside -x has mean 0 and the mean
        # square of x as its variance, so the layer norm of both is the RMS norm of both.
        size = x.shape[-1]
        return F.layer_norm(torch.cat((x, -x), -1), (2 * size,), eps=eps)[..., :size] * weight
