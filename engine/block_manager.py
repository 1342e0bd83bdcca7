"""Block tables of sequences: what they share, copy, grow into and give back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from engine.errors import EngineError
from engine.prefix_cache import Match, PrefixCache
from engine.sequence import Sequence


class Copy(NamedTuple):
    """A block of KV to copy before the step computes, in the order given; its first rows are what is wanted."""

    source: int
    destination: int
    rows: int


class BlockManager:
    """The verbs a scheduler needs, over one prefix cache and its pool."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self.pool = cache.pool
        self.block_size = cache.block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def missing_blocks(self, match: Match, room: int) -> int:
        """How many of the available blocks admitting a sequence with `room` tokens would use up."""
        revived = sum(self.pool.references(block) == 0 for block in match.blocks)
        return self.blocks_for(room) - len(match.blocks) + revived

    def admit(self, seq: Sequence, match: Match, room: int) -> list[Copy]:
        """Give `seq` blocks for `room` tokens, its own at least, reusing what `match` found. Returns the rows to copy
        first."""
        for block in match.blocks:
            self.pool.acquire(block)
        if match.copy_from is not None:
            self.pool.touch(match.copy_from)
        fresh = self.pool.allocate(self.blocks_for(room) - len(match.blocks))
        seq.block_table = match.blocks + fresh
        seq.digests = self.cache.digests(match.blocks)
        seq.computed = len(match.blocks) * self.block_size + match.copy_rows
        if match.copy_from is None:
            return []
        return [Copy(match.copy_from, fresh[0], match.copy_rows)]

    def evicted_tokens(self, seq: Sequence) -> int:
        """How many tokens behind what an admitted `seq` found computed were evicted before it came."""
        start = len(seq.digests) * self.block_size
        return max(0, start + self.cache.evicted_tokens(self._parent(seq), seq.tokens[start:]) - seq.computed)

    def is_being_computed(self, seq: Sequence, match: Match, other: Sequence) -> bool:
        """Whether `other` is about to compute the very block that `seq` would have to compute next."""
        shared = len(match.blocks)
        start, end = shared * self.block_size, (shared + 1) * self.block_size
        return (
            self.cache.enabled
            and other.computed < end < min(len(seq.tokens), len(other.tokens) + 1)
            and other.block_table[:shared] == match.blocks
            and other.tokens[start:end] == seq.tokens[start:end]
        )

    def can_grow(self, seq: Sequence) -> bool:
        return self._is_covered(seq) or self.pool.available > 0

    def grow(self, seq: Sequence) -> None:
        """Make sure that the last token of `seq` has a row to go to."""
        if not self._is_covered(seq):
            seq.block_table += self.pool.allocate(1)

    def _is_covered(self, seq: Sequence) -> bool:
        return len(seq.tokens) <= len(seq.block_table) * self.block_size

    def commit(self, seq: Sequence, tokens: int) -> None:
        """The KV of the next `tokens` tokens is computed: register the blocks that became full."""
        seq.computed += tokens
        for index in range(len(seq.digests), seq.computed // self.block_size):
            start = index * self.block_size
            digest, seq.block_table[index] = self.cache.insert(
                self._parent(seq), seq.tokens[start : start + self.block_size], seq.block_table[index]
            )
            seq.digests.append(digest)
        if 0 < seq.system_tokens <= seq.computed:
            self.cache.pin(seq.tokens[: seq.system_tokens])
            seq.system_tokens = 0

    def release(self, seq: Sequence) -> None:
        """Take all blocks back, tail first; computed ones stay cached."""
        if tail := seq.computed % self.block_size:
            start = seq.computed - tail
            self.cache.insert_tail(
                self._parent(seq), seq.tokens[start : seq.computed], seq.block_table[start // self.block_size]
            )
        for block in reversed(seq.block_table):
            self.pool.release(block)
        seq.block_table, seq.digests, seq.computed = [], [], 0

    def _parent(self, seq: Sequence) -> bytes:
        return seq.digests[-1] if seq.digests else self.cache.root

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raises EngineError when reference counts differ from the block tables, or pool and index disagree."""
        held = Counter(block for seq in sequences for block in seq.block_table)
        for block in range(self.pool.num_blocks):
            if (count := self.pool.references(block)) != held[block]:
                raise EngineError(f"KV block {block} has {count} references and is in {held[block]} block tables")
        self.cache.check_integrity()
