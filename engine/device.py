"""Where a model runs, and in what it computes there."""

from __future__ import annotations

import logging
from importlib.util import find_spec

import torch

from engine.errors import ConfigError

log = logging.getLogger(__name__)

CPU = torch.device("cpu")
GPU_HEAD_SIZES = range(16, 257)
TRITON_NEEDS = (8, 0)
"""Compute capability, as in https://developer.nvidia.com/cuda-gpus: Triton supports no older one, and on those its
attention kernels spill registers and want more shared memory than there is."""


def find_device(name: str) -> torch.device:
    """The device that a setting means: auto is the first GPU if the kernels run on it. Raises ConfigError when it is
    no device, or not there, or the kernels do not run on it."""
    if name == "auto":
        return _best_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}")
    if device.type == "cpu":
        return device
    count = torch.cuda.device_count()
    if count == 0:
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no NVIDIA GPU"
        raise ConfigError(f"device {name!r} is not there: {why}; set device to auto or cpu")
    device = torch.device("cuda", device.index or 0)
    if device.index >= count:
        raise ConfigError(f"device {name!r} is not there: this machine's last GPU is cuda:{count - 1}")
    if problem := gpu_obstacle(device):
        raise ConfigError(f"device {name!r} cannot be used: {problem}; set device to cpu")
    return device


def _best_device() -> torch.device:
    if not torch.cuda.is_available():
        return CPU
    device = torch.device("cuda", 0)
    if problem := gpu_obstacle(device):
        log.warning("%s is not used, the model runs on the CPU: %s", device, problem)
        return CPU
    return device


def gpu_obstacle(device: torch.device) -> str | None:
    """Why the kernels cannot run on a GPU that torch has, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    capability = torch.cuda.get_device_capability(device)
    return too_old(torch.cuda.get_device_name(device), capability)


def too_old(name: str, capability: tuple[int, int]) -> str | None:
    if capability < TRITON_NEEDS:
        return f"{name} has compute capability {_version(capability)}, Triton needs {_version(TRITON_NEEDS)}"
    return None


def check_head_size(device: torch.device, head_dim: int) -> None:
    """Raises ConfigError when the device is a GPU whose kernels have no heads of that size."""
    if device.type == "cuda" and head_dim not in GPU_HEAD_SIZES:
        raise ConfigError(
            f"the GPU's kernels take heads of {GPU_HEAD_SIZES.start} to {GPU_HEAD_SIZES.stop - 1} values, this model's "
            f"have {head_dim}; set device to cpu"
        )


def compute_dtype(name: str, device: torch.device) -> torch.dtype:
    """What the setting `dtype` means on a device."""
    return native_dtype(device) if name == "auto" else getattr(torch, name)


def native_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device computes in it natively, as all GPUs do that the kernels run on; else float32."""
    if device.type == "cuda":
        return torch.bfloat16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def _version(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
