"""Whole conversations as plain data: what leaves one history and enters another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID, uuid4

import msgspec
from msgspec import Meta

from engine.api import Divergence, FinishReason, Metrics, SamplingParams
from kvchat.store.database import insert
from kvchat.store.records import (
    MESSAGE_COLUMNS,
    MESSAGE_TABLES,
    Conversation,
    Role,
    StoredMessage,
    as_json,
    message_from,
    pack_token_ids,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

    from kvchat.store.database import Database

LATEST = 253_402_300_799.0
"""The end of the year 9999."""
Time = Annotated[float, Meta(ge=0, le=LATEST)]
"""Seconds since the epoch."""
TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]


class MessageCopy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A StoredMessage without its place in a database."""

    parent: int | None
    """The index of the parent among the conversation's messages, before this one; None for a root."""
    role: Role
    text: str
    token_ids: tuple[TokenId, ...] = ()
    status: Literal["complete", "stopped", "failed"] = "complete"
    finish_reason: FinishReason | None = None
    error: str = ""
    model: str = ""
    created_at: Time
    metrics: Metrics | None = None
    divergence: Divergence | None = None


class ConversationCopy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Conversation with all branches. Making one raises ValueError when its parts do not fit together."""

    id: str
    title: str
    auto_title: bool = True
    persona: str = ""
    system_prompt: str = ""
    model: str = ""
    sampling: SamplingParams = SamplingParams()
    created_at: Time
    updated_at: Time
    archived: bool = False
    tags: tuple[str, ...] = ()
    leaf: int | None
    """The index of the last message of the branch that is shown."""
    messages: tuple[MessageCopy, ...]

    def __post_init__(self) -> None:
        try:
            canonical = str(UUID(self.id)) == self.id
        except ValueError:
            canonical = False
        if not canonical:
            raise ValueError(f"id must be a uuid in small letters, not '{self.id}'")
        for index, message in enumerate(self.messages):
            if message.parent is not None and not 0 <= message.parent < index:
                raise ValueError(f"message {index} has parent {message.parent}, which is none before it")
        if self.leaf is not None and not 0 <= self.leaf < len(self.messages):
            raise ValueError(f"leaf is {self.leaf}, and there are {len(self.messages)} messages")


def copy_of(database: Database, conversation: Conversation) -> ConversationCopy:
    """All that is stored of a conversation; a reply that is being written counts as stopped."""
    rows = database.rows(
        f"SELECT {MESSAGE_COLUMNS} FROM {MESSAGE_TABLES} "
        "WHERE m.conversation_id = ? AND m.deletion IS NULL ORDER BY m.id",
        conversation.id,
    )
    return _copy(conversation, [message_from(row) for row in rows])


def fork_of(conversation: Conversation, path: Sequence[StoredMessage], title: str) -> ConversationCopy:
    """A new conversation that begins with `path`, root first, and goes on at its end."""
    copy = _copy(msgspec.structs.replace(conversation, leaf_id=path[-1].id), path)
    now = time.time()
    return msgspec.structs.replace(
        copy, id=str(uuid4()), title=title, auto_title=False, created_at=now, updated_at=now, archived=False
    )


def _copy(conversation: Conversation, messages: Sequence[StoredMessage]) -> ConversationCopy:
    index_of = {message.id: index for index, message in enumerate(messages)}
    last = messages[-1].id if messages else None  # of one that does not say what is shown
    leaf_id = last if conversation.leaf_id is None else conversation.leaf_id
    return ConversationCopy(
        **{name: getattr(conversation, name) for name in _SHARED_CONVERSATION},
        leaf=None if leaf_id is None else index_of[leaf_id],
        messages=tuple(
            MessageCopy(
                **{name: getattr(message, name) for name in _SHARED_MESSAGE},
                parent=None if message.parent_id is None else index_of[message.parent_id],
                status="stopped" if message.status == "streaming" else message.status,
            )
            for message in messages
        ),
    )


def add_copy(connection: Connection, copy: ConversationCopy, writer: str) -> bool:
    """Store a copy under its own id, inside the caller's transaction; False, and nothing done, if that id is there."""
    row = {name: getattr(copy, name) for name in _SHARED_CONVERSATION if name != "tags"}
    row["sampling"] = as_json(copy.sampling)
    if not insert(connection, "conversations", row, if_absent=True):
        return False
    ids: list[int] = []
    for message in copy.messages:
        values = {name: getattr(message, name) for name in _SHARED_MESSAGE if name != "metrics"} | {
            "conversation_id": copy.id,
            "parent_id": None if message.parent is None else ids[message.parent],
            "token_ids": pack_token_ids(message.token_ids),
            "status": message.status,
            "divergence": as_json(message.divergence),
            "writer": writer,
        }
        ids.append(insert(connection, "messages", values))
        if message.metrics:
            metrics = msgspec.structs.asdict(message.metrics)
            insert(connection, "message_metrics", {"message_id": ids[-1], **metrics})
    if copy.leaf is not None:
        connection.execute("UPDATE conversations SET leaf_id = ? WHERE id = ?", (ids[copy.leaf], copy.id))
    connection.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(copy.id, tag) for tag in copy.tags])
    return True


_SHARED_CONVERSATION = [name for name in ConversationCopy.__struct_fields__ if name not in ("leaf", "messages")]
_SHARED_MESSAGE = [name for name in MessageCopy.__struct_fields__ if name not in ("parent", "status")]
