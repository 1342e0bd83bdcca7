"""The snapshot of the pool that the panel draws."""

from __future__ import annotations

from engine.api import BLOCK_CACHED, BLOCK_OWNED, BLOCK_SHARED, PoolStats
from engine.block_pool import BlockPool
from engine.sequence import Sequence

MAX_OWNERS = 256 - BLOCK_OWNED


def pool_stats(pool: BlockPool, sequences: list[Sequence], block_size: int, block_bytes: int) -> PoolStats:
    shared = {block for seq in sequences for block in seq.block_table if pool.references(block) > 1}
    held = sum(min(len(seq.tokens), len(seq.block_table) * block_size) for seq in sequences)
    return PoolStats(
        total=pool.num_blocks,
        used=pool.num_used,
        shared=len(shared),
        cached=pool.num_cached,
        free=pool.num_free,
        block_size=block_size,
        block_bytes=block_bytes,
        # A shared block is full, and counted with each of its sequences.
        tokens=held - block_size * sum(pool.references(block) - 1 for block in shared),
    )


def block_map(pool: BlockPool, sequences: list[Sequence]) -> tuple[bytes, tuple[str, ...]]:
    """One code per block, and the owners that the codes from BLOCK_OWNED on stand for."""
    codes = bytearray(pool.num_blocks)
    for block in pool.cached_blocks():
        codes[block] = BLOCK_CACHED
    owners: dict[str, int] = {}
    for seq in sequences:
        owner = min(owners.setdefault(seq.owner, len(owners)), MAX_OWNERS - 1)
        for block in seq.block_table:
            codes[block] = BLOCK_SHARED if pool.references(block) > 1 else BLOCK_OWNED + owner
    return bytes(codes), tuple(owners)[:MAX_OWNERS]
