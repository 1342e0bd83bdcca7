"""Claude's conversations.json: each conversation is a list `chat_messages`, in newer exports with parents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from engine.api import SamplingParams
from kvchat.exchange.parts import Node, conversation, convert, grow, text_of
from kvchat.store import ConversationCopy, MessageCopy

MARK = "chat_messages"
"""The key by which one of these conversations is known."""


class _Attachment(msgspec.Struct):
    file_name: str | None = None
    extracted_content: str | None = None

    @property
    def text(self) -> str:
        return f"{self.file_name or 'attachment'}:\n\n{self.extracted_content}" if self.extracted_content else ""


class _Message(msgspec.Struct):
    sender: Literal["human", "assistant"]
    uuid: str
    created_at: datetime
    text: str | None = None
    content: list[Any] = []
    attachments: list[_Attachment] = []
    parent_message_uuid: str | None = None

    @property
    def shown(self) -> str:
        written = self.text or "\n\n".join(filter(None, map(text_of, self.content)))
        return "\n\n".join(filter(None, [written, *(each.text for each in self.attachments)])).strip()


class _Conversation(msgspec.Struct):
    chat_messages: list[_Message]
    created_at: datetime
    updated_at: datetime
    uuid: str | None = None
    name: str | None = None


def read(entry: Any, place: str, sampling: SamplingParams) -> ConversationCopy:
    """Raises ExchangeError."""
    foreign = convert(entry, _Conversation, place)
    nodes: dict[str, Node] = {}
    above: str | None = None
    for message in foreign.chat_messages:
        nodes[message.uuid] = Node(message.parent_message_uuid or above, _copy(message))
        above = message.uuid
    messages, index_of = grow(nodes, place)
    return conversation(
        "claude",
        foreign.uuid,
        messages,
        index_of[above],
        sampling=sampling,
        title=foreign.name,
        created_at=_seconds(foreign.created_at),
        updated_at=_seconds(foreign.updated_at),
    )


def _copy(message: _Message) -> MessageCopy | None:
    if not message.shown:
        return None
    return MessageCopy(
        parent=None,
        role="user" if message.sender == "human" else "assistant",
        text=message.shown,
        created_at=_seconds(message.created_at),
    )


def _seconds(date: datetime) -> float:
    """Since the epoch; a date without a time zone is in UTC."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
