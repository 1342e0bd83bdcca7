"""The whole engine on the Triton kernels, in Triton's interpreter: the same tokens as on the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import engine.runner
from engine.api import Finished, GenerationRequest, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine
from kernels.gpu.backend import TritonKernels

SHARED = list(range(40, 60))
PROMPTS = [[*SHARED, 7, 9], [*SHARED, 3], [*SHARED, 7, 8, 1, 2, 5]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Two layers, GQA, heads of 32, and the tiny model's tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "two-layers"
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        eos_token_id=257,
        bos_token_id=None,
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny_model / name).read_bytes())
    return folder


def sampling(number: int) -> SamplingParams:
    """Greedy, drawn by the kernel, and with a penalty, which the kernel leaves to the host."""
    return [
        SamplingParams(temperature=0, max_tokens=14, ignore_eos=True),
        SamplingParams(temperature=1.5, top_p=0.9, top_k=50, seed=3, max_tokens=14, ignore_eos=True),
        SamplingParams(temperature=0, repetition_penalty=1.3, max_tokens=14, ignore_eos=True),
    ][number]


def serve(model: Path, kv_dtype: str, blocks: int) -> tuple[Engine, list[Finished]]:
    """All prompts at once through a pool of so many blocks."""
    token_bytes = {"auto": 2 * 4 * 32, "int8": 2 * 36}[kv_dtype] * 2 * 2
    engine = Engine(
        EngineConfig(
            model=model,
            dtype="float32",
            kv_dtype=kv_dtype,  # type: ignore[arg-type]
            kv_memory=blocks * 16 * token_bytes,
            max_batch_tokens=20,
            max_sequences=3,
            threads=1,
        )
    )
    for number, prompt in enumerate(PROMPTS):
        engine.submit(GenerationRequest(tuple(prompt), sampling(number), request_id=str(number)))
    done: dict[str, Finished] = {}
    while engine.has_work:
        done |= {event.request_id: event for event in engine.step() if isinstance(event, Finished)}
        engine.check_integrity()
    return engine, [done[str(number)] for number in range(len(PROMPTS))]


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_prefixes_preemption_and_formats_give_the_tokens_of_the_reference(
    model: Path, kv_dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected = serve(model, kv_dtype, blocks=32)
    monkeypatch.setattr(engine.runner, "select", TritonKernels)
    served, results = serve(model, kv_dtype, blocks=6)
    assert [result.token_ids for result in results] == [result.token_ids for result in expected]
    assert len({result.token_ids for result in results}) == 3
    assert served.stats().preemptions > 0
    assert max(result.metrics.cached_tokens for result in results) >= 16
    assert served._runner.draw is not None
