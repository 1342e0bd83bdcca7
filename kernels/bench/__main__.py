"""`python -m kernels.bench`"""

from __future__ import annotations

import argparse
import os
import sys

import torch


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kernels.bench", description="Times the kernels beside what the machine can do."
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose kernels (default: cpu)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of a CPU, how many at once (default: all)")
    options = parser.parse_args()
    if options.device == "cpu":
        from kernels.bench import cpu

        cpu.run(options.threads)
        return
    if not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no NVIDIA GPU"
        sys.exit(f"python -m kernels.bench: --device cuda: {why}; --device cpu times the CPU's kernels")
    from kernels.bench import gpu

    sys.exit(gpu.run(torch.device("cuda", 0)))


if __name__ == "__main__":
    main()
