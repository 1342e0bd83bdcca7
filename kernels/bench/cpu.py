"""Times the CPU's native kernels one by one, beside what the machine can do.

Sizes are those of a small model (hidden 576, 9 query and 3 key/value heads of 64). Weights and caches are far larger
than the CPU's cache unless a line says otherwise. Medians of several runs; nothing else should run meanwhile.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import torch

from kernels import cpu
from kernels.bench.figure import Figure
from kernels.kv_format import Groups, Storage, head_bytes

RUNS = 7
BYTES = 160 << 20
"""Of what is read from memory."""
REPEATS = 500
"""Of what is read from the cache."""
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 576, 9, 3, 64, 16


def timed(work: Callable[[int], None], threads: int) -> float:
    """Median seconds of `work(me)` on all threads at once."""
    seconds = []
    for _ in range(RUNS + 1):
        helpers = [threading.Thread(target=work, args=(me,)) for me in range(1, threads)]
        started = time.perf_counter()
        for helper in helpers:
            helper.start()
        work(0)
        for helper in helpers:
            helper.join()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def aligned(size: int) -> np.ndarray:
    """Bytes at a cache line's beginning, in huge pages where the system has them."""
    memory = np.empty(size + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :][:size]


def share(count: int, me: int, threads: int) -> tuple[int, int]:
    return count * me // threads, count * (me + 1) // threads


def bandwidth(threads: int) -> float:
    """GB/s that a plain maximum reads."""
    memory = aligned(BYTES).view(np.int64)
    memory[:] = 1

    def read(me: int) -> None:
        begin, end = share(len(memory), me, threads)
        memory[begin:end].max()

    return BYTES / timed(read, threads) / 1e9


def matrix_products(threads: int) -> float:
    """GMAC/s of torch's product of large bfloat16 matrices."""
    torch.set_num_threads(threads)
    a, b = torch.randn(2, 1024, 1024).bfloat16()

    def multiply(me: int) -> None:
        torch.mm(a, b)

    return 1024**3 / timed(multiply, 1) / 1e9


def linears(threads: int, memory: float) -> Iterator[Figure]:
    """Packed linear layers: read from memory in decodes, computing in prefill."""
    from kernels.cpu import packing
    from kernels.cpu.compiler import compiled
    from kernels.cpu.linear import dot
    from kernels.cpu.linear_ops import X_BYTES

    @compiled
    def tiles(repeats, first, size, begin, end, bits, groups, codes, scales, sums, rows, out):  # type: ignore[no-untyped-def]
        for _ in range(repeats):
            for tile in range(begin, end):
                dot(first + tile * size, bits, groups, codes, scales, sums, rows, out)

    groups = HIDDEN // packing.GROUP
    for bits in (8, 4):
        packed, _ = packing.pack(torch.randn(16 * 64, HIDDEN), f"int{bits}")
        size = packed.shape[1]
        for rows, count in ((1, BYTES // size), (4, BYTES // size), (16, BYTES // size), (4, 16)):
            cached = count == 16
            weight = aligned(count * size)
            weight[:] = np.resize(packed.numpy().reshape(-1), weight.shape)
            codes = torch.randint(-127, 128, (rows, groups, X_BYTES), dtype=torch.int8)
            scales, sums = torch.rand(rows, groups), torch.rand(rows, groups, 2)
            outs = torch.empty(threads, rows, 16)

            def work(
                me: int,
                weight: np.ndarray = weight,
                size: int = size,
                count: int = count,
                bits: int = bits,
                codes: torch.Tensor = codes,
                scales: torch.Tensor = scales,
                sums: torch.Tensor = sums,
                rows: int = rows,
                outs: torch.Tensor = outs,
                repeats: int = REPEATS if cached else 1,
            ) -> None:
                begin, end = (0, count) if repeats > 1 else share(count, me, threads)
                tiles(
                    repeats,
                    weight.ctypes.data,
                    size,
                    begin,
                    end,
                    bits,
                    groups,
                    codes.data_ptr(),
                    scales.data_ptr(),
                    sums.data_ptr(),
                    rows,
                    outs[me].data_ptr(),
                )

            seconds = timed(work, threads)
            if cached:
                done = REPEATS * threads * count * 16 * HIDDEN * rows
                yield Figure(f"linear int{bits}, {rows} rows, in the cache", done / seconds / 1e9, "GMAC/s")
            else:
                yield Figure(f"linear int{bits}, {rows} rows", weight.nbytes / seconds / 1e9, "GB/s", memory)


FORMATS: dict[str, Storage] = {
    "bfloat16": torch.bfloat16,
    "int8": Groups(8, HEAD_DIM),
    "int4": Groups(4, 32),
}


def attention(threads: int, memory: float) -> Iterator[Figure]:
    """One query of each head over a long context in each format, then 16 of each, as in prefill."""
    for (name, storage), rows in product(FORMATS.items(), (1, 16)):
        yield _attention(name, storage, rows, threads, memory)


def _attention(name: str, storage: Storage, rows: int, threads: int, memory: float) -> Figure:
    from kernels.cpu.attention import attend_queries, attention_scratch
    from kernels.cpu.attention_ops import multiplies_pairs
    from kernels.cpu.compiler import compiled
    from kernels.cpu.places import LAYER_PLACES, MODEL_PLACES, SPAN_PLACES, Layer, Model, Span

    pairs = compiled(lambda: multiplies_pairs())()
    token_bytes = KV_HEADS * head_bytes(storage, HEAD_DIM)
    length = BYTES // token_bytes // 512 * 256 if rows == 1 else 8192
    planes = torch.full((2, length * token_bytes), 0x3C, dtype=torch.uint8)  # small numbers in every format
    table = np.random.default_rng(0).permutation(length // BLOCK).astype(np.int64)
    model, layer, span = (np.zeros(places, np.int64) for places in (MODEL_PLACES, LAYER_PLACES, SPAN_PLACES))
    model[[Model.N_HEAD, Model.N_KV_HEAD, Model.HEAD_DIM, Model.BLOCK_SIZE]] = HEADS, KV_HEADS, HEAD_DIM, BLOCK
    model[Model.KV_BFLOAT16] = pairs or storage == torch.bfloat16
    if isinstance(storage, Groups):
        model[[Model.KEY_BITS, Model.VALUE_BITS]] = storage.bits
        model[[Model.KEY_GROUP, Model.VALUE_GROUP]] = storage.size
    layer[[Layer.KEYS, Layer.VALUES]] = planes[0].data_ptr(), planes[1].data_ptr()
    span[Span.TABLE] = table.ctypes.data
    count = rows * HEADS // KV_HEADS
    queries = torch.randn(KV_HEADS * count, HEAD_DIM).to(torch.bfloat16 if pairs else torch.float32)
    out, states = torch.zeros(threads, KV_HEADS * count, HEAD_DIM), torch.zeros(threads, KV_HEADS * count, 2)
    scratch = torch.empty(threads, attention_scratch(HEAD_DIM))

    def work(me: int) -> None:
        begin, end = (256 * bound for bound in share(length // 256, me, threads))
        attend_queries(
            model,
            layer,
            span,
            begin,
            end,
            queries.data_ptr(),
            HEAD_DIM * queries.itemsize,
            count,
            length,
            out[me].data_ptr(),
            states[me].data_ptr(),
            scratch[me].data_ptr(),
        )

    seconds = timed(work, threads)
    if rows == 1:
        return Figure(f"attention, decode, {name} cache", 2 * planes[0].nbytes / seconds / 1e9, "GB/s", memory)
    done = 2 * rows * HEADS * HEAD_DIM * length
    return Figure(f"attention, tile of prefill, {name} cache", done / seconds / 1e9, "GMAC/s")


def run(threads: int) -> None:
    """Print the figures one by one."""
    cpu.load(Path(tempfile.gettempdir()) / "kvchat-kernels", lambda: print("compiling the kernels ...", flush=True))
    from kernels.cpu.tier import tier

    memory = bandwidth(threads)
    print(f"tier {tier()}, {threads} threads, reading memory at {memory:.1f} GB/s (one thread {bandwidth(1):.1f})")
    print(f"torch, product of bfloat16 matrices: {matrix_products(threads):.0f} GMAC/s\n")
    for figure in (*linears(threads, memory), *attention(threads, memory)):
        print(figure)
