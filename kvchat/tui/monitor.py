"""What is known of the engine and the interface at a moment, gathered for the panel."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.api import EngineState, EngineStats, Metrics
from kvchat.conversation import ConversationController
from kvchat.personas import Persona
from kvchat.tui.format import printable
from kvchat.tui.responsiveness import Gauge
from kvchat.tui.widgets.panel import Vitals

SPEED_SAMPLES = 120
REPLIES = 12
LEAST_PREFILL = 64
"""Tokens under which a step costs what it costs for one."""


class Monitor:
    """Keeps the engine's last state and numbers, and how fast it was lately."""

    def __init__(self) -> None:
        self.gauge = Gauge()
        self._engine = EngineState("loading")
        self._stats = EngineStats()
        self._speeds: deque[float] = deque(maxlen=SPEED_SAMPLES)
        self._ttfts: deque[float] = deque(maxlen=REPLIES)
        self._tpots: deque[float] = deque(maxlen=REPLIES)
        self._prefills: deque[tuple[int, float]] = deque(maxlen=REPLIES)
        """Tokens that were not cached, and the seconds that they took."""

    def engine_changed(self, engine: EngineState) -> None:
        self._engine = engine
        if engine.state != "ready":
            self._stats = EngineStats()

    def replied(self, metrics: Metrics) -> None:
        """A reply ended."""
        if metrics.ttft_s is not None:
            self._ttfts.append(metrics.ttft_s)
        if metrics.tpot_s is not None:
            self._tpots.append(metrics.tpot_s)
        computed = metrics.prompt_tokens - metrics.cached_tokens
        if metrics.ttft_s is not None and computed >= LEAST_PREFILL:
            self._prefills.append((computed, metrics.ttft_s - metrics.queue_s))

    def stats_changed(self, stats: EngineStats) -> bool:
        """There is a new snapshot; whether it differs in more than numbers that always move."""
        before, self._stats = self._stats, stats
        return (stats.running, stats.waiting) != (before.running, before.waiting)

    @property
    def prefill_tokens_per_s(self) -> float:
        """Of the last replies, by their time to the first token; 0 before any. The engine's own figure counts the time
        of decodes, too."""
        seconds = sum(seconds for _, seconds in self._prefills)
        return sum(tokens for tokens, _ in self._prefills) / seconds if seconds > 0 else 0.0

    @property
    def context_length(self) -> int:
        """Tokens the loaded model's context holds; 0 while none is loaded."""
        return self._engine.model.context_length if self._engine.model else 0

    def vitals(
        self,
        tab: ConversationController,
        persona: Persona | None,
        tabs: Sequence[ConversationController],
        debug: bool,
    ) -> Vitals:
        """Everything about the engine and one of the `tabs`, with `debug` about the interface too. Each call takes a
        sample of the speed."""
        titles = {each.id: printable(each.title) or "New chat" for each in tabs}
        replies = [(each.id, each.reply) for each in tabs if each.reply]
        if self._stats.running:
            self._speeds.append(self._stats.tokens_per_s)
        return Vitals(
            stats=self._stats,
            model=self._engine.model,
            conversation_id=tab.id,
            persona=persona.title or persona.name if persona else tab.conversation.persona,
            metrics=tab.metrics,
            context_tokens=tab.context_tokens,
            speeds=list(self._speeds),
            ttfts=list(self._ttfts),
            tpots=list(self._tpots),
            owner_names=[titles.get(owner, "another conversation") for owner in self._stats.owners],
            waiting=[(titles[name], reply.reason) for name, reply in replies if reply.phase == "queued"],
            responsiveness=self.gauge.read() if debug else None,
        )
