"""Which instructions the native kernels may use, found at run time."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import cache

from llvmlite import binding

VARIABLE = "KVCHAT_CPU_TIER"


def _has_avx512(has: dict[str, bool]) -> bool:
    return all(has.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512vnni", "f16c"))


_NEEDS: dict[str, Callable[[dict[str, bool]], bool]] = {
    "avx512_bf16": lambda has: _has_avx512(has) and bool(has.get("avx512bf16")),
    "avx512_vnni": _has_avx512,
    "avx_vnni": lambda has: bool(has.get("f16c") and has.get("avxvnni")) or _has_avx512(has),
    "avx2": lambda has: bool(has.get("avx2") and has.get("f16c")),
    "portable": lambda has: True,
}


@cache
def available_tiers() -> tuple[str, ...]:
    """The tiers that this CPU can execute, best first; "portable", plain vector code for any CPU, is always there."""
    features = dict(binding.get_host_cpu_features()) if platform.machine() in ("x86_64", "AMD64") else {}
    return tuple(name for name, fits in _NEEDS.items() if fits(features))


@cache
def tier() -> str:
    """The tier in use: the best one, or what KVCHAT_CPU_TIER says. Raises ValueError when that cannot run here."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return available_tiers()[0]
    if wanted not in available_tiers():
        raise ValueError(f"{VARIABLE} is {wanted!r}, but this CPU has {', '.join(available_tiers())}")
    return wanted


def has_pairs() -> bool:
    """Whether this tier multiplies pairs of bfloat16."""
    return tier() == "avx512_bf16"
