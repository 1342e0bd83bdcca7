"""Tokens drawn by the kernel, in Triton's interpreter, against those that the host's sampler draws."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
import torch

from kernels.contract import Draw
from kernels.gpu.sampler import draw


def distribution(logits: np.ndarray, how: Draw) -> np.ndarray:
    """What `kernels.contract.Draw` says, in float64 over weights in float32; logits [vocab]."""
    weights = np.exp((logits - logits.max()) / np.float32(how.temperature)).astype(np.float32)
    floor = np.float32(how.min_p)
    likely = weights
    if 0 < how.top_k < len(weights):
        kth = np.sort(weights)[-how.top_k]
        floor, likely = max(floor, kth), weights[weights >= kth]
    if how.top_p < 1:
        descending = np.sort(likely)[::-1]
        reached = np.cumsum(descending, dtype=np.float64) >= how.top_p * likely.sum(dtype=np.float64)
        floor = max(floor, descending[reached.argmax()])
    return np.where(weights >= floor, weights, 0).astype(np.float64)


def expected(logits: np.ndarray, how: Draw) -> int:
    if how.temperature == 0:
        return int(logits.argmax())
    mass = distribution(logits, how).cumsum()
    return int(np.searchsorted(mass, how.number * mass[-1], side="right"))


@pytest.mark.parametrize("vocab", [3, 50, 300])
@pytest.mark.parametrize("sharpness", [0.1, 2.0, 30.0])
def test_the_filters_and_their_combinations(vocab: int, sharpness: float) -> None:
    source = Random(vocab)
    logits = torch.randn(9, vocab) * sharpness
    logits[::3] = logits[::3].round()  # equal ones
    draws = [
        Draw(
            temperature=source.choice([0.0, 0.3, 0.8, 1.5]),
            top_k=source.choice([0, 1, 5, 40, 10_000]),
            top_p=source.choice([1.0, 0.95, 0.5, 0.01]),
            min_p=source.choice([0.0, 0.0, 0.05, 0.9]),
            number=source.random(),
        )
        for _ in logits
    ]
    assert draw(logits, draws) == [expected(row, how) for row, how in zip(logits.numpy(), draws, strict=True)]


def test_a_vocabulary_of_several_pieces() -> None:
    logits = torch.randn(3, 9000)
    draws = [Draw(0.8, 50, 0.95, 0.0, 0.3), Draw(1.0, 0, 0.9, 0.0, 0.999), Draw(0.0, 0, 1.0, 0.0, 0.5)]
    assert draw(logits, draws) == [expected(row, how) for row, how in zip(logits.numpy(), draws, strict=True)]


def test_numbers_at_the_ends_draw_tokens_that_were_kept() -> None:
    logits = torch.zeros(2, 40)
    logits[:, :30] = -torch.inf
    first, last = draw(logits, [Draw(1.0, 0, 1.0, 0.0, 0.0), Draw(1.0, 0, 1.0, 0.0, 1 - 2**-53)])
    assert (first, last) == (30, 39)


def test_evenly_spread_numbers_have_the_frequencies_of_the_distribution() -> None:
    logits, count = torch.randn(10), 40
    how = Draw(0.9, 0, 0.9, 0.0, 0.0)
    drawn = Counter(draw(logits.expand(count, -1), [how._replace(number=(i + 0.5) / count) for i in range(count)]))
    probabilities = distribution(logits.numpy(), how)
    for token, probability in enumerate(probabilities / probabilities.sum()):
        assert abs(drawn[token] - probability * count) <= 1


@pytest.mark.parametrize("position", [0, 8])
def test_a_row_draws_the_same_whatever_else_is_in_the_batch(position: int) -> None:
    logits, how = torch.randn(9, 64), Draw(1.2, 20, 0.9, 0.0, 0.77)
    [alone] = draw(logits[position : position + 1], [how])
    draws = [Draw(0.5, 3, 1.0, 0.1, 0.1)] * 9
    draws[position] = how
    assert draw(logits, draws)[position] == alone


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_give_no_token(broken: float, temperature: float) -> None:
    logits = torch.zeros(2, 10)
    logits[1, 7] = broken
    assert draw(logits, [Draw(temperature, 0, 1.0, 0.0, 0.0)] * 2) == [0, -1]
    assert draw(torch.full((1, 10), -torch.inf), [Draw(temperature, 0, 1.0, 0.0, 0.0)]) == [-1]
