"""Finds KV that was computed before: blocks by the chained hash of the tokens up to and including them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from engine.block_pool import BlockPool
from engine.errors import EngineError

GHOSTS = 2
"""How many evicted blocks are remembered for each one that the pool has."""


class Match(NamedTuple):
    """What the cache has of a prompt: whole blocks to share, then rows to copy out of one more block."""

    blocks: list[int] = []
    copy_from: int | None = None
    copy_rows: int = 0


@dataclass(slots=True)
class _Entry:
    parent: bytes
    tokens: tuple[int, ...]
    digest: bytes | None
    """None for a block that is not full: nothing continues it."""


class PrefixCache:
    """An index of retained blocks.

    A full block is known by digest = BLAKE2b(parent digest, its tokens), so a hit means the same tokens all the
    way from the start, and no other prompt's KV can be served short of a collision of a cryptographic hash.
    Every block is also listed under its parent, where a prompt that leaves a chain in mid-block finds the block
    sharing most of its next tokens; those rows are copied (copy-on-write), never shared.

    One digest has one block: whoever computes the same block again swaps to the one that is known (`insert`), so
    holding a block implies holding the whole chain before it. Sequences release their tail first; together this
    makes the pool's LRU order evict the tail of a chain before its head.
    """

    enabled = True

    def __init__(self, pool_size: int, block_size: int, seed: bytes, pin_budget: int = 0) -> None:
        self.pool = BlockPool(pool_size, on_evict=self._evict)
        self.block_size = block_size
        self.root = blake2b(seed, digest_size=16).digest()
        self.pin_budget = pin_budget
        self._by_digest: dict[bytes, int] = {}
        self._entries: dict[int, _Entry] = {}
        self._children: dict[bytes, list[int]] = {}
        self._pins: OrderedDict[bytes, list[int]] = OrderedDict()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        """Digests of full blocks that were given away, the latest last."""

    def digest(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return blake2b(parent + array("i", tokens).tobytes(), digest_size=16).digest()

    def match(self, tokens: Sequence[int]) -> Match:
        """The longest cached prefix of `tokens`, at most all but the last: its logits must be computed."""
        usable = len(tokens) - 1
        blocks: list[int] = []
        parent = self.root
        while (end := (len(blocks) + 1) * self.block_size) <= usable:
            digest = self.digest(parent, tokens[end - self.block_size : end])
            if (block := self._by_digest.get(digest)) is None:
                break
            blocks.append(block)
            parent = digest
        start = len(blocks) * self.block_size
        wanted = tuple(tokens[start : min(start + self.block_size, usable)])
        best, rows = None, 0
        for child in self._children.get(parent, ()):
            if (common := _common_prefix(self._entries[child].tokens, wanted)) > rows:
                best, rows = child, common
        return Match(blocks, best, rows)

    def evicted_tokens(self, parent: bytes, tokens: Sequence[int]) -> int:
        """How many of `tokens`, which continue a chain, stood in full blocks that were evicted."""
        end = 0
        while end + self.block_size <= len(tokens):
            parent = self.digest(parent, tokens[end : end + self.block_size])
            if parent not in self._evicted:
                break
            end += self.block_size
        return end

    def digests(self, blocks: Iterable[int]) -> list[bytes]:
        """The digests of matched blocks."""
        return [digest for block in blocks if (digest := self._entries[block].digest) is not None]

    def insert(self, parent: bytes, tokens: Sequence[int], block: int) -> tuple[bytes, int]:
        """Register a full, computed, used block. Returns its digest and the block to use for it from now on: the
        caller's, or the one already known, whose reference then replaces the caller's."""
        digest = self.digest(parent, tokens)
        known = self._by_digest.get(digest)
        if known is not None and known != block:
            self.pool.acquire(known)
            self.pool.release(block)
            return digest, known
        if known is None:
            self._evicted.pop(digest, None)
            self._drop_covered(parent, tuple(tokens))
            self._by_digest[digest] = block
            self._add(block, _Entry(parent, tuple(tokens), digest))
        return digest, block

    def insert_tail(self, parent: bytes, tokens: Sequence[int], block: int) -> None:
        """Register a used block of which only the first len(tokens) rows are computed, unless what it holds is
        known already."""
        entry = _Entry(parent, tuple(tokens), None)
        children = self._children.get(parent, ())
        if any(_common_prefix(self._entries[child].tokens, entry.tokens) == len(tokens) for child in children):
            return
        self._drop_covered(parent, entry.tokens)
        self._add(block, entry)

    def pin(self, tokens: Sequence[int]) -> None:
        """Keep the cached full blocks at the start of `tokens` longer than any other, as the budget allows; the
        pin least recently asked for gives way."""
        blocks = self.match([*tokens, 0]).blocks
        if not blocks or len(blocks) > self.pin_budget:
            return
        digest = self.digests(blocks)[-1]
        self._pins[digest] = blocks
        self._pins.move_to_end(digest)
        while len(self._pinned_blocks()) > self.pin_budget:
            _, oldest = self._pins.popitem(last=False)
            kept = self._pinned_blocks()
            self._set_pinned([block for block in oldest if block not in kept], False)
        self._set_pinned(blocks, True)

    def _pinned_blocks(self) -> set[int]:
        return {block for pin in self._pins.values() for block in pin}

    def _set_pinned(self, chain: list[int], pinned: bool) -> None:
        for block in reversed(chain):  # the tail first, so that it is also evicted first
            self.pool.set_pinned(block, pinned)

    def _add(self, block: int, entry: _Entry) -> None:
        self._entries[block] = entry
        self._children.setdefault(entry.parent, []).append(block)
        self.pool.retain(block)

    def _drop_covered(self, parent: bytes, tokens: tuple[int, ...]) -> None:
        """Free cached partial blocks whose rows are all in the block about to be added."""
        for child in list(self._children.get(parent, ())):
            entry = self._entries[child]
            if entry.digest is None and _common_prefix(entry.tokens, tokens) == len(entry.tokens):
                self._forget(child)
                self.pool.discard(child)

    def _evict(self, block: int) -> None:
        if digest := self._entries[block].digest:
            self._evicted[digest] = None
            if len(self._evicted) > GHOSTS * self.pool.num_blocks:
                self._evicted.popitem(last=False)
        self._forget(block)

    def _forget(self, block: int) -> None:
        if self.pool.pinned(block):
            self._pins = OrderedDict(
                (digest, left) for digest, pin in self._pins.items() if (left := [b for b in pin if b != block])
            )
        entry = self._entries.pop(block)
        siblings = self._children[entry.parent]
        siblings.remove(block)
        if not siblings:
            del self._children[entry.parent]
        if entry.digest is not None:
            del self._by_digest[entry.digest]

    def check_integrity(self) -> None:
        """Raises EngineError when the index and the pool disagree, or a chain could lose its head before its tail."""
        self.pool.check_integrity()
        order = {block: rank for rank, block in enumerate(self.pool.cached_blocks())}
        for block, entry in self._entries.items():
            if block not in self._children[entry.parent]:
                raise EngineError(f"KV block {block} is not listed under its parent")
            if entry.parent == self.root:
                continue
            head = self._by_digest.get(entry.parent)
            if head is None:
                raise EngineError(f"KV block {block} cannot be reached: the block before it is gone")
            if self.pool.references(head) == 0 and (self.pool.references(block) or order[head] < order[block]):
                raise EngineError(f"KV block {head} would be evicted before block {block}, which continues it")
        if unknown := [block for block in order if block not in self._entries]:
            raise EngineError(f"cached KV blocks that the index does not know: {unknown}")


class NoPrefixCache(PrefixCache):
    """The same pool without reuse, to compare against."""

    enabled = False

    def match(self, tokens: Sequence[int]) -> Match:
        return Match()

    def digests(self, blocks: Iterable[int]) -> list[bytes]:
        """The digests of matched blocks."""
        return [digest for block in blocks if (digest := self._entries[block].digest) is not None]

    def insert(self, parent: bytes, tokens: Sequence[int], block: int) -> tuple[bytes, int]:
        return parent, block

    def insert_tail(self, parent: bytes, tokens: Sequence[int], block: int) -> None:
        pass

    def pin(self, tokens: Sequence[int]) -> None:
        pass


def _common_prefix(a: Iterable[int], b: Iterable[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
