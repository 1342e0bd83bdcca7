"""What a KV cache takes: arithmetic over a model's shape, nothing is loaded.

Bytes of a token = layers x KV heads x (bytes of a head's key + bytes of its value); of a pool: times tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv_cache import token_bytes
from engine.model.config import ModelConfig
from kernels.kv_format import KVFormat

TABLE = ((1024, 8), (2048, 8), (4096, 16), (8192, 16))
"""(tokens of context, conversations) of the usual planning table."""


@dataclass(frozen=True, slots=True)
class Need:
    context: int
    """Tokens of each conversation."""
    conversations: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    token_bytes: int
    """Of one token's keys and values in all layers."""
    need: Need
    """What was asked for."""
    table: tuple[Need, ...]
    pool_bytes: int
    fitting: int
    """Conversations of the context asked for that the pool holds at once, each in whole blocks."""


def plan(
    model: ModelConfig, format: KVFormat, context: int, conversations: int, pool_bytes: int, block_size: int
) -> MemoryPlan:
    """What `conversations` of `context` tokens each need, and how many of them fit into `pool_bytes`."""
    per_token = token_bytes(model, format)

    def need(context: int, conversations: int) -> Need:
        blocks = -(-context // block_size)
        return Need(context, conversations, blocks * block_size * per_token * conversations)

    return MemoryPlan(
        token_bytes=per_token,
        need=need(context, conversations),
        table=tuple(need(*row) for row in TABLE),
        pool_bytes=pool_bytes,
        fitting=pool_bytes // need(context, 1).kv_bytes,
    )
