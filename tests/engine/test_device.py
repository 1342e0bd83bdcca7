"""Where a model runs: the setting, and GPUs that are not there or too old."""

from __future__ import annotations

import pytest
import torch

from engine.device import CPU, check_head_size, compute_dtype, find_device, native_dtype, too_old
from engine.errors import ConfigError


def test_cpu_is_the_cpu_and_auto_a_gpu_only_where_there_is_one() -> None:
    assert find_device("cpu") == CPU
    if not torch.cuda.is_available():
        assert find_device("auto") == CPU


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:x", "mps", ""])
def test_another_device_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or cuda:N, not"):
        find_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there_is_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{name}' is not there: .*; set device to auto or cpu") as caught:
        find_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_a_gpu_that_triton_supports_computes_in_bfloat16(capability: tuple[int, int]) -> None:
    assert too_old("any", capability) is None
    assert native_dtype(torch.device("cuda")) == torch.bfloat16


@pytest.mark.parametrize(("name", "capability"), [("GTX 1080", (6, 1)), ("T4", (7, 5))])
def test_a_gpu_too_old_for_triton_is_told_by_its_name(name: str, capability: tuple[int, int]) -> None:
    major, minor = capability
    assert too_old(name, capability) == f"{name} has compute capability {major}.{minor}, Triton needs 8.0"


def test_heads_that_the_gpu_kernels_do_not_have_are_refused() -> None:
    cuda = torch.device("cuda", 0)
    for head_dim in (16, 80, 256):
        check_head_size(cuda, head_dim)
    check_head_size(CPU, 8)
    with pytest.raises(ConfigError, match="take heads of 16 to 256 values, this model's have 8; set device to cpu"):
        check_head_size(cuda, 8)


def test_auto_is_what_the_device_computes_in_natively() -> None:
    assert compute_dtype("auto", CPU) == native_dtype(CPU)
    assert compute_dtype("float16", CPU) == torch.float16
