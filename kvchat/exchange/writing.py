"""Conversations into files. JSON holds everything; Markdown and text show the branch that is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kvchat.exchange import own
from kvchat.exchange.errors import ExchangeError
from kvchat.files import replace_file
from kvchat.store import ConversationCopy, MessageCopy

_SPEAKERS = {"system": "System", "user": "You", "assistant": "Assistant"}


def render(conversations: Sequence[ConversationCopy], format: str) -> str:
    """The content of a file in one of FORMATS."""
    return FORMATS[format](conversations)


def format_of(path: Path) -> str:
    """The format that a file's name asks for. Raises ExchangeError for an ending that is none of them."""
    format = _ENDINGS.get(path.suffix.lower())
    if format is None:
        raise ExchangeError(f"{path}: the format is not clear from the name: end it in {', '.join(_ENDINGS)}")
    return format


def save(path: Path, text: str) -> None:
    """Write a file, in place of what was there; it is complete or not touched. Raises ExchangeError."""
    try:
        replace_file(path, text)
    except OSError as error:
        raise ExchangeError(f"{path}: cannot be written: {error.strerror}") from error


def _markdown(conversations: Sequence[ConversationCopy]) -> str:
    return "\n---\n\n".join("\n".join(_markdown_lines(each)) for each in conversations)


def _markdown_lines(conversation: ConversationCopy) -> Iterator[str]:
    yield from (f"# {conversation.title or 'New chat'}", "", f"*{_about(conversation)}*", "")
    if conversation.system_prompt:
        yield from ("## System", "", conversation.system_prompt, "")
    for message in _branch(conversation):
        yield from (f"## {_SPEAKERS[message.role]}", "", message.text.strip("\n"), "")
        if note := _note(message):
            yield from (f"*({note})*", "")


def _text(conversations: Sequence[ConversationCopy]) -> str:
    return "\n\n".join("\n".join(_text_lines(each)) for each in conversations)


def _text_lines(conversation: ConversationCopy) -> Iterator[str]:
    title = conversation.title or "New chat"
    yield from (title, "=" * len(title), _about(conversation), "")
    if conversation.system_prompt:
        yield from ("System:", conversation.system_prompt, "")
    for message in _branch(conversation):
        note = _note(message)
        yield from (f"{_SPEAKERS[message.role]}{f' ({note})' if note else ''}:", message.text.strip("\n"), "")


def _about(conversation: ConversationCopy) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(conversation.updated_at))
    return " · ".join(filter(None, [when, conversation.persona, conversation.model]))


def _note(message: MessageCopy) -> str:
    if message.status == "failed":
        return f"failed: {message.error}" if message.error else "failed"
    return "stopped" if message.status == "stopped" else ""


def _branch(conversation: ConversationCopy) -> list[MessageCopy]:
    """The messages of the branch that is shown, root first."""
    branch: list[MessageCopy] = []
    index = conversation.leaf
    while index is not None:
        branch.append(conversation.messages[index])
        index = branch[-1].parent
    return branch[::-1]


FORMATS: dict[str, Callable[[Sequence[ConversationCopy]], str]] = {
    "markdown": _markdown,
    "json": own.dump,
    "text": _text,
}
_ENDINGS = {".md": "markdown", ".json": "json", ".txt": "text"}
