"""Where the time of a request went, and what of its prompt had to be computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import Finished, GenerationRequest, Metrics, Progress, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine

BLOCK_BYTES = 2 * 2 * 2 * 8 * 4 * 16
"""K and V, 2 layers, 2 KV heads of 8 float32 values, 16 tokens."""


def make(model: Path, blocks: int, max_batch_tokens: int = 64) -> Engine:
    return Engine(
        EngineConfig(
            model=model,
            dtype="float32",
            kv_memory=blocks * BLOCK_BYTES,
            max_batch_tokens=max_batch_tokens,
            max_sequences=4,
            threads=1,
        )
    )


def asking(start: int, length: int, max_tokens: int) -> GenerationRequest:
    prompt = tuple((start + index * 7) % 256 for index in range(length))
    return GenerationRequest(prompt, SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))


def parts(metrics: Metrics) -> float:
    return metrics.queue_s + metrics.prefill_s + metrics.decode_s + metrics.preempted_s


def test_the_parts_of_every_request_add_up_to_its_end_to_end_time(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=10)
    results = engine.generate([asking(start, 20, max_tokens=70) for start in (1, 80, 160)])
    for done in results:
        assert parts(done.metrics) == pytest.approx(done.metrics.e2e_s)
        assert done.metrics.queue_s + done.metrics.prefill_s <= done.metrics.ttft_s + 1e-9
    preempted = [done.metrics for done in results if done.metrics.preemptions]
    assert preempted and all(metrics.preempted_s > 0 for metrics in preempted)
    assert all(done.metrics.preempted_s == 0 for done in results if not done.metrics.preemptions)


def test_without_a_preemption_the_first_token_divides_prefill_from_decode(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=32, max_batch_tokens=16)
    [done] = engine.generate([asking(1, 60, max_tokens=5)])
    metrics = done.metrics
    assert metrics.ttft_s is not None and metrics.prefill_s > 0 and metrics.decode_s > 0
    assert metrics.queue_s + metrics.prefill_s == pytest.approx(metrics.ttft_s)
    assert metrics.decode_s == pytest.approx(metrics.e2e_s - metrics.ttft_s)


def test_the_parts_add_up_while_it_runs_and_when_it_is_aborted(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=32, max_batch_tokens=16)
    request_id = engine.submit(asking(1, 60, max_tokens=50))
    events = [event for _ in range(6) for event in engine.step()]
    engine.abort(request_id)
    events += engine.step()
    seen = [event.metrics for event in events if isinstance(event, Progress | Finished)]
    assert len(seen) > 3
    for metrics in seen:
        assert parts(metrics) == pytest.approx(metrics.e2e_s)
    assert [metrics.e2e_s for metrics in seen] == sorted(metrics.e2e_s for metrics in seen)


def test_a_request_that_never_ran_only_queued(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=8)
    engine.submit(asking(1, 60, max_tokens=40))
    engine.step()
    waiting = engine.submit(asking(90, 100, max_tokens=5))
    engine.step()
    engine.abort(waiting)
    [aborted] = [event for event in engine.step() if isinstance(event, Finished)]
    assert aborted.metrics.e2e_s == pytest.approx(aborted.metrics.queue_s) and aborted.metrics.queue_s > 0


def test_what_memory_pressure_evicted_is_counted_when_it_is_asked_for_again(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=10)
    first, other = asking(1, 100, max_tokens=1), asking(90, 120, max_tokens=1)
    assert engine.generate([first])[0].metrics.evicted_tokens == 0
    assert engine.generate([other])[0].metrics.evicted_tokens == 0
    metrics = engine.generate([first])[0].metrics
    assert metrics.evicted_tokens > 0
    assert metrics.cached_tokens + metrics.evicted_tokens == 96, "the full blocks of what was computed before"


def test_what_is_cached_was_not_evicted(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=32)
    for _ in range(2):
        [done] = engine.generate([asking(1, 100, max_tokens=1)])
        assert done.metrics.evicted_tokens == 0
    assert done.metrics.cached_tokens == 99
