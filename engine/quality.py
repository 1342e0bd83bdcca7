"""What a cache format costs in quality: a text is read as one context, each token predicted from those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import EngineConfig
from engine.model.decoder import READ_ROWS
from engine.runner import Chunk, ModelRunner

OnProgress = Callable[[str, float], None]

OWN_POOL = 64 << 20
"""Bytes: reading is done by `with_cache`'s runners, whose caches need the rest of the memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Of each token but the last, [tokens - 1]."""

    loss: Tensor
    """-log of the probability that the next token had, nats."""
    divergence: Tensor
    """Kullback-Leibler divergence of the distribution from the first runner's, nats."""
    agreement: Tensor
    """1 where the likeliest token is the first runner's, else 0."""

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss.mean())


def load_to_read(folder: Path, config: EngineConfig, on_progress: OnProgress | None = None) -> ModelRunner:
    """A runner with a full-precision cache, as exact as it is to be had: weights of 4 bits go with activations of 8,
    whose rounding falls out another way after the least change and would hide what a cache format costs."""
    config = msgspec.structs.replace(config, kv_dtype="auto", kv_memory=OWN_POOL)
    runner = ModelRunner(folder, config, on_progress)
    if "int4" not in runner.info.weights:
        return runner
    return ModelRunner(folder, msgspec.structs.replace(config, weights="int8"), on_progress)


def read(
    runners: Sequence[ModelRunner], tokens: Sequence[int], on_progress: Callable[[float], None] = lambda fraction: None
) -> list[Reading]:
    """Have each runner read the tokens from the beginning of its pool, in step with the others; the first is what the
    others are compared with. Their pools must hold the tokens."""
    parts: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in runners]
    for start in range(0, len(tokens) - 1, READ_ROWS):
        part = tokens[start : start + READ_ROWS]
        after = torch.tensor(tokens[start + 1 : start + READ_ROWS + 1])
        expected = None
        for runner, mine in zip(runners, parts, strict=True):
            blocks = range(-(-(start + len(part)) // runner.block_size))
            logits = runner.read(Chunk(part, start, blocks, False))[: len(after)].cpu().log_softmax(-1)
            expected = logits if expected is None else expected
            mine.append(
                (
                    F.nll_loss(logits, after, reduction="none"),
                    F.kl_div(logits, expected, reduction="none", log_target=True).sum(-1),
                    (logits.argmax(-1) == expected.argmax(-1)).float(),
                )
            )
        on_progress(min(1.0, (start + READ_ROWS) / len(tokens)))
    return [Reading(*(torch.cat(column) for column in zip(*mine, strict=True))) for mine in parts]
