"""Clocks and counters behind TTFT, TPOT, throughput and hit rate. One monotonic clock, in seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, get_args

from engine.api import Metrics
from engine.sequence import Sequence

WINDOW_S = 5.0
RECENT_REQUESTS = 50


Activity = Literal["queued", "prefill", "decode", "preempted"]
"""What the time of a request goes to; all of it goes to one of them."""


@dataclass(slots=True)
class RequestClock:
    """What a request spent its time on since it was submitted, and when it gave its first and last token."""

    submitted: float
    first_token: float | None = None
    last_token: float | None = None
    activity: Activity = "queued"
    _until: float = field(init=False)
    """Up to when the time is accounted for."""
    _spent: dict[Activity, float] = field(default_factory=lambda: dict.fromkeys(get_args(Activity), 0.0))

    def __post_init__(self) -> None:
        self._until = self.submitted

    def tick(self) -> None:
        """Account for the time until now."""
        now = monotonic()
        self._spent[self.activity] += now - self._until
        self._until = now

    def turn_to(self, activity: Activity) -> None:
        """From now on the time goes to this."""
        if activity != self.activity:
            self.tick()
            self.activity = activity

    def note_token(self) -> None:
        self.tick()
        self.activity = "decode"
        self.last_token = self._until
        if self.first_token is None:
            self.first_token = self.last_token

    def metrics(self, seq: Sequence) -> Metrics:
        """As of the last tick."""
        ttft = tpot = None
        if self.first_token is not None and self.last_token is not None:
            ttft = self.first_token - self.submitted
            if seq.generated > 1:
                tpot = (self.last_token - self.first_token) / (seq.generated - 1)
        return Metrics(
            queue_s=self._spent["queued"],
            ttft_s=ttft,
            tpot_s=tpot,
            prefill_s=self._spent["prefill"],
            decode_s=self._spent["decode"],
            preempted_s=self._spent["preempted"],
            e2e_s=self._until - self.submitted,
            tokens_per_s=1 / tpot if tpot else None,
            prompt_tokens=seq.prompt_tokens,
            cached_tokens=seq.cached_tokens,
            evicted_tokens=seq.evicted_tokens,
            completion_tokens=seq.generated,
            preemptions=seq.preemptions,
        )


class Throughput:
    """Tokens per second over the last WINDOW_S seconds of work."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._started = monotonic()

    def begin(self) -> None:
        """Work begins after a pause, which does not count."""
        self._counts.clear()
        self._started = monotonic()

    def add(self, tokens: int) -> None:
        self._counts.append((monotonic(), tokens))

    def per_second(self) -> float:
        now = monotonic()
        while self._counts and self._counts[0][0] < now - WINDOW_S:
            self._counts.popleft()
        elapsed = min(WINDOW_S, now - self._started)
        return sum(tokens for _, tokens in self._counts) / elapsed if elapsed > 0 else 0.0


class HitRate:
    """Cached share of the prompt tokens of the last RECENT_REQUESTS requests, 0 to 1."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_REQUESTS)

    def add(self, cached: int, prompt: int) -> None:
        self._recent.append((cached, prompt))

    def ratio(self) -> float:
        prompt = sum(prompt for _, prompt in self._recent)
        return sum(cached for cached, _ in self._recent) / prompt if prompt else 0.0
