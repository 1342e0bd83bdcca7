"""Decides what the next step computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.block_manager import BlockManager, Copy
from engine.errors import PromptTooLong
from engine.policy import Policy
from engine.prefix_cache import Match
from engine.sequence import Sequence

MAX_OVERTAKEN = 4
"""After this many later requests went first, a waiting one goes before any priority."""


class Share(NamedTuple):
    """The next `tokens` uncomputed tokens of one sequence."""

    sequence: Sequence
    tokens: int


@dataclass(slots=True)
class Batch:
    """One step: copy rows, then compute every share."""

    shares: list[Share] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    exhausted: list[Sequence] = field(default_factory=list)
    """Sequences that fill the whole pool and cannot go on."""


class Scheduler:
    """Continuous batching under a fixed number of KV blocks, or what the policy makes of it.

    A sequence waits until its whole prompt fits beside what runs, then runs until it finishes. When a decode
    finds no block, the least important sequence gives all its blocks back and waits again; what it computed
    stays cached as long as memory lasts. `max_batch_tokens` must exceed `max_sequences`.
    """

    def __init__(
        self, blocks: BlockManager, *, max_batch_tokens: int, max_sequences: int, policy: Policy | None = None
    ) -> None:
        self.blocks = blocks
        self.policy = policy or Policy()
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.preemptions = 0

    def add(self, seq: Sequence) -> None:
        """Queue a sequence. Raises InvalidRequest when it could never run."""
        room = max(len(seq.tokens) + 1, self.policy.reserve)
        if not self._fits(room):
            needed, total = self.blocks.blocks_for(room), self.blocks.pool.num_blocks
            raise PromptTooLong(
                f"the prompt of {len(seq.tokens):,} tokens needs {needed:,} KV blocks and the pool has {total:,}: "
                "shorten it, or raise kv_memory"
            )
        self.waiting.append(seq)

    def schedule(self) -> Batch:
        """All decodes first, then prefill chunks with what is left of `max_batch_tokens`."""
        batch = Batch()
        closed = self.policy.static_batches and bool(self.running)
        decodes = self._grow_decodes(batch)
        if closed:
            self._wait_for_all()
        else:
            self._admit(batch)
        batch.shares = [Share(seq, 1) for seq in decodes]
        budget = self.max_batch_tokens - len(decodes)
        # Equal shares, the shortest first: a question never waits for the whole of a long paste.
        stepping = [*decodes, *batch.exhausted]
        prefills = sorted((seq for seq in self.running if seq not in stepping), key=lambda seq: seq.uncomputed)
        for position, seq in enumerate(prefills):
            tokens = min(seq.uncomputed, budget // (len(prefills) - position))
            batch.shares.append(Share(seq, tokens))
            budget -= tokens
        return batch

    def _grow_decodes(self, batch: Batch) -> list[Sequence]:
        """The decoding sequences that have a row for their next token, most important first."""
        decodes: list[Sequence] = []
        for seq in sorted((seq for seq in self.running if seq.decoding), key=_importance):
            while seq.block_table and not self.blocks.can_grow(seq):
                if len(self.running) == 1:
                    batch.exhausted.append(seq)
                    return []
                self._preempt(max(self.running, key=_importance))
            if seq.block_table:
                self.blocks.grow(seq)
                decodes.append(seq)
        return decodes

    def _preempt(self, seq: Sequence) -> None:
        seq.lost = max(seq.lost, seq.computed)
        self._requeue(seq)
        seq.preemptions += 1
        self.preemptions += 1

    def _requeue(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.blocks.release(seq)
        self.waiting.append(seq)

    def _wait_for_all(self) -> None:
        for seq in self.waiting:
            seq.waiting_for = "the whole batch that runs to end"

    def _admit(self, batch: Batch) -> None:
        for seq in sorted(self.waiting, key=_queue_rank):
            match = self.blocks.cache.match(seq.tokens)
            if any(self.blocks.is_being_computed(seq, match, other) for other in self.running):
                seq.waiting_for = "the prefix it shares with a prompt being computed"
                continue
            if obstacle := self._obstacle(seq, match):
                for blocked in self.waiting:
                    blocked.waiting_for = "its turn"
                seq.waiting_for = obstacle
                return
            batch.copies += self.blocks.admit(seq, match, self._room(seq))
            seq.waiting_for = ""
            self.waiting.remove(seq)
            self.running.append(seq)
            for other in self.waiting:
                other.overtaken += other.arrival < seq.arrival

    def _obstacle(self, seq: Sequence, match: Match) -> str:
        """Why `seq` cannot run now, or nothing."""
        if not self.running:
            return ""
        if len(self.running) >= self.max_sequences:
            return f"one of {self.max_sequences} running sequences to finish"
        watermark = 0
        if not self.policy.reserve:
            # Head room, so that what runs does not need a preemption at once; more for a sequence that was preempted.
            watermark = max(len(self.running), self.blocks.pool.num_blocks // 100) * (1 + seq.preemptions)
        missing = self.blocks.missing_blocks(match, self._room(seq))
        needed, available = missing + watermark, self.blocks.pool.available
        return f"{needed:,} KV blocks, {available:,} available" if needed > available else ""

    def _fits(self, tokens: int) -> bool:
        """Whether the whole pool holds so many tokens."""
        return self.blocks.blocks_for(tokens) <= self.blocks.pool.num_blocks

    def _room(self, seq: Sequence) -> int:
        """Tokens that it gets blocks for when it is admitted."""
        return max(len(seq.tokens), self.policy.reserve)

    def complete(self, batch: Batch) -> None:
        """The step is computed: account for its KV."""
        for seq, tokens in batch.shares:
            self.blocks.commit(seq, tokens)
            # One that fills the pool stays, and then ends as exhausted.
            if not self.policy.keep_kv and not seq.uncomputed and self._fits(len(seq.tokens) + 1):
                self._requeue(seq)

    def remove(self, seq: Sequence) -> None:
        """A sequence ended, for whatever reason: take its blocks back."""
        (self.running if seq in self.running else self.waiting).remove(seq)
        self.blocks.release(seq)

    def check_integrity(self) -> None:
        """Raises EngineError when blocks leaked, are counted wrongly or held by a waiting sequence."""
        self.blocks.check_integrity(self.running + self.waiting)


def _importance(seq: Sequence) -> tuple[int, int]:
    """Lower is more important: gets blocks first, is preempted last."""
    return -seq.priority, seq.arrival


def _queue_rank(seq: Sequence) -> tuple[bool, int, int]:
    return seq.overtaken < MAX_OVERTAKEN, *_importance(seq)
