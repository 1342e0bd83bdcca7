"""What an int8 and an int4 KV cache cost the default model: no cliff over a long text, and planted facts still found.
The short form of `kvchat bench kv-dtype`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.kv_choice import GATES, choose_format
from engine.quality import load_to_read, read
from engine.runner import ModelRunner
from engine.tokenizer import Tokenizer
from kvchat.bench.kv_dtype.quality import needles
from kvchat.bench.text import english

CONTEXT = 2048


@pytest.fixture(scope="module")
def tokens(model_folder: Path) -> list[int]:
    return Tokenizer(model_folder).encode(english())[:CONTEXT]


@pytest.fixture(scope="module")
def runners(model_folder: Path, model_cache: Path) -> dict[str, ModelRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(model_cache / "kernels"))
        runner = load_to_read(model_folder, EngineConfig(model=model_folder))
    formats = {name: choose_format(name, runner.config, model_folder, runner.dtype)[0] for name in ("auto", *GATES)}
    return {name: runner.with_cache(format, CONTEXT) for name, format in formats.items()}


def test_perplexity_and_divergence_stay_within_the_gates_to_the_end(
    runners: dict[str, ModelRunner], tokens: list[int]
) -> None:
    full, *readings = read(list(runners.values()), tokens)
    for kv_dtype, reading in zip(GATES, readings, strict=True):
        gate = GATES[kv_dtype]
        assert reading.perplexity < (1 + gate.perplexity) * full.perplexity
        assert 0 < reading.divergence.mean() < gate.divergence
        late, early = reading.divergence[-512:].mean(), reading.divergence[:512].mean()
        assert late < 2 * early


def test_facts_planted_in_a_text_are_as_likely_as_with_a_full_cache(
    runners: dict[str, ModelRunner], tokens: list[int], model_folder: Path
) -> None:
    found = {
        name: needles(runner, Tokenizer(model_folder).encode, tokens, 1024, seed=3) for name, runner in runners.items()
    }
    assert found["int8"].log_probability > found["auto"].log_probability - 0.1
    assert found["int4"].log_probability > found["auto"].log_probability - 1.0
    # Without the facts, a number of four digits has a chance of one in ten thousand.
    assert found["int4"].log_probability > -6


def test_the_memory_of_a_token_is_what_the_formula_says(runners: dict[str, ModelRunner]) -> None:
    auto = runners["auto"].info.kv_token_bytes
    for name, most in (("int8", 0.54), ("int4", 0.41)):
        runner = runners[name]
        assert runner.pool_bytes == runner.num_blocks * runner.block_size * runner.info.kv_token_bytes
        assert runner.info.kv_token_bytes <= most * auto
