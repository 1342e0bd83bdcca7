"""Who uses which block of KV memory: reference counts, and what to give away first when memory runs short."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.errors import EngineError


class PoolExhausted(EngineError):
    """More blocks were asked for than `available` promised: a bug in the caller, never a user's mistake."""


class BlockPool:
    """A fixed number of blocks, each in one of three states.

        used    reference count > 0: in the block table of that many sequences
        cached  no references, but its content is retained for reuse; given away when memory is needed
        free    no references, nothing worth keeping

    Cached blocks are given away least recently used first, pinned ones after all others. Every operation is
    O(1) per block. `on_evict(block)` is called before a cached block is given away.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        self.num_blocks = num_blocks
        self._on_evict = on_evict
        self._references = [0] * num_blocks
        self._retained = bytearray(num_blocks)
        self._pinned = bytearray(num_blocks)
        # Popped from the end: a fresh pool hands out ascending runs, which attention reads without gathering.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._cached_pinned: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that `allocate` can hand out now."""
        return len(self._free) + self.num_cached

    @property
    def num_cached(self) -> int:
        return len(self._cached) + len(self._cached_pinned)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.available

    def references(self, block: int) -> int:
        return self._references[block]

    def pinned(self, block: int) -> bool:
        return bool(self._pinned[block])

    def cached_blocks(self) -> list[int]:
        """Cached blocks in the order in which they would be given away."""
        return [*self._cached, *self._cached_pinned]

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks with one reference each, in ascending order. Raises PoolExhausted."""
        if count > self.available:
            raise PoolExhausted(f"{count} KV blocks wanted, {self.available} of {self.num_blocks} available")
        blocks = sorted(self._take() for _ in range(count))
        for block in blocks:
            self._references[block] = 1
        return blocks

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        block, _ = (self._cached or self._cached_pinned).popitem(last=False)
        self._on_evict(block)
        self._retained[block] = self._pinned[block] = False
        return block

    def acquire(self, block: int) -> None:
        """Add a reference to a used or cached block."""
        if self._references[block] == 0:
            del self._lru(block)[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference. The last one leaves the block cached (most recently used) if retained, else free."""
        if self._references[block] == 0:
            raise EngineError(f"KV block {block} released twice")
        self._references[block] -= 1
        if self._references[block] == 0:
            if self._retained[block]:
                self._lru(block)[block] = None
            else:
                self._free.append(block)

    def touch(self, block: int) -> None:
        """Make a cached block the most recently used one."""
        if self._references[block] == 0:
            self._lru(block).move_to_end(block)

    def retain(self, block: int) -> None:
        """Keep the content of a used block when its last reference goes."""
        self._retained[block] = True

    def discard(self, block: int) -> None:
        """Forget the content of a block; a cached one becomes free."""
        if self._references[block] == 0:
            del self._lru(block)[block]
            self._free.append(block)
        self._retained[block] = self._pinned[block] = False

    def set_pinned(self, block: int, pinned: bool) -> None:
        """Pinned blocks are given away only when no other cached block is left."""
        if self._references[block] == 0:
            del self._lru(block)[block]
        self._pinned[block] = pinned
        if self._references[block] == 0:
            self._lru(block)[block] = None

    def _lru(self, block: int) -> OrderedDict[int, None]:
        return self._cached_pinned if self._pinned[block] else self._cached

    def check_integrity(self) -> None:
        """Raises EngineError when a block is in two states, in none, or counted wrongly."""
        free, cached = set(self._free), set(self.cached_blocks())
        used = {block for block, count in enumerate(self._references) if count}
        if len(self._free) + self.num_cached + len(used) != self.num_blocks or free | cached | used != set(
            range(self.num_blocks)
        ):
            raise EngineError(
                f"KV blocks leaked or doubled: {len(free)} free, {len(cached)} cached, "
                f"{len(used)} used of {self.num_blocks}"
            )
        if lost := [block for block in cached if not self._retained[block]]:
            raise EngineError(f"cached KV blocks without content: {lost}")
        if stale := [block for block in free if self._retained[block] or self._pinned[block]]:
            raise EngineError(f"free KV blocks still retained or pinned: {stale}")
