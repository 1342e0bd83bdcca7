"""Native kernels for the CPU, compiled at run time by Numba: packed weights and a decode step in one call."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.cpu.native import NativeDecoder


def load(cache_folder: Path, on_compile: Callable[[], None]) -> type[NativeDecoder]:
    """Import and compile the kernels, which takes some ten seconds the first time; `on_compile` is told before.

    Machine code is kept in `cache_folder`, or where NUMBA_CACHE_DIR says, apart for every tier and version of the
    sources: Numba itself looks only at the file of the function. Raises ImportError without Numba, ValueError when
    KVCHAT_CPU_TIER cannot be had.
    """
    import numba

    from kernels.cpu import compiler
    from kernels.cpu.tier import tier

    sources = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder) / f"{tier()}-{sources.hexdigest()[:12]}"
    numba.config.CACHE_DIR, compiler.keeps_code = str(folder), True
    if not any(folder.rglob("*.serve_steps-*.nbi")):
        on_compile()
    from kernels.cpu.native import NativeDecoder
    from kernels.cpu.step import serve_steps

    serve_steps.compile((numba.types.int64,) * 3)
    return NativeDecoder
