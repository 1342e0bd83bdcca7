"""Native kernels for the CPU, compiled at run time by Numba: packed weights and a decode step in one call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.cpu.native import NativeDecoder


def load(cache_folder: Path, on_compile: Callable[[], None]) -> type[NativeDecoder]:
    """Import and compile the kernels, which takes some ten seconds the first time; `on_compile` is told before.

    Machine code is kept in `cache_folder`, apart for every tier and version of the sources: Numba itself looks only at
    the file of the function. Raises ImportError without Numba, ValueError when KVCHAT_CPU_TIER cannot be had.
    """
    import numba

    from kernels.cpu.tier import tier

    sources = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    folder = cache_folder / f"{tier()}-{sources.hexdigest()[:12]}"
    numba.config.CACHE_DIR = str(folder)
    if not any(folder.rglob("*.serve_steps-*.nbi")):
        on_compile()
    from kernels.cpu.native import NativeDecoder
    from kernels.cpu.step import serve_steps

    serve_steps.compile((numba.types.int64,) * 3)
    return NativeDecoder
