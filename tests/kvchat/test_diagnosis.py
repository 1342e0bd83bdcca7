"""Measured times are read as queueing, prefill, decode or memory policy."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tui.scripted_client import MODEL

from engine.api import EngineStats, Metrics, PoolStats
from kvchat.diagnosis import HINT_WIDTH, SLOW_TPOT_S, SLOW_TTFT_S, Reading, diagnose, is_blocked, kv_share

SECONDS = st.floats(0, 1e6)
READINGS = st.builds(
    Reading,
    ttft_s=st.none() | SECONDS,
    queue_s=SECONDS,
    computed_tokens=st.integers(0, 2_000_000),
    tpot_s=st.none() | SECONDS,
    chunk_tokens=st.floats(0, 1e6),
    max_sequences=st.integers(1, 512),
    preemptions=st.integers(0, 1_000_000),
    blocked=st.booleans(),
    kv_share=st.floats(0, 1),
)


@pytest.mark.parametrize(
    ("reading", "bottleneck", "hint"),
    [
        (Reading(), "none", "nothing is slow"),
        (Reading(ttft_s=0.4, queue_s=0.4, tpot_s=0.02), "none", "nothing is slow"),
        (Reading(ttft_s=2.0, queue_s=1.5, max_sequences=16), "queueing", "queueing: 75% of TTFT"),
        (Reading(ttft_s=2.0, queue_s=1.5, blocked=True), "memory", "memory: waits for KV blocks"),
        (Reading(ttft_s=2.0, queue_s=0.1, computed_tokens=3000), "prefill", "prefill: 3,000 new tokens"),
        (Reading(ttft_s=0.1, tpot_s=0.2, kv_share=0.7), "decode", "decode: KV is 70% of reads"),
        (Reading(ttft_s=0.1, tpot_s=0.2, kv_share=0.2), "decode", "decode: weights 80% of reads"),
        (Reading(ttft_s=0.1, tpot_s=0.2, chunk_tokens=400), "prefill", "prefill: slows other replies"),
        (Reading(ttft_s=0.1, tpot_s=0.02, preemptions=2), "memory", "memory: preempted 2x"),
    ],
)
def test_what_was_measured_is_read_as(reading: Reading, bottleneck: str, hint: str) -> None:
    found = diagnose(reading)
    assert (found.bottleneck, found.hint) == (bottleneck, hint)


def test_the_figure_further_beyond_its_limit_is_the_one_to_look_at() -> None:
    assert diagnose(Reading(ttft_s=3 * SLOW_TTFT_S, tpot_s=2 * SLOW_TPOT_S)).bottleneck == "prefill"
    assert diagnose(Reading(ttft_s=2 * SLOW_TTFT_S, tpot_s=3 * SLOW_TPOT_S)).bottleneck == "decode"


def test_a_reason_has_the_figures_and_an_advice_what_would_help_here() -> None:
    found = diagnose(Reading(ttft_s=4.0, queue_s=3.0, max_sequences=16))
    assert found.reason == (
        "75% of the 4 s to the first token is waiting for a place among 16 running conversations "
        "or for the step in progress"
    )
    assert found.advice.startswith("ask for less at a time"), "more in a step would make every token slower"
    assert "engine.max_sequences" in diagnose(Reading(ttft_s=4.0, queue_s=3.0, max_sequences=2)).advice


@given(READINGS)
def test_every_reading_has_one_diagnosis_that_fits_the_panel(reading: Reading) -> None:
    found = diagnose(reading)
    assert 0 < len(found.hint) <= HINT_WIDTH
    assert found.reason and found.advice
    slow = (reading.ttft_s or 0) >= SLOW_TTFT_S or (reading.tpot_s or 0) >= SLOW_TPOT_S
    assert (found.bottleneck == "none") == (not slow and not reading.preemptions)


@given(READINGS, SECONDS)
def test_waiting_longer_never_turns_queueing_into_something_else_but_more_of_it(reading: Reading, more: float) -> None:
    found = diagnose(reading).bottleneck
    waited = Reading(
        **{name: getattr(reading, name) for name in Reading.__slots__}
        | {"queue_s": reading.queue_s + more, "ttft_s": (reading.ttft_s or 0) + more}
    )
    if found in ("queueing", "memory"):
        assert diagnose(waited).bottleneck == found


def test_a_request_is_blocked_when_another_could_run_and_the_pool_is_crowded() -> None:
    full = EngineStats(running=3, waiting=1, max_sequences=16, pool=PoolStats(total=100, used=80))
    assert is_blocked(full)
    assert not is_blocked(replace(full, waiting=0))
    assert not is_blocked(replace(full, running=16)), "it waits for its place"
    assert not is_blocked(replace(full, pool=PoolStats(total=100, used=20))), "it waits for a common prefix"


def test_the_share_of_keys_and_values_is_that_of_the_blocks_in_use() -> None:
    stats = EngineStats(pool=PoolStats(total=9, used=3, block_bytes=32_000_000))
    assert kv_share(stats, MODEL) == 0.5
    assert kv_share(EngineStats(), MODEL) == 0.0
    assert kv_share(EngineStats(), MODEL, context=100_000) > 0.9, "of what ran last"
    assert kv_share(stats, None) == 0.0


def test_a_request_without_a_token_is_read_by_how_long_it_has_taken() -> None:
    waiting = Metrics(queue_s=2.0, e2e_s=2.0, prompt_tokens=100)
    stats = EngineStats(running=16, waiting=1, max_sequences=16)
    assert diagnose(Reading.now(stats, waiting, MODEL)).bottleneck == "queueing"
    reading = msgspec.structs.replace(waiting, queue_s=0.01)
    assert diagnose(Reading.now(stats, reading, MODEL)).bottleneck == "prefill"


def test_what_is_cached_is_no_new_token() -> None:
    reply = Metrics(ttft_s=2.0, prompt_tokens=1000, cached_tokens=900)
    assert diagnose(Reading.now(EngineStats(), reply, MODEL)).hint == "prefill: 100 new tokens"


def test_a_reply_is_slowed_by_the_prompts_of_others_and_not_by_its_own() -> None:
    slow = Metrics(ttft_s=0.5, tpot_s=0.3)
    busy = EngineStats(running=2, prefill_tokens_per_s=1500)
    assert diagnose(Reading.now(busy, slow, MODEL)).bottleneck == "prefill"
    assert diagnose(Reading.now(replace(busy, running=1), slow, MODEL)).bottleneck == "decode"


def test_before_anything_ran_nothing_is_slow() -> None:
    assert diagnose(Reading.now(EngineStats(), None, None)).bottleneck == "none"


def test_no_advice_is_to_do_what_has_been_done() -> None:
    slow = Reading(ttft_s=0.1, tpot_s=0.2)
    assert "pack the weights in 4 bits, or" in diagnose(slow).advice
    packed = Reading(ttft_s=0.1, tpot_s=0.2, weights="int4 + int8", kv_dtype="int8", kv_share=0.2)
    assert diagnose(packed).advice == "lower engine.max_sequences if many share a step or take a smaller model"
    assert diagnose(Reading(tpot_s=0.2, kv_dtype="int8", kv_share=0.7)).advice == "keep contexts shorter"
    assert diagnose(Reading(preemptions=1, kv_dtype="int4")).advice == (
        "raise engine.kv_memory or lower engine.max_sequences"
    )
