"""The GPU's kernels: first checked, then timed beside a copy, a matrix product and torch's own attention; at last whole
steps of models, which a process of the engine's measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain

import torch

from kernels.bench.figure import Figure
from kernels.bench.gpu_case import Case
from kernels.bench.gpu_checks import check_all
from kernels.bench.gpu_timings import Sizes, time_all
from kernels.gpu.backend import TritonKernels

MODEL_STEPS = "engine.bench"
"""The engine builds on the kernels, not they on it: its part is run, not imported."""

CASES = [
    Case([(1, 700), (1, 17), (1, 4096), (1, 33)]),
    Case([(300, 1500), (5, 5), (130, 130)]),
    Case([(1, 900), (64, 400)], n_head=9, n_kv_head=3, head_dim=64, window=200),
    Case([(1, 900), (40, 400)], n_head=8, n_kv_head=8, head_dim=80, block_size=32),
    Case([(1, 900), (40, 400)], n_head=16, n_kv_head=1, head_dim=256, block_size=64),
]
SIZES = Sizes(
    copy_bytes=1 << 30,
    matrix=8192,
    decodes=[(1, 8192), (8, 8192), (32, 2048)],
    writes=8192,
    prefills=[(2048, 2048), (8192, 8192), (512, 8192)],
    hidden=4096,
    inner=14336,
    vocab=128256,
    draws=[1, 32],
)


def run(device: torch.device) -> int:
    """Check, time, and print one table last. The exit code: 1 when a kernel is wrong."""
    major, minor = torch.cuda.get_device_capability(device)
    print(f"{torch.cuda.get_device_name(device)}, compute capability {major}.{minor}, torch {torch.__version__}\n")
    checks = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # Most of the time is the compiler's: the other dtypes see only the common heads.
        cases = CASES if dtype == torch.bfloat16 else CASES[:2]
        for check in check_all(TritonKernels(device, dtype), dtype, device, cases, SIZES.vocab):
            print(f"{check} in {str(dtype).removeprefix('torch.')}", flush=True)
            checks.append(check)
    wrong = sum(not check.passed for check in checks)
    figures = []
    timed = time_all(TritonKernels(device, torch.bfloat16), torch.bfloat16, device, SIZES)
    failure = ""
    try:
        for figure in chain(timed, model_steps(device)):
            print(f"... {figure.what}", file=sys.stderr, flush=True)
            figures.append(figure)
    except subprocess.CalledProcessError as error:
        failure = f"; python -m {MODEL_STEPS} failed with exit code {error.returncode}"
    print("", *figures, sep="\n")
    print(f"\n{len(checks) - wrong} of {len(checks)} checks passed{failure}")
    return 1 if wrong or failure else 0


def model_steps(device: torch.device) -> Iterator[Figure]:
    """What the engine's own bench prints, a figure a line. Raises CalledProcessError when that fails."""
    torch.cuda.empty_cache()
    command = [sys.executable, "-m", MODEL_STEPS, str(device)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Figure(*json.loads(line))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
