"""What the store hands out: frozen snapshots of rows. Times are seconds since the epoch, UTC."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from sqlite3 import Row
from typing import Literal

import msgspec

from engine.api import Divergence, FinishReason, Metrics, SamplingParams

Role = Literal["system", "user", "assistant"]
Status = Literal["complete", "streaming", "stopped", "failed"]
"""streaming: being written by a live instance; stopped: ended early with the text so far, by the user or by a crash."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: its settings, and which of its branches is shown."""

    id: str
    """A uuid."""
    title: str
    auto_title: bool
    """Nobody named it: the program may title it."""
    persona: str
    system_prompt: str
    model: str
    sampling: SamplingParams
    created_at: float
    updated_at: float
    """When a message was last added."""
    archived: bool
    leaf_id: int | None
    """The last message of the branch that is shown; None before the first message."""
    tags: tuple[str, ...]


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a conversation's message tree."""

    id: int
    conversation_id: str
    parent_id: int | None
    """None for a root; a conversation has several when its first message was edited."""
    role: Role
    text: str
    token_ids: tuple[int, ...]
    """What the engine saw or produced, see engine.api.Message; they belong to the tokenizer of `model`."""
    status: Status
    finish_reason: FinishReason | None
    error: str
    """Why it failed, one line; empty otherwise."""
    model: str
    """The conversation's model when the message was added."""
    created_at: float
    metrics: Metrics | None
    divergence: Divergence | None = None
    """Where the prompt of this reply stopped being what had been fed before."""


class Tab(msgspec.Struct, frozen=True):
    """An open tab; its position is its place in the list."""

    conversation_id: str
    active: bool = False
    draft: str = ""
    """Text in the composer, not sent yet."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation found by its title (`message` is None) or by one of its messages."""

    conversation: Conversation
    message: StoredMessage | None
    snippet: str
    """The title, or the part of the text around the first matches."""
    spans: tuple[tuple[int, int], ...]
    """The matches in `snippet`, as [start, end) character offsets."""


def pack_token_ids(token_ids: Sequence[int]) -> bytes:
    """Little-endian uint32, 4 bytes an id."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack_token_ids(blob: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(blob) // 4}I", blob)


def as_json(struct: msgspec.Struct | None) -> str | None:
    return None if struct is None else msgspec.json.encode(struct).decode()


METRIC_COLUMNS = Metrics.__struct_fields__

CONVERSATION_COLUMNS = (
    "c.id, c.title, c.auto_title, c.persona, c.system_prompt, c.model, c.sampling, c.created_at, c.updated_at, "
    "c.archived, c.leaf_id, (SELECT json_group_array(tag) FROM tags WHERE conversation_id = c.id) AS tags"
)
MESSAGE_COLUMNS = (
    "m.id, m.conversation_id, m.parent_id, m.role, m.text, m.token_ids, m.status, m.finish_reason, m.error, m.model, "
    "m.created_at, m.divergence, k.message_id IS NOT NULL AS measured, "
    + ", ".join(f"k.{name}" for name in METRIC_COLUMNS)
)
MESSAGE_TABLES = "messages m LEFT JOIN message_metrics k ON k.message_id = m.id"


def conversation_from(row: Row) -> Conversation:
    return Conversation(
        id=row["id"],
        title=row["title"],
        auto_title=bool(row["auto_title"]),
        persona=row["persona"],
        system_prompt=row["system_prompt"],
        model=row["model"],
        sampling=msgspec.json.decode(row["sampling"], type=SamplingParams),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        archived=bool(row["archived"]),
        leaf_id=row["leaf_id"],
        tags=tuple(sorted(msgspec.json.decode(row["tags"], type=list[str]))),
    )


def message_from(row: Row) -> StoredMessage:
    return StoredMessage(
        id=row["id"],
        conversation_id=row["conversation_id"],
        parent_id=row["parent_id"],
        role=row["role"],
        text=row["text"],
        token_ids=unpack_token_ids(row["token_ids"]),
        status=row["status"],
        finish_reason=row["finish_reason"],
        error=row["error"],
        model=row["model"],
        created_at=row["created_at"],
        metrics=Metrics(**{name: row[name] for name in METRIC_COLUMNS}) if row["measured"] else None,
        divergence=msgspec.json.decode(row["divergence"], type=Divergence) if row["divergence"] else None,
    )
