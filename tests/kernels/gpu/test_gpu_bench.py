"""What `python -m kernels.bench --device cuda` does, over small shapes in Triton's interpreter."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from kernels.bench.__main__ import main
from kernels.bench.gpu_case import Case
from kernels.bench.gpu_checks import Check, check_all
from kernels.bench.gpu_timings import Sizes, time_all
from kernels.gpu.backend import TritonKernels

CPU = torch.device("cpu")
CASES = [Case([(1, 20), (3, 9)], n_head=2, n_kv_head=1, head_dim=32, window=12)]


def run_checks(kernels: TritonKernels) -> list[Check]:
    return list(check_all(kernels, kernels.dtype, CPU, CASES, vocab=100))


def test_all_kernels_pass_their_checks() -> None:
    checks = run_checks(TritonKernels(CPU, torch.float16))
    assert [str(check) for check in checks if not check.passed] == []
    kinds = {check.what.split()[0] for check in checks}
    assert kinds == {"add_rms_norm:", "gated", "rotary_kv_write:", "paged", "draw,"}


class Wrong(TritonKernels):
    """Its attention is off by a hundredth, its draws by one token."""

    def paged_attention(self, *args) -> Tensor:  # type: ignore[no-untyped-def, override]
        return super().paged_attention(*args) * 1.01

    def draw(self, *args) -> list[int]:  # type: ignore[no-untyped-def, override]
        return [(token + 1) % 100 for token in super().draw(*args)]


def test_a_wrong_kernel_fails_its_check() -> None:
    failed = {check.what.split()[0] for check in run_checks(Wrong(CPU, torch.float32)) if not check.passed}
    assert failed == {"paged", "draw,"}


def test_everything_is_timed() -> None:
    sizes = Sizes(
        copy_bytes=1 << 10,
        matrix=16,
        decodes=[(1, 5)],
        writes=1,
        prefills=[(2, 3)],
        hidden=32,
        inner=48,
        vocab=50,
        draws=[1],
    )
    figures = list(time_all(TritonKernels(CPU, torch.float16), torch.float16, CPU, sizes))
    assert all(figure.value > 0 for figure in figures)
    assert len(figures) == 2 + 3 + 3 + 4 + 2 + 1
    assert "% of copy" in str(figures[2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--device", "cuda"])
    with pytest.raises(SystemExit, match=r"^python -m kernels.bench: --device cuda: .*; --device cpu times [^\n]*$"):
        main()
