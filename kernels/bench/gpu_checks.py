"""Is every GPU kernel right, on this GPU? Each against the reference in float64, on fresh random data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.bench.gpu_case import Case, build, empty_layer, formats, turns
from kernels.contract import Draw, Kernels, LayerCache
from kernels.kv_format import Groups, rotate
from kernels.reference import ReferenceKernels, dense

ALLOWED = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Of the largest value."""

TOKENS = 5
"""Written to a cache."""


class Check(NamedTuple):
    what: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        return self.error <= self.allowed  # not so where it is NaN

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.what:<60}{self.error:10.2e} of {self.allowed:.0e} allowed"


def check_all(
    kernels: Kernels, dtype: torch.dtype, device: torch.device, cases: list[Case], vocab: int
) -> Iterator[Check]:
    """Kernels that compute in `dtype`, over these cases and a vocabulary of so many tokens."""
    exact = ReferenceKernels(device, torch.float64)
    allowed = ALLOWED[dtype]

    x, residual = torch.randn(2, 7, 576, device=device).to(dtype)
    weight = torch.rand(576, device=device).to(dtype)
    normed, total = kernels.add_rms_norm(x, residual, weight, 1e-5)
    yield Check("add_rms_norm: sum", _error(total, x.double() + residual.double()), allowed)
    yield Check("add_rms_norm: norm", _error(normed, exact.rms_norm(total.double(), weight.double(), 1e-5)), allowed)
    gate_up = torch.randn(7, 2 * 1536, device=device).to(dtype)
    yield Check("gated silu", _error(kernels.gated(gate_up, "silu"), exact.gated(gate_up.double(), "silu")), allowed)
    gelu = exact.gated(gate_up.double(), "gelu_tanh")
    yield Check("gated gelu_tanh", _error(kernels.gated(gate_up, "gelu_tanh"), gelu), allowed)

    for case in cases:
        for name, format in formats(dtype, case.head_dim).items():
            label = f"{name}, {case.n_head}/{case.n_kv_head} heads of {case.head_dim}"
            yield from _writes(kernels, dtype, device, case, name, label)
            built = build(case, format, dtype, device)
            q = rotate(built.q) if _rotated(built.layer) else built.q
            plan = kernels.plan_attention(built.spans, built.layer, case.n_head, case.window)
            planned = exact.plan_attention(built.spans, built.layer, case.n_head, case.window)
            expected = exact.paged_attention(built.q.double(), built.layer, planned)
            error = _error(kernels.paged_attention(q, built.layer, plan), expected)
            rows = "decode" if all(rows == 1 for rows, _ in case.lengths) else "prefill"
            window = f", window {case.window}" if case.window else ""
            yield Check(f"paged attention, {rows}, {label}{window}", error, allowed)
    yield _draws(kernels, device, vocab)


def _error(ours: Tensor, expected: Tensor) -> float:
    return ((ours.double() - expected).abs().max() / expected.abs().max()).item()


def _rotated(layer: LayerCache) -> bool:
    return isinstance(layer.keys.storage, Groups) and layer.keys.storage.rotated


def _writes(
    kernels: Kernels, dtype: torch.dtype, device: torch.device, case: Case, name: str, label: str
) -> Iterator[Check]:
    format = formats(dtype, case.head_dim)[name]
    ours, expected = empty_layer(case, 4, format, device), empty_layer(case, 4, format, device)
    slots = torch.randperm(4 * case.block_size, device=device)[:TOKENS]
    heads = torch.randn(TOKENS, case.n_head + 2 * case.n_kv_head, case.head_dim, device=device).to(dtype)
    cos, sin = turns(dtype, TOKENS, case.head_dim, device)
    exact = ReferenceKernels(device, torch.float64)
    q = exact.rotary_kv_write(heads.double(), cos.double(), sin.double(), expected, slots)
    q = rotate(q) if _rotated(ours) else q
    yield Check(
        f"rotary_kv_write: queries, {label}",
        _error(kernels.rotary_kv_write(heads, cos, sin, ours, slots), q),
        ALLOWED[dtype],
    )
    for part, plane, wanted in zip(("keys", "values"), ours, expected, strict=True):
        written, right = (dense(each).flatten(0, 1)[slots] for each in (plane, wanted))
        steps = 2.0**plane.storage.bits - 1 if isinstance(plane.storage, Groups) else 0
        # A sum in another order may round to the next step.
        allowed = max(ALLOWED[dtype], 2.02 / steps if steps else 0)
        yield Check(f"rotary_kv_write: {part}, {label}", _error(written, right.double()), allowed)


def _draws(kernels: Kernels, device: torch.device, vocab: int) -> Check:
    """How far the number is from the span of the cumulative distribution that belongs to the token drawn for it."""
    draws = [
        Draw(0.8, top_k, top_p, min_p, number)
        for top_k, top_p, min_p in ((0, 1.0, 0.0), (50, 1.0, 0.0), (0, 0.95, 0.0), (0, 1.0, 0.05), (40, 0.9, 0.02))
        for number in (0.31, 0.97)
    ]
    logits = torch.randn(len(draws), vocab, device=device) * 3
    assert kernels.draw is not None
    worst = 0.0
    for row, how, token in zip(logits, draws, kernels.draw(logits, draws), strict=True):
        weights = ((row - row.max()) / how.temperature).double().exp()
        descending = weights.sort(descending=True).values
        if how.top_k:
            descending = descending[: how.top_k]
        nucleus = descending.cumsum(0) >= how.top_p * descending.sum() * (1 - 1e-9)
        floor = max(descending[nucleus.int().argmax()].item(), descending[-1].item(), how.min_p) * (1 - 1e-6)
        mass = F.pad(torch.where(weights >= floor, weights, 0).cumsum(0), (1, 0))
        mass = mass / mass[-1]
        below, above = mass[token].item() - how.number, how.number - mass[token + 1].item()
        worst = max(worst, below, above, 0.0 if weights[token] >= floor else 1.0)
    return Check(f"draw, of {vocab:,} tokens", worst, 1e-5)
