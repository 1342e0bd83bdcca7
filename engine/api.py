"""What goes into the engine and what comes out: plain data, importable without torch.

Every struct here crosses the pipe between the UI process and the engine process as msgpack.
Times are seconds of one monotonic clock in the engine process; counts are tokens or blocks.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Literal

import msgspec

from engine.errors import InvalidRequest

FinishReason = Literal["stop", "length", "context_full", "aborted"]
"""stop: an end-of-sequence token or a stop string; length: max_tokens; context_full: no room left in the
model's context or in the whole pool; aborted: the caller asked."""

Phase = Literal["queued", "prefill", "decode"]

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""JSON has no other numbers, and SQLite no larger integers."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. Raises InvalidRequest on a value out of range."""

    temperature: float = 0.7
    """0 is greedy."""
    top_k: int = 0
    """0 is off."""
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """None draws a fresh seed; the same seed gives the same tokens whatever else is in the batch."""
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    logit_bias: dict[int, float] = {}
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        checks = (
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "above 0"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "between -2 and 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "between -2 and 2"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("stop", all(self.stop), "made of non-empty strings"),
            ("logit_bias", all(map(math.isfinite, self.logit_bias.values())), "made of finite numbers"),
            ("logit_bias", all(map(_in_64_bits, self.logit_bias)), "of tokens of at most 64 bits"),
            *((n, _in_64_bits(getattr(self, n) or 0), "of at most 64 bits") for n in ("top_k", "seed", "max_tokens")),
        )
        for name, fine, expected in checks:
            if not fine:
                raise InvalidRequest(f"{name} must be {expected}, not {getattr(self, name)!r}")


def _in_64_bits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as the engine sees it.

    `token_ids` are the ids this message added to the context: for a user message everything from the end of
    the previous reply to the generation prompt, for an assistant message what was generated, its end token
    included. Empty means not tokenized yet. A first user message also carries the ids of the system message.
    """

    role: Literal["system", "user", "assistant"]
    text: str
    token_ids: tuple[int, ...] = ()


class GenerationRequest(msgspec.Struct, frozen=True):
    """A prompt and how to continue it: either token ids, or the messages of one conversation, root first.

    Messages that end with a reply ask for the rest of it: it must have its ids, and goes on right behind them, as if it
    had never stopped (with a seed, the same tokens).
    """

    prompt_ids: tuple[int, ...] = ()
    sampling: SamplingParams = SamplingParams()
    messages: tuple[Message, ...] = ()
    request_id: str = ""
    """Empty: the engine gives one."""
    owner: str = ""
    """Whose blocks these are in the block map: the id of the conversation."""
    priority: int = 0
    """Higher runs first and is preempted last; the visible tab has 1."""
    pin_system: bool = False
    """Keep the KV of the system message cached while the pin budget lasts."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What one request cost. The names are the same in Python, JSON and the store."""

    queue_s: Finite = 0.0
    """Submitted to first scheduled."""
    ttft_s: Finite | None = None
    """Submitted to first token, tokenizing included; None before the first token."""
    tpot_s: Finite | None = None
    """(last token - first token) / (n - 1); None below two tokens."""
    prefill_s: Finite = 0.0
    """Computing the prompt, from first scheduled to first token."""
    decode_s: Finite = 0.0
    """From the first token on."""
    preempted_s: Finite = 0.0
    """Waiting for blocks that were taken away, and computing again what was in them."""
    e2e_s: Finite = 0.0
    """Submitted to the end: queue_s + prefill_s + decode_s + preempted_s."""
    tokens_per_s: Finite | None = None
    """1 / tpot_s."""
    prompt_tokens: Int64 = 0
    cached_tokens: Int64 = 0
    """Prompt tokens whose KV was reused when the request was first scheduled."""
    evicted_tokens: Int64 = 0
    """Prompt tokens behind those whose KV had been computed before and was evicted to make room."""
    completion_tokens: Int64 = 0
    preemptions: Int64 = 0


class Divergence(msgspec.Struct, frozen=True):
    """Where the template's rendering of the history stopped matching what was already fed."""

    token_index: Int64
    expected: str
    """Text of the history's own ids at that point, a few characters."""
    rendered: str
    """Text the template rendered there instead."""
    reason: str


# Events, in the order a request sees them: Accepted, Progress*, TokenDelta*, then one of Finished or Failed.


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The prompt is built and queued. `new_token_ids` are the ids that the messages without ids added: they
    belong to the last message of the user. After a divergence they are everything from `divergence.token_index` on."""

    request_id: str
    prompt_tokens: int
    new_token_ids: tuple[int, ...] = ()
    divergence: Divergence | None = None
    continued_text: str = ""
    """Of a reply that goes on: the text that its ids spell so far, behind which the deltas follow."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Where a request stands; sent when its phase changes, after each prefill chunk, and twice a second while it
    decodes."""

    request_id: str
    phase: Phase
    computed_tokens: int
    """Prompt tokens whose KV exists, cached ones included."""
    metrics: Metrics
    reason: str = ""
    """Why a queued request waits."""


class TokenDelta(msgspec.Struct, frozen=True, tag=True):
    """New text, and the ids behind it. Text may lag the ids by an unfinished character or a possible stop string."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The end of a request, with the whole reply, what it had before the request included; `text` ends before a stop
    string."""

    request_id: str
    finish_reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    metrics: Metrics


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request was refused or could not go on; `error` is one line fit to show."""

    request_id: str
    error: str
    refused: bool = False
    """It can never run as it is: trying again does not help."""
    too_long: bool = False
    """It was refused because the prompt does not fit the context or the pool."""


class PoolStats(msgspec.Struct, frozen=True):
    """Blocks by state: total = used + cached + free, shared is the part of used with two or more owners."""

    total: int = 0
    used: int = 0
    shared: int = 0
    cached: int = 0
    free: int = 0
    block_size: int = 0
    block_bytes: int = 0
    tokens: int = 0
    """That the used blocks are for: the rest of their used * block_size rows waits to be filled."""


BLOCK_FREE, BLOCK_CACHED, BLOCK_SHARED, BLOCK_OWNED = 0, 1, 2, 3
"""Codes of `EngineStats.block_map`; BLOCK_OWNED + i means owned by `EngineStats.owners[i]` (at most 253)."""


class EngineStats(msgspec.Struct, frozen=True, tag=True):
    """A snapshot after a step; taking it never waits for the step in progress."""

    running: int = 0
    waiting: int = 0
    max_sequences: int = 0
    """How many may run at the same time."""
    tokens_per_s: float = 0.0
    """Generated tokens of all requests over the last few seconds of work."""
    prefill_tokens_per_s: float = 0.0
    hit_rate: float = 0.0
    """Cached share of the prompt tokens of recent requests, 0 to 1."""
    preemptions: int = 0
    rss_bytes: int = 0
    """Resident memory of the process that the engine runs in."""
    pool: PoolStats = PoolStats()
    block_map: bytes = b""
    owners: tuple[str, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True):
    """What is loaded."""

    name: str
    context_length: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    dtype: str
    weights: str
    """int4, int8, "int4 + int8", or the dtype."""
    kv_dtype: str
    kv_warning: str
    """What the user should know about the loss of an int8 or int4 cache on this model, or nothing."""
    device: str
    weight_bytes: int
    """Of the weights that a decode step reads."""
    kv_token_bytes: int
    """2 x n_layer x n_kv_head x head_dim x bytes per value; of int8 and int4, scales and offsets included."""


class EngineState(msgspec.Struct, frozen=True, tag=True):
    """The engine as a whole: loading (with what it is doing), ready, failed to load, or its process died."""

    state: Literal["loading", "ready", "failed", "died"]
    detail: str = ""
    model: ModelInfo | None = None


Event = Accepted | Progress | TokenDelta | Finished | Failed | EngineStats | EngineState
