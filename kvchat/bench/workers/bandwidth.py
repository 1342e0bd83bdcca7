"""The ceiling that decoding works against: how fast all cores together read memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

ARRAY_BYTES = 1 << 29
"""Far above any cache."""
REPEATS = 8


def read_bandwidth(threads: int) -> float:
    """Bytes per second, the best of a few passes of `threads` threads that each reduce their part of one array."""
    parts = np.array_split(np.ones(ARRAY_BYTES // 8, dtype=np.int64), threads)
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            started = perf_counter()
            list(pool.map(np.bitwise_or.reduce, parts))  # releases the interpreter lock and is never compute-bound
            times.append(perf_counter() - started)
    return ARRAY_BYTES / min(times)
