"""Plain lists of {"role", "content"}, as the OpenAI API, most scripts and training files write them."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from engine.api import SamplingParams
from kvchat.exchange.parts import conversation, convert, text_of
from kvchat.store import ConversationCopy, MessageCopy

MARK = "messages"
"""The key by which one of these conversations is known."""


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Any]

    @property
    def text(self) -> str:
        return text_of(self.content) if isinstance(self.content, str) else "\n\n".join(map(text_of, self.content))


class _Conversation(msgspec.Struct):
    messages: list[_Message]
    title: str | None = None
    model: str | None = None


def read(entry: Any, place: str, sampling: SamplingParams) -> ConversationCopy:
    """Leading system messages become the system prompt. Raises ExchangeError."""
    foreign = convert(entry, _Conversation, place)
    instructions: list[str] = []
    messages: list[MessageCopy] = []
    now = time.time()
    for message in foreign.messages:
        role: Literal["system", "user", "assistant"] = "system" if message.role == "developer" else message.role
        if role == "system" and not messages:
            instructions.append(message.text)
            continue
        parent = len(messages) - 1 if messages else None
        messages.append(MessageCopy(parent=parent, role=role, text=message.text, created_at=now))
    return conversation(
        "messages",
        None,
        tuple(messages),
        None,
        sampling=sampling,
        title=foreign.title,
        system_prompt="\n\n".join(instructions),
        model=foreign.model or "",
    )
