"""What the engine does without for comparison: the same tokens all the same, and nothing leaks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import GenerationRequest, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine
from engine.policy import Policy

POLICIES = {
    "reservations": Policy(reserve=96),
    "static batches": Policy(static_batches=True),
    "no KV cache": Policy(keep_kv=False),
}


def make(model: Path, policy: Policy | None = None) -> Engine:
    config = EngineConfig(
        model=model, dtype="float32", kv_memory=400_000, max_batch_tokens=64, max_sequences=3, threads=1
    )
    return Engine(config, policy=policy)


def requests(lengths: list[int]) -> list[GenerationRequest]:
    source = random.Random(1)
    sampling = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    return [GenerationRequest(tuple(source.choices(range(256), k=length)), sampling) for length in lengths]


@pytest.fixture(scope="module")
def engines(tiny_model: Path) -> dict[str, Engine]:
    return {"default": make(tiny_model)} | {name: make(tiny_model, policy) for name, policy in POLICIES.items()}


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_every_policy_generates_the_same_tokens_and_gives_all_blocks_back(
    engines: dict[str, Engine], lengths: list[int]
) -> None:
    expected = [done.token_ids for done in engines["default"].generate(requests(lengths))]
    for name in POLICIES:
        engine = engines[name]
        ids = [engine.submit(request) for request in requests(lengths)]
        tokens: dict[str, tuple[int, ...]] = {}
        while engine.has_work:
            tokens |= {event.request_id: event.token_ids for event in engine.step() if hasattr(event, "finish_reason")}
            engine.check_integrity()
        assert [tokens[request_id] for request_id in ids] == expected, name
        assert engine.stats().pool.used == 0


def test_the_pool_tells_how_many_of_its_used_rows_have_a_token(tiny_model: Path) -> None:
    for policy, used in ((Policy(), 2 * 3), (Policy(reserve=96), 2 * 6)):
        engine = make(tiny_model, policy)
        for request in requests([33, 40]):
            engine.submit(request)
        engine.step()
        pool = engine.snapshot().pool
        assert (pool.used, pool.tokens) == (used, 33 + 40)


def test_rows_that_two_sequences_share_count_once(tiny_model: Path) -> None:
    engine = make(tiny_model)
    [first, second] = requests([40, 20])
    engine.generate([first])
    sampling = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    for last in (1, 2):
        engine.submit(GenerationRequest((*first.prompt_ids[:32], last), sampling))
    for _ in range(3):
        engine.step()
    pool = engine.snapshot().pool
    assert (pool.used, pool.shared, pool.tokens) == (4, 2, 32 + 2 * (1 + 2 + 1))
