"""What a KV cache takes: arithmetic over a model's shape, nothing is loaded.

Bytes of a token = layers x KV heads x (bytes of a head's key + bytes of its value); of a pool: times tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv_cache import token_bytes
from engine.model.config import ModelConfig
from kernels.kv_format import KVFormat
from kvchat.profiles import ProfileName

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


LONG = 0.25
"""Of the weights that a step reads: where the keys and values of one conversation are so many, they lengthen a step."""


def advise(
    kv_bytes: int, conversations: int, weight_bytes: int, pool_bytes: int, packed: bool = False
) -> tuple[ProfileName, str]:
    """The profile for `conversations` that have `kv_bytes` of keys and values each, and why. `packed`: those have 8
    bits or fewer."""
    share = f"the keys and values of a conversation are {kv_bytes / weight_bytes:.0%} of the weights that a step reads"
    relief = "few at a time share it" if packed else "8 bits take half"
    if kv_bytes < LONG * weight_bytes:
        return "chat", f"{share}, and hardly lengthen it: what counts is how conversations share it"
    if kv_bytes > pool_bytes:
        return "documents", f"{share}, and the pool does not hold them: {relief}"
    if conversations * kv_bytes > pool_bytes:
        held = pool_bytes // kv_bytes
        return "documents", f"{share}, and {conversations:,} contend for a pool that holds {held:,}: {relief}"
    if conversations > 1:
        return "chat", f"{share}, and the pool holds all {conversations:,}: what counts is how they share a step"
    return "writer", f"{share}, and there is one conversation: the whole pool is for it, and nothing is rounded"
