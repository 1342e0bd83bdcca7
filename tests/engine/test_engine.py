"""The engine as a whole on a tiny random model in float32: same answers whatever the circumstances."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import psutil
import pytest
import torch

from engine.api import (
    BLOCK_CACHED,
    BLOCK_OWNED,
    BLOCK_SHARED,
    Accepted,
    Event,
    Finished,
    GenerationRequest,
    Message,
    Progress,
    SamplingParams,
    TokenDelta,
)
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest, ModelError

BLOCK_BYTES = 2 * 2 * 2 * 8 * 4 * 16
"""K and V, 2 layers, 2 KV heads of 8 float32 values, 16 tokens."""


def make(model: Path, *, blocks: int = 64, **settings: object) -> Engine:
    defaults = {
        "dtype": "float32",
        "kv_memory": blocks * BLOCK_BYTES,
        "max_batch_tokens": 64,
        "max_sequences": 8,
        "threads": 1,
    }
    return Engine(EngineConfig(model=model, **(defaults | settings)))  # type: ignore[arg-type]


def greedy(prompt: list[int], max_tokens: int = 20) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))


def prompts(count: int, length: int = 40, shared: int = 20) -> list[list[int]]:
    source = random.Random(5)
    persona = [source.randrange(256) for _ in range(shared)]
    return [persona + [source.randrange(256) for _ in range(length - shared)] for _ in range(count)]


def run(engine: Engine) -> list[Event]:
    events: list[Event] = []
    while engine.has_work:
        events += engine.step()
        engine.check_integrity()
    return events


def finished(events: list[Event]) -> Finished:
    [event] = [event for event in events if isinstance(event, Finished)]
    return event


@pytest.fixture(scope="class", params=["float32", "int8", "int4"])
def kv_dtype(request: pytest.FixtureRequest) -> str:
    return request.param


class TestTheSameTokens:
    @pytest.fixture(scope="class")
    def expected(self, tiny_model: Path, kv_dtype: str) -> list[tuple[int, ...]]:
        """Each prompt alone, nothing cached, one chunk."""
        engine = make(tiny_model, prefix_caching=False, kv_dtype=kv_dtype)
        return [engine.generate([greedy(prompt)])[0].token_ids for prompt in prompts(6)]

    def test_with_the_prefix_cache(self, tiny_model: Path, kv_dtype: str, expected: list[tuple[int, ...]]) -> None:
        engine = make(tiny_model, kv_dtype=kv_dtype)
        results = [engine.generate([greedy(prompt)])[0] for prompt in prompts(6)]
        assert [done.token_ids for done in results] == expected
        assert [done.metrics.cached_tokens for done in results] == [0, 20, 20, 20, 20, 20]

    def test_asked_again_everything_but_the_last_token_is_cached(
        self, tiny_model: Path, kv_dtype: str, expected: list[tuple[int, ...]]
    ) -> None:
        engine = make(tiny_model, kv_dtype=kv_dtype)
        for _ in range(2):
            [done] = engine.generate([greedy(prompts(6)[0])])
            assert done.token_ids == expected[0]
        assert done.metrics.cached_tokens == 39

    @pytest.mark.parametrize("caching", [True, False])
    def test_in_a_batch(self, tiny_model: Path, kv_dtype: str, expected: list[tuple[int, ...]], caching: bool) -> None:
        engine = make(tiny_model, kv_dtype=kv_dtype, prefix_caching=caching)
        assert [done.token_ids for done in engine.generate(map(greedy, prompts(6)))] == expected

    def test_with_small_chunks(self, tiny_model: Path, kv_dtype: str, expected: list[tuple[int, ...]]) -> None:
        engine = make(tiny_model, kv_dtype=kv_dtype, max_batch_tokens=9)
        assert [done.token_ids for done in engine.generate(map(greedy, prompts(6)))] == expected

    @pytest.mark.parametrize("caching", [True, False])
    def test_with_preemptions(self, tiny_model: Path, kv_dtype: str, caching: bool) -> None:
        requests = [greedy(prompt, max_tokens=70) for prompt in prompts(4, length=20, shared=4)]
        roomy = make(tiny_model, kv_dtype=kv_dtype)
        memory = 10 * 16 * roomy.info.kv_token_bytes
        tight = make(tiny_model, kv_dtype=kv_dtype, kv_memory=memory, prefix_caching=caching)
        results = tight.generate(requests)
        assert [done.token_ids for done in results] == [done.token_ids for done in roomy.generate(requests)]
        assert sum(done.metrics.preemptions for done in results) > 0

    def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        requests = [
            GenerationRequest(tuple(prompt), SamplingParams(temperature=1.0, seed=seed, max_tokens=20))
            for seed, prompt in enumerate(prompts(4))
        ]
        alone = [engine.generate([request])[0].token_ids for request in requests]
        assert [done.token_ids for done in engine.generate(requests)] == alone


class TestOneRequest:
    def test_events_come_in_order_and_deltas_add_up(self, tiny_model: Path) -> None:
        engine = make(tiny_model, max_batch_tokens=16)
        engine.submit(greedy(prompts(1)[0]))
        events = [event for event in run(engine)]
        kinds = [type(event) for event in events if not isinstance(event, Progress)]
        assert kinds[0] is Accepted and kinds[-1] is Finished and set(kinds[1:-1]) == {TokenDelta}
        deltas = [event for event in events if isinstance(event, TokenDelta)]
        done = finished(events)
        assert "".join(delta.text for delta in deltas) == done.text
        assert sum((delta.token_ids for delta in deltas), ()) == done.token_ids

    def test_prefill_reports_how_far_it_is(self, tiny_model: Path) -> None:
        engine = make(tiny_model, max_batch_tokens=16)
        engine.submit(greedy(prompts(1)[0]))
        progress = [event for event in run(engine) if isinstance(event, Progress)]
        assert [event.computed_tokens for event in progress if event.phase == "prefill"] == [16, 32]

    def test_metrics_are_consistent(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        [done] = engine.generate([greedy(prompts(1)[0])])
        metrics = done.metrics
        assert (metrics.prompt_tokens, metrics.completion_tokens) == (40, 20)
        assert metrics.ttft_s is not None and metrics.tpot_s is not None and metrics.tokens_per_s is not None
        assert 0 <= metrics.queue_s <= metrics.ttft_s <= metrics.e2e_s
        assert metrics.e2e_s == pytest.approx(metrics.ttft_s + 19 * metrics.tpot_s)
        assert metrics.tokens_per_s == pytest.approx(1 / metrics.tpot_s)

    def test_the_end_token_ends_it_and_is_kept_among_the_ids(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        [done] = engine.generate([GenerationRequest((1, 2, 3), SamplingParams(temperature=0, logit_bias={257: 100.0}))])
        assert (done.finish_reason, done.token_ids, done.text) == ("stop", (257,), "")

    def test_a_stop_string_ends_the_text_before_it(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        [free] = engine.generate([greedy(prompts(1)[0], max_tokens=40)])
        position = next(
            i for i in range(5, len(free.text) - 2) if free.text[i : i + 2].isascii() and free.text[i : i + 2].strip()
        )
        stop = free.text[position : position + 2]
        [done] = engine.generate(
            [
                GenerationRequest(
                    tuple(prompts(1)[0]),
                    SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, stop=(stop,)),
                )
            ]
        )
        assert done.finish_reason == "stop" and done.text == free.text[: free.text.index(stop)]

    def test_max_tokens_ends_it(self, tiny_model: Path) -> None:
        [done] = make(tiny_model).generate([greedy([1, 2], max_tokens=3)])
        assert (done.finish_reason, len(done.token_ids)) == ("length", 3)

    def test_a_full_context_ends_it(self, tiny_model: Path) -> None:
        engine = make(tiny_model, context_length=32)
        [done] = engine.generate([greedy([5] * 30, max_tokens=99)])
        assert (done.finish_reason, len(done.token_ids)) == ("context_full", 2)

    def test_a_pool_filled_by_one_conversation_ends_it(self, tiny_model: Path) -> None:
        engine = make(tiny_model, blocks=3)
        [done] = engine.generate([greedy([5] * 40, max_tokens=99)])
        assert (done.finish_reason, 40 + len(done.token_ids)) == ("context_full", 3 * 16 + 1)

    def test_abort_keeps_what_was_produced_and_gives_the_blocks_back(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        request_id = engine.submit(greedy(prompts(1)[0], max_tokens=99))
        for _ in range(5):
            engine.step()
        engine.abort(request_id)
        done = finished(engine.step())
        assert done.finish_reason == "aborted" and len(done.token_ids) == 5 and not engine.has_work
        assert engine.stats().pool.used == 0

    def test_abort_works_while_queued_and_while_prefilling(self, tiny_model: Path) -> None:
        engine = make(tiny_model, max_batch_tokens=16, max_sequences=1)
        first, second = engine.submit(greedy([1] * 60)), engine.submit(greedy([2] * 60))
        engine.step()
        engine.abort(first)
        engine.abort(second)
        assert [event.request_id for event in run(engine) if isinstance(event, Finished)] == [first, second]
        engine.check_integrity()


class TestRefusals:
    def test_an_empty_prompt(self, tiny_model: Path) -> None:
        with pytest.raises(InvalidRequest, match="the prompt is empty"):
            make(tiny_model).submit(GenerationRequest())

    def test_a_prompt_longer_than_the_context(self, tiny_model: Path) -> None:
        with pytest.raises(InvalidRequest, match="has 1,600 tokens and the context holds 512"):
            make(tiny_model).submit(greedy([1] * 1600))

    def test_a_prompt_larger_than_the_pool(self, tiny_model: Path) -> None:
        with pytest.raises(InvalidRequest, match="100 tokens needs 7 KV blocks and the pool has 4"):
            make(tiny_model, blocks=4).submit(greedy([1] * 100))

    def test_a_token_outside_the_vocabulary(self, tiny_model: Path) -> None:
        with pytest.raises(InvalidRequest, match="token id 999"):
            make(tiny_model).submit(greedy([1, 999]))

    def test_an_unknown_model(self) -> None:
        with pytest.raises(ModelError, match="no-such-model"):
            Engine(EngineConfig(model="no-such-model"))

    def test_a_refused_request_leaves_nothing_behind(self, tiny_model: Path) -> None:
        engine = make(tiny_model, blocks=4)
        with pytest.raises(InvalidRequest):
            engine.submit(greedy([1] * 100))
        assert not engine.has_work


class TestConversation:
    def test_the_second_turn_reuses_all_of_the_first(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        letters = {engine.tokenizer.encode(letter)[0]: 100.0 for letter in ascii_lowercase}
        params = SamplingParams(temperature=0, max_tokens=10, logit_bias=letters)
        system = Message("system", "You are brief.")
        engine.submit(GenerationRequest(messages=(system, Message("user", "Hi")), sampling=params))
        events = run(engine)
        [accepted] = [event for event in events if isinstance(event, Accepted)]
        first = finished(events)
        history = (
            system,
            Message("user", "Hi", accepted.new_token_ids),
            Message("assistant", first.text, first.token_ids),
        )
        engine.submit(GenerationRequest(messages=(*history, Message("user", "And now?")), sampling=params))
        events = run(engine)
        [accepted] = [event for event in events if isinstance(event, Accepted)]
        fed = len(history[1].token_ids) + len(first.token_ids)
        assert accepted.divergence is None and accepted.prompt_tokens == fed + len(accepted.new_token_ids)
        # The token sampled last was never computed.
        assert finished(events).metrics.cached_tokens == fed - 1

    def test_two_conversations_share_their_persona(self, tiny_model: Path) -> None:
        engine = make(tiny_model)
        persona = Message("system", "You are a patient teacher of long division. " * 4)
        params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
        for owner in ("a", "b"):
            engine.submit(GenerationRequest(messages=(persona, Message("user", "Hello")), sampling=params, owner=owner))
            engine.step()
        for _ in range(8):
            engine.step()
        pool, stats = engine._pool, engine.snapshot()
        counts = {code: stats.block_map.count(code) for code in set(stats.block_map)}
        assert stats.owners == ("a", "b")
        assert counts[BLOCK_SHARED] == stats.pool.shared >= len(persona.text) // 16
        assert counts[BLOCK_OWNED] >= 1 and counts[BLOCK_OWNED + 1] >= 1
        run(engine)
        idle = engine.stats()
        assert idle.block_map.count(BLOCK_CACHED) == idle.pool.cached == pool.num_cached
        assert idle.pool.used == 0 and idle.pool.cached + idle.pool.free == idle.pool.total == 64


@dataclass
class Soak:
    """Random requests over few prefixes, some long, some aborted."""

    engine: Engine
    source: random.Random

    def requests(self, count: int) -> Iterator[GenerationRequest]:
        personas = [[self.source.randrange(256) for _ in range(n)] for n in (5, 16, 33, 70)]
        for _ in range(count):
            length = self.source.choice([1, 2, 3, 8, 15, 16, 17, 60])
            tail = [self.source.randrange(256) for _ in range(length)]
            yield greedy(self.source.choice(personas) + tail, max_tokens=self.source.choice([1, 2, 3, 5, 9, 50]))

    def run(self, count: int) -> int:
        aborted = 0
        pending = self.requests(count)
        live: dict[str, None] = {}
        more = True
        while more or live:
            while more and len(live) < 12:
                request = next(pending, None)
                more = request is not None
                if request is not None:
                    live[self.engine.submit(request)] = None
            if live and self.source.random() < 0.05:
                self.engine.abort(self.source.choice(list(live)))
            for event in self.engine.step():
                if isinstance(event, Finished):
                    del live[event.request_id]
                    aborted += event.finish_reason == "aborted"
        return aborted


def test_two_thousand_requests_through_a_tiny_pool_leak_nothing(tiny_model: Path) -> None:
    engine = make(tiny_model, blocks=14, max_batch_tokens=48)
    aborted = Soak(engine, random.Random(11)).run(2000)
    engine.check_integrity()
    stats = engine.stats()
    assert aborted > 20 and stats.preemptions > 20 and stats.hit_rate > 0.1
    assert (stats.running, stats.waiting, stats.pool.used) == (0, 0, 0)


def test_the_pool_takes_its_cap_and_traffic_takes_no_more(tiny_model: Path) -> None:
    cap = 256 << 20
    engine = make(tiny_model, kv_memory=cap)
    traffic = Soak(engine, random.Random(2))
    traffic.run(300)  # oneDNN keeps code for every shape it has met
    resident = psutil.Process().memory_info
    before = resident().rss
    with torch.inference_mode():
        for layer in engine._runner._cache.layers:
            for plane in layer:
                plane.blocks.zero_()  # the pool is allocated, and becomes resident as it is written
    full = resident().rss
    assert full - before == pytest.approx(cap, rel=0.1)
    traffic.run(100)
    assert resident().rss - full < 0.1 * cap
