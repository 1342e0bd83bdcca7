"""What torch has faster for a CPU: linear layers prepacked by oneDNN (github.com/uxlfoundation/oneDNN), fused norms.

A matrix times one or a few rows, which is what decoding does, reads a weight in oneDNN's own blocked layout about
twice as fast as a plain one. The rest is as in the reference.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.contract import PackedLinear
from kernels.reference import ReferenceKernels


class OneDNNKernels(ReferenceKernels):
    """For CPUs whose torch comes with oneDNN."""

    @staticmethod
    def supports(device: torch.device, dtype: torch.dtype) -> bool:
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        return torch.ops.mkldnn._reorder_linear_weight(weight), bias

    def linear(self, x: Tensor, packed: PackedLinear) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(x, *packed, "none", [], "")

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        # torch's own is a chain of ten ops here, its layer norm a single one. x beside -x has mean 0 and the mean
        # square of x as its variance, so the layer norm of both is the RMS norm of both.
        size = x.shape[-1]
        return F.layer_norm(torch.cat((x, -x), -1), (2 * size,), eps=eps)[..., :size] * weight
