"""The engine: requests in, events out, one step at a time. Not thread-safe; `EngineLoop` gives it a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from time import monotonic

import psutil

from engine.api import (
    Accepted,
    EngineStats,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    ModelInfo,
    Progress,
    SamplingParams,
    TokenDelta,
)
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.errors import EngineError, InvalidRequest, PromptTooLong
from engine.locate import model_folder
from engine.metrics import Activity, HitRate, RequestClock, Throughput
from engine.policy import Policy
from engine.prefix_cache import NoPrefixCache, PrefixCache
from engine.prompt import Prompt, PromptBuilder
from engine.runner import Chunk, ModelRunner
from engine.sampler import SequenceSampler, sample
from engine.scheduler import Batch, Scheduler
from engine.sequence import Sequence
from engine.stats import block_map, pool_stats
from engine.tokenizer import Tokenizer

STATS_INTERVAL_S = 0.1
PROGRESS_INTERVAL_S = 0.5


@dataclass(slots=True)
class _Live:
    """Everything the engine keeps of a request that has not ended."""

    seq: Sequence
    params: SamplingParams
    clock: RequestClock
    detokenizer: Detokenizer
    sampler: SequenceSampler
    reply_start: int
    """Where in the tokens of `seq` the reply begins: at the end of the prompt, unless that has a part of it."""
    reported: tuple[str, int, str] = ("", 0, "")
    reported_at: float = 0.0


class Engine:
    """Loads a model and serves requests. Raises ModelError or ConfigError when it cannot load.

    `on_progress(text, fraction)` is told what loading is doing.
    """

    def __init__(
        self,
        config: EngineConfig,
        on_progress: Callable[[str, float], None] | None = None,
        policy: Policy | None = None,
    ) -> None:
        policy = policy or Policy()
        self.config = config
        folder = model_folder(config.model)
        self.tokenizer = Tokenizer(folder)
        self._prompts = PromptBuilder(self.tokenizer)
        self._runner = ModelRunner(folder, config, on_progress)
        info = self._runner.info
        self._vocab_size = self._runner.config.vocab_size
        cache = (PrefixCache if config.prefix_caching and policy.keep_kv else NoPrefixCache)(
            self._runner.num_blocks,
            config.block_size,
            seed=f"{folder.resolve()} {info.dtype} {info.weights} {self._runner.kv_format}".encode(),
            pin_budget=int(self._runner.num_blocks * config.pin_fraction),
        )
        self._pool = cache.pool
        self._scheduler = Scheduler(
            BlockManager(cache),
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.max_sequences,
            policy=policy,
        )
        self._live: dict[str, _Live] = {}
        self._pending: list[Event] = []
        self._numbers = count(1)
        self._throughput, self._prefill_throughput, self._hit_rate = Throughput(), Throughput(), HitRate()
        self._process = psutil.Process()
        self._stats = self.snapshot()
        self._stats_at = monotonic()

    @property
    def info(self) -> ModelInfo:
        return self._runner.info

    @property
    def has_work(self) -> bool:
        return bool(self._live or self._pending)

    def stats(self) -> EngineStats:
        """The latest snapshot: at most STATS_INTERVAL_S old while the engine runs, exact when it is idle."""
        return self._stats

    def submit(self, request: GenerationRequest, submitted_at: float | None = None) -> str:
        """Queue a request and return its id; its events come from `step`. `submitted_at` is when the user sent
        it (time.monotonic), if that was earlier. Raises InvalidRequest when it can never run."""
        clock = RequestClock(monotonic() if submitted_at is None else submitted_at)
        number = next(self._numbers)
        request_id = request.request_id or f"request-{number}"
        if request_id in self._live:
            raise InvalidRequest(f"request id {request_id!r} is in use")
        prompt = self._build_prompt(request)
        seq = Sequence(
            request_id=request_id,
            tokens=list(prompt.ids),
            max_tokens=request.sampling.max_tokens,
            arrival=number,
            owner=request.owner or request_id,
            priority=request.priority,
            system_tokens=prompt.system_tokens if request.pin_system else 0,
        )
        reply_start = len(prompt.ids) - len(prompt.open_reply)
        live = _Live(
            seq,
            request.sampling,
            clock,
            Detokenizer(self.tokenizer, request.sampling.stop),
            SequenceSampler(request.sampling, prompt.ids[:reply_start], self.tokenizer.eos_ids, self._vocab_size),
            reply_start,
        )
        self._resume(live, prompt.open_reply)
        if not self._live:
            self._throughput.begin()
            self._prefill_throughput.begin()
        self._scheduler.add(seq)
        self._live[request_id] = live
        self._pending.append(
            Accepted(request_id, len(prompt.ids), tuple(prompt.new_token_ids), prompt.divergence, live.detokenizer.text)
        )
        return request_id

    def _resume(self, live: _Live, open_reply: tuple[int, ...]) -> None:
        """Bring a request to where it would be had it generated `open_reply` itself."""
        ended = False
        for token in open_reply:
            live.detokenizer.push(token)
            ended = token in self.tokenizer.eos_ids and not live.params.ignore_eos
        if ended or live.detokenizer.stopped:
            raise InvalidRequest("the reply has come to its end: there is nothing to continue")
        live.sampler.skip(open_reply)

    def _build_prompt(self, request: GenerationRequest) -> Prompt:
        if bool(request.prompt_ids) == bool(request.messages):
            raise InvalidRequest("the prompt is empty" if not request.messages else "give prompt_ids or messages")
        if request.messages:
            prompt = self._prompts.build(request.messages)
        else:
            prompt = Prompt(ids=request.prompt_ids, new_token_ids=request.prompt_ids, divergence=None, system_tokens=0)
            unknown = next((i for i in prompt.ids if not 0 <= i < self._vocab_size), None)
            if unknown is not None:
                raise InvalidRequest(f"token id {unknown} is not in the vocabulary of {self._vocab_size}")
        if len(prompt.ids) >= self.info.context_length:
            raise PromptTooLong(
                f"the prompt has {len(prompt.ids):,} tokens and the context holds {self.info.context_length:,}: "
                "shorten it, or start a new conversation"
            )
        return prompt

    def abort(self, request_id: str) -> None:
        """End a request now; its Finished("aborted") comes from the next step. An unknown id is ignored."""
        if live := self._live.get(request_id):
            self._pending += self._finish(live, "aborted")

    def step(self) -> list[Event]:
        """Schedule, compute and sample once; returns what happened since the last step, in order."""
        events, self._pending = self._pending, []
        batch = self._scheduler.schedule()
        self._note_activities(batch)
        for seq in batch.exhausted:
            events += self._finish(self._live[seq.request_id], "context_full")
        if batch.shares:
            events += self._compute(batch)
        events += self._progress()
        if monotonic() - self._stats_at >= STATS_INTERVAL_S or not self.has_work:
            self._stats, self._stats_at = self.snapshot(), monotonic()
        return events

    def _compute(self, batch: Batch) -> list[Event]:
        self._runner.copy_blocks([(copy.source, copy.destination) for copy in batch.copies])
        finals = [share.sequence for share in batch.shares if share.tokens == share.sequence.uncomputed]
        logits = self._runner.run(
            [
                Chunk(seq.tokens[seq.computed : seq.computed + n], seq.computed, seq.block_table, n == seq.uncomputed)
                for seq, n in batch.shares
            ]
        )
        self._scheduler.complete(batch)
        self._prefill_throughput.add(sum(tokens for _, tokens in batch.shares) - len(finals))
        if not finals:
            return []
        lives = [self._live[seq.request_id] for seq in finals]
        tokens = sample(logits, [live.sampler for live in lives], self._runner.draw)
        self._throughput.add(len(tokens))
        return [event for live, token in zip(lives, tokens, strict=True) for event in self._accept(live, token)]

    def _note_activities(self, batch: Batch) -> None:
        for seq, _ in batch.shares:
            if self._live[seq.request_id].clock.activity == "queued":
                seq.cached_tokens, seq.evicted_tokens = seq.computed, self._scheduler.blocks.evicted_tokens(seq)
                self._hit_rate.add(seq.cached_tokens, seq.prompt_tokens)
        for live in self._live.values():
            live.clock.turn_to(_activity(live.seq))

    def _accept(self, live: _Live, token: int) -> list[Event]:
        """A sampled token joins its sequence, and may end it."""
        seq = live.seq
        seq.tokens.append(token)
        live.clock.note_token()
        delta = TokenDelta(seq.request_id, live.detokenizer.push(token), (token,))
        reason: FinishReason | None = None
        if live.detokenizer.stopped or (token in self.tokenizer.eos_ids and not live.params.ignore_eos):
            reason = "stop"
        elif seq.generated >= seq.max_tokens:
            reason = "length"
        elif len(seq.tokens) >= self.info.context_length:
            reason = "context_full"
        return [delta] if reason is None else [delta, *self._finish(live, reason)]

    def _finish(self, live: _Live, reason: FinishReason) -> list[Event]:
        seq = live.seq
        rest = live.detokenizer.finish()
        if reason in ("aborted", "context_full"):  # any other ended with its last token
            live.clock.tick()
        self._scheduler.remove(seq)
        del self._live[seq.request_id]
        finished = Finished(
            seq.request_id,
            reason,
            live.detokenizer.text,
            tuple(seq.tokens[live.reply_start :]),
            live.clock.metrics(seq),
        )
        return [TokenDelta(seq.request_id, rest, ()), finished] if rest else [finished]

    def _progress(self) -> list[Event]:
        """Where each request stands, for those where that is news."""
        events: list[Event] = []
        now = monotonic()
        for live in self._live.values():
            seq = live.seq
            standing = (seq.phase, min(seq.computed, seq.prompt_tokens), seq.waiting_for)
            if standing != live.reported or now - live.reported_at >= PROGRESS_INTERVAL_S:
                live.reported, live.reported_at = standing, now
                live.clock.tick()
                events.append(
                    Progress(seq.request_id, seq.phase, standing[1], live.clock.metrics(seq), seq.waiting_for)
                )
        return events

    def snapshot(self) -> EngineStats:
        """The state now, taken between two steps."""
        running = self._scheduler.running
        codes, owners = block_map(self._pool, running)
        return EngineStats(
            running=len(running),
            waiting=len(self._scheduler.waiting),
            max_sequences=self._scheduler.max_sequences,
            tokens_per_s=self._throughput.per_second(),
            prefill_tokens_per_s=self._prefill_throughput.per_second(),
            hit_rate=self._hit_rate.ratio(),
            preemptions=self._scheduler.preemptions,
            rss_bytes=self._process.memory_info().rss,
            pool=pool_stats(self._pool, running, self.config.block_size, self._runner.block_bytes),
            block_map=codes,
            owners=owners,
        )

    def generate(self, requests: Iterable[GenerationRequest]) -> list[Finished]:
        """Run requests to their end, all in one batch as far as memory allows; results in the order given.
        Raises EngineError when one of them fails."""
        ids = [self.submit(request) for request in requests]
        results: dict[str, Finished] = {}
        while len(results) < len(ids):
            for event in self.step():
                if isinstance(event, Finished):
                    results[event.request_id] = event
                elif isinstance(event, Failed):
                    raise EngineError(event.error)
        return [results[request_id] for request_id in ids]

    def check_integrity(self) -> None:
        """Raises EngineError when a block leaked or is counted wrongly."""
        self._scheduler.check_integrity()


def _activity(seq: Sequence) -> Activity:
    """What the next step does for a sequence."""
    if not seq.block_table:
        return "preempted" if seq.preemptions or seq.generated else "queued"
    if seq.computed < seq.lost:
        return "preempted"
    return "decode" if seq.generated else "prefill"
