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
import torch.nn.functional as F
from torch import Tensor

from engine.config import EngineConfig
from engine.runner import Chunk, ModelRunner
from engine.tokenizer import Tokenizer
from kernels import cpu

pytest.importorskip("numba")

WINDOW = 2048
WINDOWS = 2
ROWS = 256
BLOCKS = WINDOW // 16


class Quality(NamedTuple):
    perplexity: float
    agreement: float
    """Share of the positions at which the likeliest token is float32's."""
    divergence: float
    """Mean Kullback-Leibler divergence from float32's distribution, nats."""


class Reader:
    """A runner that gives the logits of every position."""

    def __init__(self, folder: Path, **settings: str) -> None:
        config = EngineConfig(model=folder, kv_memory=256 << 20, context_length=WINDOW, **settings)  # type: ignore[arg-type]
        self.runner = ModelRunner(folder, config)

    @torch.inference_mode()
    def read(self, tokens: list[int], start: int) -> Tensor:
        step = self.runner._step([Chunk(tokens, start, list(range(BLOCKS)), False)])
        step.logit_rows.extend(range(len(tokens)))
        return self.runner._decoder.forward(step)


@pytest.fixture(scope="module")
def tokens(model_folder: Path) -> list[int]:
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return Tokenizer(model_folder).encode(text[: 8 * WINDOW * WINDOWS])[: WINDOW * WINDOWS]


@pytest.fixture(scope="module")
def qualities(model_folder: Path, model_cache: Path, tokens: list[int]) -> dict[str, Quality]:
    cpu.load(model_cache / "kernels", lambda: None)
    readers = {
        "float32": Reader(model_folder, dtype="float32", weights="bf16"),
        "auto": Reader(model_folder, weights="auto"),
        "int8": Reader(model_folder, weights="int8"),
    }
    assert "int4" in readers["auto"].runner.info.weights
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in readers}
    count = 0
    for begin in range(0, len(tokens), WINDOW):
        window = tokens[begin : begin + WINDOW]
        for start in range(0, WINDOW, ROWS):
            part, after = window[start : start + ROWS], torch.tensor(window[start + 1 : start + ROWS + 1])
            expected = None
            for name, reader in readers.items():
                logits = reader.read(part, start)[: len(after)].log_softmax(-1)
                if expected is None:
                    expected = logits
                sums[name] += torch.tensor(
                    [
                        F.nll_loss(logits, after, reduction="sum").item(),
                        (logits.argmax(-1) == expected.argmax(-1)).sum().item(),
                        F.kl_div(logits, expected, reduction="sum", log_target=True).item(),
                    ]
                )
            count += len(after)
    assert count == WINDOWS * (WINDOW - 1)
    return {
        name: Quality(math.exp(loss / count), agreed / count, divergence / count)
        for name, (loss, agreed, divergence) in ((name, total.tolist()) for name, total in sums.items())
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
