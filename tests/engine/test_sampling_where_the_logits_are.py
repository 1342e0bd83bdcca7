"""Sampling by a GPU's kernel, in Triton's interpreter: the tokens that the host would choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.api import SamplingParams
from engine.errors import EngineError
from engine.sampler import SequenceSampler, sample
from kernels.gpu.sampler import draw

VOCAB = 60
SIMPLE: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1e-30},
    {"temperature": 1.0, "top_p": 0.9, "seed": 1},
    {"temperature": 0.8, "top_k": 5, "top_p": 1.0, "min_p": 0.1, "seed": 2},
    {"temperature": 1.0, "ignore_eos": True, "seed": 3},
]
EDITED: list[dict[str, Any]] = [
    {"temperature": 1.0, "repetition_penalty": 1.5, "seed": 4},
    {"temperature": 0, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"temperature": 1.0, "logit_bias": {3: 4.0}, "seed": 5},
]


def make(settings: list[dict[str, Any]]) -> list[SequenceSampler]:
    return [SequenceSampler(SamplingParams(**each), (1, 2), (7, 9), VOCAB) for each in settings]


@pytest.mark.parametrize(
    "settings", [SIMPLE, EDITED, SIMPLE[2:] + EDITED + SIMPLE[:2]], ids=["simple", "edited", "both"]
)
def test_the_same_seeds_give_the_same_tokens_there_and_here(settings: list[dict[str, Any]]) -> None:
    there, here = make(settings), make(settings)
    for _ in range(4):
        logits = torch.randn(len(settings), VOCAB) * 2
        logits[:, 7] = 9.0  # an end token
        assert sample(logits.clone(), there, draw) == sample(logits, here)


def test_only_penalties_and_logit_bias_bring_logits_to_the_host() -> None:
    assert all(sampler.is_simple for sampler in make(SIMPLE))
    assert not any(sampler.is_simple for sampler in make(EDITED))


def test_logits_that_are_not_numbers_are_an_error() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[1, 5] = torch.nan
    with pytest.raises(EngineError, match="not numbers"):
        sample(logits, make(SIMPLE[:2]), draw)
