"""The native kernels, compiled once for every version of them on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernels import cpu


@pytest.fixture(scope="session")
def compiled_kernels(model_cache: Path) -> Path:
    """A folder for machine code that outlives a test run."""
    return model_cache / "kernels"


@pytest.fixture(scope="session")
def decoder(compiled_kernels: Path) -> Any:
    """The class `kernels.cpu.native.NativeDecoder`, in the tier of KVCHAT_CPU_TIER or the best one."""
    pytest.importorskip("numba")
    return cpu.load(compiled_kernels, lambda: None)
