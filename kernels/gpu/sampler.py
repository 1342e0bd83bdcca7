"""The next token of each sequence, drawn where the logits are: only token ids leave the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.contract import Draw

BLOCK = 4096
"""Logits that a program looks at in one go."""


@triton.jit
def weigh(logits, start, vocab, highest, temperature, BLOCK: tl.constexpr):
    """exp((logit - highest) / temperature) of the next BLOCK tokens, float32 in [0, 1]; and the same as a count of
    2^-40: integers add up to the same in any order."""
    i = start + tl.arange(0, BLOCK)
    logit = tl.load(logits + i, i < vocab, float("-inf"))
    weight = tl.exp(tl.div_rn(logit - highest, temperature))
    return weight, (weight * 1099511627776.0).to(tl.int64)


@triton.jit
def above(logits, vocab, highest, temperature, floor, within, BLOCK: tl.constexpr):
    """How many of the tokens that weigh `within` or more weigh `floor` or more, and what these weigh together."""
    count, mass = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
    for start in range(0, vocab, BLOCK):
        weight, units = weigh(logits, start, vocab, highest, temperature, BLOCK)
        kept = (weight >= floor) & (weight >= within) & (start + tl.arange(0, BLOCK) < vocab)
        count += tl.sum(kept.to(tl.int64), 0)
        mass += tl.sum(tl.where(kept, units, 0), 0)
    return count, mass


@triton.jit
def highest_floor(logits, vocab, highest, temperature, within, least_count, least_mass, BLOCK: tl.constexpr):
    """The highest weight such that the tokens from it up are at least so many and weigh at least so much, or a lower
    one with no token between: bisection over the bits of a float, which are ordered as the floats are."""
    low, high = tl.full([], 0, tl.int32), tl.full([], 0x3F800001, tl.int32)
    low_count, high_count = tl.full([], 0, tl.int64) + vocab, tl.full([], 0, tl.int64)
    while (high - low > 1) & (low_count - high_count > 1):
        middle = low + (high - low) // 2
        count, mass = above(logits, vocab, highest, temperature, middle.to(tl.float32, bitcast=True), within, BLOCK)
        enough = (count >= least_count) & (mass >= least_mass)
        low, low_count = tl.where(enough, middle, low), tl.where(enough, count, low_count)
        high, high_count = tl.where(enough, high, middle), tl.where(enough, high_count, count)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def draw_kernel(logits, parameters, tokens, row_stride, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    parameters += row * 5
    highest, token = tl.full([], float("-inf"), tl.float32), tl.full([], 0, tl.int64)
    broken = tl.full([], 0, tl.int32)
    for start in range(0, vocab, BLOCK):
        i = start + tl.arange(0, BLOCK)
        logit = tl.load(logits + i, i < vocab, float("-inf"))
        broken += tl.sum((logit != logit).to(tl.int32), 0)
        best = tl.max(logit, 0)
        token = tl.where(best > highest, tl.min(tl.where(logit == best, i, vocab), 0).to(tl.int64), token)
        highest = tl.maximum(highest, best)

    temperature = tl.load(parameters).to(tl.float32)
    if (broken > 0) | (tl.abs(highest) == float("inf")):
        token = tl.full([], -1, tl.int64)
    elif temperature > 0:
        top_k, top_p = tl.load(parameters + 1).to(tl.int64), tl.load(parameters + 2)
        floor, kth = tl.load(parameters + 3).to(tl.float32), tl.full([], 0.0, tl.float32)
        if (top_k > 0) & (top_k < vocab):
            kth = highest_floor(logits, vocab, highest, temperature, kth, top_k, tl.zeros([], tl.int64), BLOCK)
            floor = tl.maximum(floor, kth)
        if top_p < 1:
            count, mass = above(logits, vocab, highest, temperature, kth, kth, BLOCK)
            least = tl.maximum((top_p * mass.to(tl.float64)).to(tl.int64), 1)
            nucleus = highest_floor(logits, vocab, highest, temperature, kth, tl.zeros([], tl.int64), least, BLOCK)
            floor = tl.maximum(floor, nucleus)
        count, mass = above(logits, vocab, highest, temperature, floor, floor, BLOCK)
        target = (tl.load(parameters + 4) * mass.to(tl.float64)).to(tl.int64)
        token, before = tl.zeros([], tl.int64), tl.zeros([], tl.int64)
        for start in range(0, vocab, BLOCK):
            weight, units = weigh(logits, start, vocab, highest, temperature, BLOCK)
            units = tl.where(weight >= floor, units, 0)
            token += tl.sum((before + tl.cumsum(units, 0) <= target).to(tl.int64), 0)
            before += tl.sum(units, 0)
    tl.store(tokens + row, token)


def draw(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """See `kernels.contract.Kernels.draw`."""
    vocab = logits.shape[1]
    parameters = torch.tensor(draws, dtype=torch.float64).to(logits.device, non_blocking=True)
    tokens = torch.empty(len(draws), dtype=torch.int64, device=logits.device)
    draw_kernel[(len(draws),)](logits, parameters, tokens, logits.stride(0), vocab, **draw_constants(vocab))
    return tokens.tolist()


def draw_constants(vocab: int) -> dict[str, Any]:
    """What drawing from so many tokens is compiled for."""
    block = min(BLOCK, triton.next_power_of_2(vocab))
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 256)), "enable_fp_fusion": True}
