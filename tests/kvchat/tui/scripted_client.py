"""An engine that says what the test tells it to, when the test tells it to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.api import (
    BLOCK_CACHED,
    BLOCK_OWNED,
    BLOCK_SHARED,
    Accepted,
    Divergence,
    EngineState,
    EngineStats,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Metrics,
    ModelInfo,
    PoolStats,
    Progress,
    TokenDelta,
)
from engine.client import EngineClient, Listener
from engine.config import EngineConfig

MODEL = ModelInfo(
    name="smollm2-135m-instruct",
    context_length=8192,
    n_layer=30,
    n_head=9,
    n_kv_head=3,
    head_dim=64,
    dtype="bfloat16",
    weights="int4 + int8",
    kv_dtype="bfloat16",
    kv_warning="",
    device="cpu",
    weight_bytes=96_000_000,
    kv_token_bytes=23_040,
)
BLOCKS = 512


class ScriptedClient(EngineClient):
    """Keeps what was asked of it, and emits events only when one of its methods is called.

    Token ids are invented but consistent: every word of a text is one token.
    """

    def __init__(self) -> None:
        self.starts = 0
        self.requests: dict[str, GenerationRequest] = {}
        """Every request, in the order of submission."""
        self.fed: dict[str, tuple[int, ...]] = {}
        """Every accepted prompt."""
        self.aborted: list[str] = []
        self.closed = False
        self.config: EngineConfig | None = None
        """What `configure` was told."""
        self._listener: Listener = lambda events: None
        self._produced: dict[str, list[TokenDelta]] = {}
        self._next_token = 1000

    # EngineClient

    def start(self, listener: Listener) -> None:
        self.starts += 1
        self._listener = listener

    def submit(self, request: GenerationRequest) -> str:
        request_id = f"r{len(self.requests) + 1}"
        self.requests[request_id] = msgspec.structs.replace(request, request_id=request_id)
        self._produced[request_id] = []
        return request_id

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    def close(self) -> None:
        self.closed = True

    def configure(self, config: EngineConfig) -> None:
        self.config = config

    # The script

    def emit(self, *events: Event) -> None:
        self._listener(events)

    def loading(self, detail: str = "reading weights") -> None:
        self.emit(EngineState("loading", detail))

    def ready(self, model: ModelInfo = MODEL) -> None:
        self.emit(EngineState("ready", model=model), stats())

    def fail(self, detail: str) -> None:
        self._gone(EngineState("failed", detail))

    def die(self, detail: str = "the engine process was killed by SIGKILL") -> None:
        self._gone(EngineState("died", detail))

    def accept(self, request_id: str, divergence: Divergence | None = None) -> tuple[int, ...]:
        """Accept a request and return its new token ids, one a word of what was not tokenized yet."""
        messages = self.requests[request_id].messages
        known = [token for message in messages for token in message.token_ids]
        kept = known[: divergence.token_index] if divergence else known
        fresh = messages if divergence else [message for message in messages if not message.token_ids]
        new = self._tokens(sum(len(message.text.split()) for message in fresh))
        self.fed[request_id] = (*kept, *new)
        begun = messages[-1] if messages[-1].role == "assistant" else None
        self.emit(Accepted(request_id, len(kept) + len(new), new, divergence, begun.text if begun else ""))
        if begun:
            self._produced[request_id].append(TokenDelta(request_id, begun.text, begun.token_ids))
        return new

    def queue(self, request_id: str, reason: str) -> None:
        self.emit(Progress(request_id, "queued", 0, Metrics(), reason))

    def prefill(self, request_id: str, computed: int) -> None:
        self.emit(Progress(request_id, "prefill", computed, Metrics()))

    def say(self, request_id: str, text: str) -> None:
        """Generate `text`."""
        delta = TokenDelta(request_id, text, self._tokens(max(1, len(text.split()))))
        self._produced[request_id].append(delta)
        self.emit(delta)

    def finish(self, request_id: str, finish_reason: FinishReason = "stop") -> None:
        deltas = self._produced[request_id]
        token_ids = tuple(token for delta in deltas for token in delta.token_ids)
        text = "".join(delta.text for delta in deltas)
        messages = self.requests[request_id].messages
        begun = len(messages[-1].token_ids) if messages[-1].role == "assistant" else 0
        self.emit(Finished(request_id, finish_reason, text, token_ids, metrics(len(token_ids) - begun)))

    def refuse(self, request_id: str, error: str, for_good: bool = False, too_long: bool = False) -> None:
        self.emit(Failed(request_id, error, refused=for_good or too_long, too_long=too_long))

    def reply(self, request_id: str, text: str) -> None:
        """The whole life of a reply."""
        self.accept(request_id)
        self.say(request_id, text)
        self.finish(request_id)

    def _gone(self, state: EngineState) -> None:
        self.emit(state, *(Failed(request_id, state.detail) for request_id in self.requests))

    def _tokens(self, count: int) -> tuple[int, ...]:
        first, self._next_token = self._next_token, self._next_token + count
        return tuple(range(first, self._next_token))


def metrics(completion_tokens: int) -> Metrics:
    return Metrics(
        queue_s=0.002,
        ttft_s=0.182,
        tpot_s=0.0241,
        prefill_s=0.18,
        decode_s=0.0241 * completion_tokens,
        e2e_s=0.182 + 0.0241 * completion_tokens,
        tokens_per_s=1 / 0.0241,
        prompt_tokens=412,
        cached_tokens=384,
        completion_tokens=completion_tokens,
    )


def stats(owners: Sequence[tuple[str, int]] = (), shared: int = 0, cached: int = 0, waiting: int = 0) -> EngineStats:
    """A pool of BLOCKS blocks: first the shared ones, then each owner's, then the cached ones."""
    owned = b"".join(bytes([BLOCK_OWNED + index]) * blocks for index, (_, blocks) in enumerate(owners))
    blocks = (bytes([BLOCK_SHARED]) * shared + owned + bytes([BLOCK_CACHED]) * cached).ljust(BLOCKS, b"\0")
    used = shared + len(owned)
    return EngineStats(
        running=len(owners),
        waiting=waiting,
        tokens_per_s=41.5 * len(owners),
        hit_rate=0.87,
        rss_bytes=612 * 1024 * 1024,
        pool=PoolStats(
            total=BLOCKS,
            used=used,
            shared=shared,
            cached=cached,
            free=BLOCKS - used - cached,
            block_size=16,
            block_bytes=16 * MODEL.kv_token_bytes,
        ),
        block_map=blocks,
        owners=tuple(owner for owner, _ in owners),
    )
