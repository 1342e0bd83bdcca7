"""The numerical kernels of the engine, behind one contract (`kernels.contract`); `select` picks an implementation."""

from __future__ import annotations

import torch

from kernels.contract import Kernels
from kernels.onednn import OneDNNKernels
from kernels.reference import ReferenceKernels


def select(device: torch.device, dtype: torch.dtype) -> Kernels:
    """The fastest kernels that this machine has for computing in `dtype` on `device`. Raises ImportError on a GPU
    without Triton."""
    if device.type == "cuda":
        from kernels.gpu.backend import TritonKernels

        return TritonKernels(device, dtype)
    if OneDNNKernels.supports(device, dtype):
        return OneDNNKernels(device, dtype)
    return ReferenceKernels(device, dtype)
