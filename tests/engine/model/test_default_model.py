"""The default model beside transformers: the same logits, and the same text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from reference_models import logits_of
from transformers import AutoModelForCausalLM

from engine.api import GenerationRequest, Message, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine
from engine.runner import Chunk

pytestmark = pytest.mark.model

QUESTIONS = (
    "Why is the sky blue?",
    "Write one sentence about the sea.",
    "What is the capital of France?",
    "List three fruits.",
    "Explain recursion to a child.",
    "Translate 'good morning' to French.",
    "def fibonacci(n):",
    "Who wrote Hamlet?",
    "How do I boil an egg?",
    "What is 12 times 12?",
)
TOKENS = 64


@pytest.fixture(scope="module")
def peer(model_folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine(model_folder: Path) -> Engine:
    return Engine(EngineConfig(model=model_folder, dtype="float32", kv_memory=256 << 20))


def test_sixty_four_greedy_tokens_are_the_same_for_ten_prompts(engine: Engine, peer: torch.nn.Module) -> None:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    prompts = [engine._prompts.build([Message("user", question)]).ids for question in QUESTIONS]
    replies = engine.generate(GenerationRequest(prompt, params) for prompt in prompts)
    ends = sorted(engine.tokenizer.eos_ids)
    for prompt, reply in zip(prompts, replies, strict=True):
        # One forward pass over prompt and reply gives what transformers would have chosen at each position.
        logits = logits_of(peer, [*prompt, *reply.token_ids])[len(prompt) - 1 : -1].clone()
        logits[:, ends] = -torch.inf
        assert logits.argmax(-1).tolist() == list(reply.token_ids)


def test_logits_are_the_same_prefilled_chunked_cached_and_decoded(engine: Engine, peer: torch.nn.Module) -> None:
    tokens = engine.tokenizer.encode("The history of the lighthouse begins long before the first lamp was lit. " * 30)
    tokens = tokens[:300]
    expected = logits_of(peer, tokens)
    runner = engine._runner
    whole, chunked = list(range(20)), list(range(39, 19, -1))
    forked = [*whole[:9], *range(40, 51)]

    def largest_difference(table: list[int], start: int, end: int) -> float:
        [row] = runner.run([Chunk(tokens[start:end], start, table, True)])
        return (row - expected[end - 1]).abs().max().item()

    assert largest_difference(whole, 0, 300) < 1e-3
    for start in range(0, 280, 70):
        assert largest_difference(chunked, start, start + 70) < 1e-3
    for position in range(280, 300):
        assert largest_difference(chunked, position, position + 1) < 1e-3
    runner.copy_blocks([(whole[9], forked[9])])
    assert largest_difference(forked, 149, 300) < 1e-3
