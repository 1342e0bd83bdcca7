"""The kernels as machine code, as the launchers compile them: attention, and what is beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.parametrize(("capability", "shared"), [(80, 163 << 10), (90, 227 << 10)])
@pytest.mark.parametrize(("sample", "kernels", "least_shared"), [("aot", 10, 1), ("aot_step", 11, 0)])
def test_every_kernel_fits_the_registers_and_the_shared_memory(
    sample: str,
    kernels: int,
    least_shared: int,
    capability: int,
    shared: int,
    model_cache: Path,
    record_property: Callable[[str, object], None],
) -> None:
    # In a process of its own: in this one Triton interprets.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(model_cache / "triton")}
    command = [sys.executable, "-m", f"kernels.gpu.{sample}", str(capability)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    usages = [json.loads(line) for line in told.stdout.splitlines()]
    record_property("usages", usages)
    assert len(usages) == kernels
    for usage in usages:
        assert 0 < usage["registers"] <= 255
        assert usage["spilled"] == 0, usage
        assert least_shared <= usage["shared"] <= shared, usage
