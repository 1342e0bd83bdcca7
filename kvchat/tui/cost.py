"""Why a reply was as slow as it was: where its time went, and why some of its prompt had to be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Divergence, Metrics
from kvchat.store import Conversation, StoredMessage
from kvchat.tui.format import count, percent, printable, rate, tokens

SLACK = 16
"""Tokens at the end of the history that may be computed again at any rate."""


@dataclass(frozen=True, slots=True)
class Part:
    """What some of the time went to: how it is named, coloured and, where there is no colour, told apart."""

    name: str
    seconds: float | None
    """None: it takes no time."""
    about: str
    variable: str
    glyph: str


def parts(metrics: Metrics) -> list[Part]:
    """What the time of a reply consists of, in the order it was spent; the seconds add up to e2e_s."""
    computed = metrics.prompt_tokens - metrics.cached_tokens
    speed = metrics.tokens_per_s
    return [
        Part("queued", metrics.queue_s, "before the engine began", "$warning", "░"),
        Part("cached", None, f"{tokens(metrics.cached_tokens)} reused, no time", "$kv-cached", " "),
        Part("prefill", metrics.prefill_s, f"{tokens(computed)} read", "$primary", "▓"),
        Part(
            "decode",
            metrics.decode_s,
            f"{tokens(metrics.completion_tokens)} written" + (f", {rate(speed)} a second" if speed else ""),
            "$success",
            "█",
        ),
        Part(
            "preempted",
            metrics.preempted_s,
            f"{count(metrics.preemptions)}× its memory went to another reply" if metrics.preemptions else "never",
            "$error",
            "▒",
        ),
    ]


def shares(values: Sequence[float], width: int) -> list[int]:
    """`width` cells divided in proportion to the values, by the largest remainder; all 0 where there is nothing."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    cells = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: cells[index] - exact[index])
    for index in by_remainder[: width - sum(cells)]:
        cells[index] += 1
    return cells


def verdict(metrics: Metrics) -> str:
    """One sentence that names the largest part."""
    if metrics.e2e_s <= 0:
        return "It took no time."
    what = {
        "queued": "waiting until the engine began",
        "prefill": "reading the prompt",
        "decode": "writing the reply",
        "preempted": "waiting for memory that another reply had taken, and reading again what was in it",
    }
    largest = max((part for part in parts(metrics) if part.seconds is not None), key=lambda part: part.seconds or 0)
    share = (largest.seconds or 0) / metrics.e2e_s
    most = "Most of the time" if share > 0.5 else "The largest part of the time"
    return f"{most}, {percent(share)}, went into {what[largest.name]}."


def cause(conversation: Conversation, messages: Sequence[StoredMessage], index: int, persona_prompt: str | None) -> str:
    """What the reply at `index` of a branch reused, and if that was less than the history, why, in one or two
    sentences. `persona_prompt` is the system prompt of the conversation's persona, None when there is none any more."""
    reply = messages[index]
    metrics = reply.metrics or Metrics()
    if reply.divergence:
        return _diverged(reply.divergence)
    if metrics.evicted_tokens:
        return (
            f"{tokens(metrics.evicted_tokens)} had been read before and evicted under memory pressure: "
            "a larger kv_memory keeps more."
        )
    if index <= 1:
        return _first(conversation, metrics, persona_prompt)
    own = [message for message in messages[:index] if message.model == reply.model]
    known = sum(len(message.token_ids) for message in own[:-1])
    if metrics.cached_tokens + SLACK >= known and len(own) == index:
        return "All of the history was cached: only what is new was read."
    if len(own) < index:
        other = next(message.model for message in reversed(messages[:index]) if message.model != reply.model)
        return f"Earlier messages were read by another model, {printable(other)}: what one computed no other can use."
    return (
        f"{tokens(known - metrics.cached_tokens)} of the history were not in the cache: the engine had started anew "
        "since they were read, or prefix caching is off."
    )


def _diverged(divergence: Divergence) -> str:
    return (
        f"Token {count(divergence.token_index)} is the first one that is not what was read before: "
        f"{_quoted(divergence.expected)} was, {_quoted(divergence.rendered)} is in its place. "
        f"Cause: {printable(divergence.reason)}."
    )


def _first(conversation: Conversation, metrics: Metrics, persona_prompt: str | None) -> str:
    changed = conversation.system_prompt and conversation.system_prompt != persona_prompt
    if metrics.cached_tokens > SLACK:
        return f"The first message here: {tokens(metrics.cached_tokens)} were shared with another conversation."
    if changed:
        return "The first message here, and a changed system prompt: no other conversation has read it."
    if conversation.system_prompt:
        return (
            "The first message here, of a persona that was new to the cache: the next tab with it reuses what was read."
        )
    return "The first message here: there was nothing to reuse."


def _quoted(text: str) -> str:
    """Text with its control characters and line ends to be seen."""
    return f"“{printable(text).replace(chr(10), '⏎').replace(chr(9), '⇥')}”" if text else "nothing"
