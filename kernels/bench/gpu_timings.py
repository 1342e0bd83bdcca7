"""How fast is every GPU kernel, beside what this GPU copies and multiplies at best?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.bench.figure import Figure
from kernels.bench.gpu_case import Case, build, empty_layer, formats, turns
from kernels.contract import Draw, Kernels
from kernels.kv_format import KVFormat, head_bytes


class Sizes(NamedTuple):
    copy_bytes: int
    matrix: int
    """Rows and columns of the product that stands for what the GPU multiplies at best."""
    decodes: Sequence[tuple[int, int]]
    """Sequences and tokens of each."""
    writes: int
    """Tokens written at once."""
    prefills: Sequence[tuple[int, int]]
    """Rows and context of one sequence."""
    hidden: int
    inner: int
    vocab: int
    draws: Sequence[int]
    """Rows of logits."""


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median over many runs, the cache of the GPU cold; on a CPU one run, which shows that it works."""
    if device.type == "cuda":
        from triton.testing import do_bench

        return do_bench(work, warmup=50, rep=200, return_mode="median") / 1e3
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def time_all(kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes) -> Iterator[Figure]:
    """In the order of the table."""
    source, target = torch.ones(2, sizes.copy_bytes, dtype=torch.uint8, device=device)
    copy = 2 * sizes.copy_bytes / seconds(lambda: target.copy_(source), device) / 1e9
    yield Figure("copy on the device", copy, "GB/s")
    a, b = torch.randn(2, sizes.matrix, sizes.matrix, device=device).to(dtype)
    product = 2 * sizes.matrix**3 / seconds(lambda: a @ b, device) / 1e12
    yield Figure("product of two matrices", product, "TFLOP/s")
    yield from _decodes(kernels, dtype, device, sizes, copy)
    yield from _writes(kernels, dtype, device, sizes, copy)
    yield from _prefills(kernels, dtype, device, sizes, product)
    yield from _pointwise(kernels, dtype, device, sizes, copy)
    for rows in sizes.draws:
        logits = torch.randn(rows, sizes.vocab, device=device)
        how = [Draw(0.7, 0, 0.95, 0.0, 0.5)] * rows
        assert kernels.draw is not None
        draw = kernels.draw
        yield Figure(f"draw {rows} of {sizes.vocab:,} tokens", seconds(lambda: draw(logits, how), device) * 1e6, "us")  # noqa: B023


def _decodes(kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes, copy: float) -> Iterator[Figure]:
    for sequences, tokens in sizes.decodes:
        case = Case([(1, tokens)] * sequences)
        for name, format in formats(dtype, case.head_dim).items():
            took = _attention(kernels, dtype, device, case, format)
            read = case.tokens * case.n_kv_head * sum(head_bytes(storage, case.head_dim) for storage in format)
            yield Figure(f"decode attention, {sequences} x {tokens:,}, {name}", read / took / 1e9, "GB/s", copy, "copy")


def _attention(kernels: Kernels, dtype: torch.dtype, device: torch.device, case: Case, format: KVFormat) -> float:
    built = build(case, format, dtype, device)
    plan = kernels.plan_attention(built.spans, built.layer, case.n_head, case.window)
    return seconds(lambda: kernels.paged_attention(built.q, built.layer, plan), device)


def _writes(kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes, copy: float) -> Iterator[Figure]:
    case = Case([])
    heads = torch.randn(sizes.writes, case.n_head + 2 * case.n_kv_head, case.head_dim, device=device).to(dtype)
    cos, sin = turns(dtype, sizes.writes, case.head_dim, device)
    blocks = -(-sizes.writes // case.block_size)
    slots = torch.randperm(blocks * case.block_size, device=device)[: sizes.writes]
    for name, format in formats(dtype, case.head_dim).items():
        layer = empty_layer(case, blocks, format, device)
        took = seconds(lambda: kernels.rotary_kv_write(heads, cos, sin, layer, slots), device)  # noqa: B023
        queries = sizes.writes * case.n_head * case.head_dim * dtype.itemsize
        moved = heads.nbytes + queries + cos.nbytes + sin.nbytes + sum(plane.blocks.nbytes for plane in layer)
        yield Figure(f"rotary and KV write, {sizes.writes:,} tokens, {name}", moved / took / 1e9, "GB/s", copy, "copy")


def _prefills(
    kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes, product: float
) -> Iterator[Figure]:
    for rows, context in sizes.prefills:
        case = Case([(rows, context)])
        work = 4 * case.n_head * case.head_dim * case.visible / 1e12
        theirs = work / seconds(_torch_attention(case, dtype, device), device)
        label = f"{rows:,} tokens behind {context - rows:,}"
        yield Figure(f"torch's attention, {label}", theirs, "TFLOP/s", product, "product")
        for name, format in formats(dtype, case.head_dim).items():
            ours = work / _attention(kernels, dtype, device, case, format)
            yield Figure(f"prefill attention, {label}, {name}", ours, "TFLOP/s", theirs, "torch's")


def _torch_attention(case: Case, dtype: torch.dtype, device: torch.device) -> Callable[[], Tensor]:
    """Causal at the bottom right, over keys and values that lie dense."""
    from torch.nn.attention.bias import causal_lower_right

    [(rows, context)] = case.lengths
    q = torch.randn(1, case.n_head, rows, case.head_dim, device=device).to(dtype)
    k, v = torch.randn(2, 1, case.n_kv_head, context, case.head_dim, device=device).to(dtype)
    k, v = (heads.repeat_interleave(case.n_head // case.n_kv_head, 1) for heads in (k, v))
    mask = causal_lower_right(rows, context)
    return lambda: F.scaled_dot_product_attention(q, k, v, mask)


def _pointwise(
    kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes, copy: float
) -> Iterator[Figure]:
    x, residual = torch.randn(2, sizes.writes, sizes.hidden, device=device).to(dtype)
    weight = torch.rand(sizes.hidden, device=device).to(dtype)
    took = seconds(lambda: kernels.add_rms_norm(x, residual, weight, 1e-5), device)
    yield Figure(f"addition and RMS norm of {sizes.hidden:,}", 4 * x.nbytes / took / 1e9, "GB/s", copy, "copy")
    gate_up = torch.randn(sizes.writes, 2 * sizes.inner, device=device).to(dtype)
    took = seconds(lambda: kernels.gated(gate_up, "silu"), device)
    yield Figure(f"SiLU and product of {sizes.inner:,}", 1.5 * gate_up.nbytes / took / 1e9, "GB/s", copy, "copy")
