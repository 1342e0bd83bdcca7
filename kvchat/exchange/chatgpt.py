"""ChatGPT's conversations.json: each conversation is a `mapping` of nodes that name their parents."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from engine.api import SamplingParams
from kvchat.exchange.parts import ForeignTime, Node, conversation, convert, grow, text_of
from kvchat.store import ConversationCopy, MessageCopy

MARK = "mapping"
"""The key by which one of these conversations is known."""

_SHOWN = ("text", "multimodal_text", "code")
"""Kinds of content that a user sees as a message; the rest is reasoning, tools and settings."""


class _Author(msgspec.Struct):
    role: str


class _Content(msgspec.Struct):
    content_type: str = "text"
    parts: list[Any] = []
    text: str | None = None


class _Message(msgspec.Struct):
    author: _Author
    content: _Content
    create_time: ForeignTime | None = None
    recipient: str | None = "all"
    metadata: dict[str, Any] | None = None

    @property
    def shown(self) -> str:
        """What it says, or nothing for one that the user never saw."""
        hidden = (self.metadata or {}).get("is_visually_hidden_from_conversation")
        if hidden or self.recipient not in ("all", None) or self.content.content_type not in _SHOWN:
            return ""
        return "\n\n".join(filter(None, map(text_of, [self.content.text, *self.content.parts]))).strip()


class _Node(msgspec.Struct):
    message: _Message | None = None
    parent: str | None = None


class _Conversation(msgspec.Struct):
    mapping: dict[str, _Node]
    title: str | None = None
    create_time: ForeignTime | None = None
    update_time: ForeignTime | None = None
    current_node: str | None = None
    conversation_id: str | None = None
    id: str | None = None
    default_model_slug: str | None = None


def read(entry: Any, place: str, sampling: SamplingParams) -> ConversationCopy:
    """Raises ExchangeError."""
    foreign = convert(entry, _Conversation, place)
    began = foreign.create_time or time.time()
    instructions = [
        node.message.shown for node in foreign.mapping.values() if node.message and node.message.author.role == "system"
    ]
    messages, index_of = grow(
        {key: Node(node.parent, _copy(node, began)) for key, node in foreign.mapping.items()}, place
    )
    return conversation(
        "chatgpt",
        foreign.conversation_id or foreign.id,
        messages,
        index_of.get(foreign.current_node),
        sampling=sampling,
        title=foreign.title,
        system_prompt=next(filter(None, instructions), ""),
        model=foreign.default_model_slug or "",
        created_at=foreign.create_time,
        updated_at=foreign.update_time,
    )


def _copy(node: _Node, began: float) -> MessageCopy | None:
    message = node.message
    role = message.author.role if message else ""
    if message is None or role not in ("user", "assistant") or not (text := message.shown):
        return None
    return MessageCopy(
        parent=None,
        role="user" if role == "user" else "assistant",
        text=text,
        model=str((message.metadata or {}).get("model_slug") or ""),
        created_at=message.create_time or began,
    )
