"""What keeps replies from being faster, read out of what the engine measures.

A long time to the first token is queueing or prefill. A long time per token after it is what a decode step reads, or
the prefill of others that it takes along. Work that is given up, and requests that wait although more could run, are
the memory policy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.api import EngineStats, Metrics, ModelInfo
from kvchat.profiles import PROFILES

Bottleneck = Literal["none", "queueing", "prefill", "decode", "memory"]

SLOW_TTFT_S = 1.0
"""A pause of a second is where a train of thought breaks."""
SLOW_TPOT_S = 0.1
"""Ten tokens a second are about seven words: as many as one skims, twice as many as one reads. A slower text keeps the
eye waiting."""
QUEUED_SHARE = 0.5
"""Of the time to the first token: whichever part is larger is the one to shorten."""
KV_SHARE = 0.5
"""Of the bytes that a decode step reads: above it, keys and values cost more than the weights."""
CHUNK_TOKENS = 64
"""Prompt tokens in a step from which they, and no longer the weights it reads, decide how long it takes."""
CROWDED_SHARE = 0.5
"""Of the pool in use: a request that could run and does not rarely needs more than the other half. Below it, it rather
waits for a prefix that another one is computing."""

HINT_WIDTH = 31
"""Cells of a row of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was measured, of one reply or of a load."""

    ttft_s: float | None = None
    """Of a request without a token yet: how long it has taken so far."""
    queue_s: float = 0.0
    """The part of it before the first step."""
    computed_tokens: int = 0
    """Of the prompt, the tokens that were not cached."""
    tpot_s: float | None = None
    chunk_tokens: float = 0.0
    """Of other prompts, those computed for each token of a reply."""
    max_sequences: int = 0
    preemptions: int = 0
    blocked: bool = False
    """Requests wait for KV blocks, see `is_blocked`."""
    kv_share: float = 0.0
    """Keys and values, of the bytes that a decode step reads."""
    weights: str = ""
    kv_dtype: str = ""
    """Both as in ModelInfo: what is packed already needs no advice."""

    @classmethod
    def now(cls, stats: EngineStats, metrics: Metrics | None, model: ModelInfo | None) -> Reading:
        """Of the running or last reply, beside what the engine does."""
        reply = metrics or Metrics()
        waited = reply.e2e_s or None
        return cls(
            ttft_s=waited if reply.ttft_s is None else reply.ttft_s,
            queue_s=reply.queue_s,
            computed_tokens=reply.prompt_tokens - reply.cached_tokens,
            tpot_s=reply.tpot_s,
            chunk_tokens=stats.prefill_tokens_per_s * (reply.tpot_s or 0.0) if stats.running > 1 else 0.0,
            max_sequences=stats.max_sequences,
            preemptions=reply.preemptions,
            blocked=is_blocked(stats),
            kv_share=kv_share(stats, model, reply.prompt_tokens + reply.completion_tokens),
            weights=model.weights if model else "",
            kv_dtype=model.kv_dtype if model else "",
        )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    bottleneck: Bottleneck
    hint: str
    """A few words, at most HINT_WIDTH cells."""
    reason: str
    """The figures that it was read out of, as a clause."""
    advice: str
    """What to do about it, as a clause."""


def is_blocked(stats: EngineStats) -> bool:
    """Whether requests wait for KV blocks: one more could run, but for what the others hold."""
    pool = stats.pool
    return stats.waiting > 0 and stats.running < stats.max_sequences and pool.used >= CROWDED_SHARE * pool.total


def kv_share(stats: EngineStats, model: ModelInfo | None, context: int = 0) -> float:
    """Keys and values of all that runs, or of a `context` that ran last, of the bytes that a step reads; 0 without a
    model."""
    if model is None:
        return 0.0
    kv = max(stats.pool.used * stats.pool.block_bytes, context * model.kv_token_bytes)
    return kv / (kv + model.weight_bytes) if kv else 0.0


def diagnose(reading: Reading) -> Diagnosis:
    """The one thing to look at first: of TTFT and TPOT whichever is further beyond its limit."""
    ttft, tpot = (reading.ttft_s or 0.0) / SLOW_TTFT_S, (reading.tpot_s or 0.0) / SLOW_TPOT_S
    if reading.preemptions:
        return _preempted(reading)
    if max(ttft, tpot) < 1:
        return Diagnosis("none", "nothing is slow", "nothing is slow", "no setting needs to change")
    if ttft < tpot:
        return _decode(reading)
    queued = reading.queue_s / (reading.ttft_s or 1.0)
    return _prefill(reading, queued) if queued < QUEUED_SHARE else _queue(reading, queued)


def _eight_bits(reading: Reading) -> list[str]:
    """The advice, unless it has been taken."""
    return [] if reading.kv_dtype.startswith("int") else ["store keys and values in 8 bits (profile documents)"]


def _one_of(*advice: str) -> str:
    *others, last = advice
    return f"{', '.join(others)}{',' * (len(others) > 1)} or {last}" if others else last


def _preempted(reading: Reading) -> Diagnosis:
    preemptions = reading.preemptions
    return Diagnosis(
        "memory",
        f"memory: preempted {preemptions:,}x",
        f"the KV pool ran out {preemptions:,} times, and what a conversation had computed was given up for another",
        _one_of("raise engine.kv_memory", *_eight_bits(reading), "lower engine.max_sequences"),
    )


def _queue(reading: Reading, queued: float) -> Diagnosis:
    waits = f"{queued:.0%} of the {_s(reading.ttft_s)} to the first token is waiting"
    if reading.blocked:
        return Diagnosis(
            "memory",
            "memory: waits for KV blocks",
            f"{waits} for KV blocks, while more conversations could run",
            _one_of("raise engine.kv_memory", *_eight_bits(reading)),
        )
    # Beyond what the profile for many at once allows, a larger batch only makes every token of it slower.
    room = reading.max_sequences < PROFILES["chat"].settings["max_sequences"]
    return Diagnosis(
        "queueing",
        f"queueing: {queued:.0%} of TTFT",
        f"{waits} for a place among {reading.max_sequences} running conversations or for the step in progress",
        "raise engine.max_sequences (profile chat)"
        if room
        else "ask for less at a time, keep prompts and replies shorter, or take a smaller model",
    )


def _prefill(reading: Reading, queued: float) -> Diagnosis:
    return Diagnosis(
        "prefill",
        f"prefill: {reading.computed_tokens:,} new tokens",
        f"{1 - queued:.0%} of the {_s(reading.ttft_s)} to the first token is prefill, of {reading.computed_tokens:,} "
        "tokens that were not cached and of what is read in the same steps",
        "begin prompts alike, so that their keys and values are reused, shorten them, or take a smaller model",
    )


def _decode(reading: Reading) -> Diagnosis:
    token = f"a token takes {_s(reading.tpot_s)}"
    if reading.chunk_tokens >= CHUNK_TOKENS:
        return Diagnosis(
            "prefill",
            "prefill: slows other replies",
            f"{token}, since {reading.chunk_tokens:,.0f} tokens of other prompts are computed beside it",
            "lower engine.max_batch_tokens (profile documents)",
        )
    if reading.kv_share >= KV_SHARE:
        return Diagnosis(
            "decode",
            f"decode: KV is {reading.kv_share:.0%} of reads",
            f"{token}, and {reading.kv_share:.0%} of what a step reads are keys and values",
            _one_of(*_eight_bits(reading), "keep contexts shorter"),
        )
    return Diagnosis(
        "decode",
        f"decode: weights {1 - reading.kv_share:.0%} of reads",
        f"{token}, and {1 - reading.kv_share:.0%} of what a step reads are weights",
        _one_of(
            "lower engine.max_sequences if many share a step",
            *([] if "int4" in reading.weights else ["pack the weights in 4 bits"]),
            "take a smaller model",
        ),
    )


def _s(seconds: float | None) -> str:
    return f"{seconds or 0:.2g} s"
