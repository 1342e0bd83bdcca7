"""What 8-bit activations and packed weights cost in quality: the default model reads the standard library's manual.

Each window is read from its beginning, and every token but the first predicted from those before it.
"""

from __future__ import annotations

import math
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import pytest
import torch

from engine.config import EngineConfig
from engine.quality import read
from engine.runner import ModelRunner
from engine.tokenizer import Tokenizer
from kernels import cpu

pytest.importorskip("numba")

WINDOW = 2048
WINDOWS = 2


class Quality(NamedTuple):
    perplexity: float
    agreement: float
    """Share of the positions at which the likeliest token is float32's."""
    divergence: float
    """Mean Kullback-Leibler divergence from float32's distribution, nats."""


def load(folder: Path, **settings: str) -> ModelRunner:
    config = EngineConfig(model=folder, kv_memory=256 << 20, context_length=WINDOW, **settings)  # type: ignore[arg-type]
    return ModelRunner(folder, config)


@pytest.fixture(scope="module")
def tokens(model_folder: Path) -> list[int]:
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return Tokenizer(model_folder).encode(text[: 8 * WINDOW * WINDOWS])[: WINDOW * WINDOWS]


@pytest.fixture(scope="module")
def qualities(model_folder: Path, model_cache: Path, tokens: list[int]) -> dict[str, Quality]:
    cpu.load(model_cache / "kernels", lambda: None)
    runners = {
        "float32": load(model_folder, dtype="float32", weights="bf16"),
        "auto": load(model_folder, weights="auto"),
        "int8": load(model_folder, weights="int8"),
    }
    assert "int4" in runners["auto"].info.weights
    windows = [tokens[begin : begin + WINDOW] for begin in range(0, len(tokens), WINDOW)]
    assert [len(window) for window in windows] == [WINDOW] * WINDOWS
    readings = zip(*(read(list(runners.values()), window) for window in windows), strict=True)

    def mean(parts: list[torch.Tensor]) -> float:
        return torch.cat(parts).double().mean().item()

    return {
        name: Quality(
            math.exp(mean([each.loss for each in mine])),
            mean([each.agreement for each in mine]),
            mean([each.divergence for each in mine]),
        )
        for name, mine in zip(runners, readings, strict=True)
    }


def test_the_file_s_own_four_bits_are_within_a_percent_of_the_same_weights_in_float32(
    qualities: dict[str, Quality],
) -> None:
    assert qualities["auto"].perplexity < 1.01 * qualities["float32"].perplexity, qualities
    assert qualities["auto"].divergence < 0.005, qualities


def test_eight_bits_are_within_half_a_percent_of_float32_and_choose_the_same_token(
    qualities: dict[str, Quality],
) -> None:
    assert qualities["int8"].perplexity < 1.005 * qualities["float32"].perplexity, qualities
    assert qualities["int8"].agreement > 0.98, qualities
