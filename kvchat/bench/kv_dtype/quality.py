"""How well a model reads a long text with each cache format."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine.quality import Reading, read
from engine.runner import Chunk, ModelRunner

PLACES = ("harbour", "library", "observatory", "bakery", "lighthouse", "museum", "station", "garden", "theatre", "mill")
CHUNK = 256


@dataclass(frozen=True, slots=True)
class Loss:
    """Against the full-precision cache, over all windows of one length."""

    context: int
    perplexity: float
    """Increase, as a fraction."""
    divergence: float
    """Mean, nats."""
    late_divergence: float
    """Over the last eighth of each window: where a cliff would show."""
    agreement: float


def losses(
    runners: Sequence[ModelRunner], tokens: Sequence[int], context: int, on_progress: Callable[[float], None]
) -> list[Loss]:
    """Cut the text into windows of `context` tokens and read each. The first runner has the full-precision cache."""
    windows = len(tokens) // context
    readings: list[list[Reading]] = []
    for window in range(windows):
        part = tokens[window * context : (window + 1) * context]
        readings.append(read(runners, part, lambda fraction, done=window: on_progress((done + fraction) / windows)))  # type: ignore[misc]
    columns = list(zip(*readings, strict=True))
    full = _perplexity(columns[0])
    return [
        Loss(
            context,
            _perplexity(column) / full - 1,
            torch.cat([reading.divergence for reading in column]).mean().item(),
            torch.cat([reading.divergence[-context // 8 :] for reading in column]).mean().item(),
            torch.cat([reading.agreement for reading in column]).mean().item(),
        )
        for column in columns[1:]
    ]


def _perplexity(readings: Sequence[Reading]) -> float:
    return math.exp(torch.cat([reading.loss for reading in readings]).mean())


@dataclass(frozen=True, slots=True)
class Found:
    """Facts planted at ten depths of a text, and asked for at its end."""

    right: int
    """Answers whose every token was the likeliest."""
    asked: int
    log_probability: float
    """Of a right answer, the mean over those asked for, nats."""


def needles(
    runner: ModelRunner, encode: Callable[[str], list[int]], text: Sequence[int], context: int, seed: int
) -> Found:
    """Plant one sentence in each tenth of the first `context` tokens of the text, and ask for each of them."""
    numbers = torch.randint(1000, 10000, (len(PLACES),), generator=torch.Generator().manual_seed(seed)).tolist()
    facts = [encode(f"\n\nRemember: the code of the {p} is {n}.\n\n") for p, n in zip(PLACES, numbers, strict=True)]
    questions = [encode(f"\n\nRemember: the code of the {place} is") for place in PLACES]
    answers = [encode(f" {number}.") for number in numbers]
    room = context - sum(map(len, facts)) - max(len(q) + len(a) for q, a in zip(questions, answers, strict=True))
    stretch = room // len(PLACES)
    prompt: list[int] = []
    for depth, fact in enumerate(facts):
        prompt += [*fact, *text[depth * stretch : (depth + 1) * stretch]]
    blocks = range(-(-context // runner.block_size))
    for start in range(0, len(prompt), CHUNK):
        runner.run([Chunk(prompt[start : start + CHUNK], start, blocks, False)])
    right, total = 0, 0.0
    for question, answer in zip(questions, answers, strict=True):
        logits = runner.read(Chunk([*question, *answer], len(prompt), blocks, False)).log_softmax(-1)
        given = logits[len(question) - 1 : len(question) + len(answer) - 1].cpu()
        wanted = torch.tensor(answer)
        right += bool((given.argmax(-1) == wanted).all())
        total += given.gather(-1, wanted[:, None]).sum().item()
    return Found(right, len(PLACES), total / len(PLACES))
