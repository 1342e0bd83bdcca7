"""Conversations out of a file: which program wrote it is seen from its keys."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from msgspec.structs import replace

from engine.api import SamplingParams
from kvchat.exchange import chatgpt, claude, messages, own
from kvchat.exchange.errors import ExchangeError
from kvchat.store import ConversationCopy

_READERS = (chatgpt, claude, messages)


def read_conversations(raw: bytes, sampling: SamplingParams) -> list[ConversationCopy]:
    """All conversations with messages in the content of a file: kvchat's own JSON; conversations.json of ChatGPT or
    Claude, or one conversation out of it; {"messages": [...]}, a list of these or one a line; a list of {"role",
    "content"}, or one a line. `sampling` is for those that come without it. Raises ExchangeError."""
    data = _parse(raw)
    if isinstance(data, dict) and data.get("format") == own.FORMAT:
        found = own.read(data)
    else:
        entries = data if isinstance(data, list) else [data]
        if entries and isinstance(entries[0], dict) and "role" in entries[0]:
            entries = [{messages.MARK: entries}]
        found = [_read(entry, f"entry {number}", sampling) for number, entry in enumerate(entries, 1)]
    found = [conversation for conversation in found if conversation.messages]
    if not found:
        raise ExchangeError("it holds no message")
    return [_shown(conversation) for conversation in found]


def _shown(conversation: ConversationCopy) -> ConversationCopy:
    """One that does not say what is shown shows its last message."""
    return conversation if conversation.leaf is not None else replace(conversation, leaf=len(conversation.messages) - 1)


def _read(entry: Any, place: str, sampling: SamplingParams) -> ConversationCopy:
    for reader in _READERS:
        if isinstance(entry, dict) and reader.MARK in entry:
            return reader.read(entry, place, sampling)
    marks = ", ".join(f"'{reader.MARK}'" for reader in _READERS)
    raise ExchangeError(f"{place}: no conversation of a known kind: expected an object with one of {marks}")


def _parse(raw: bytes) -> Any:
    """JSON, or a JSON value on every line."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExchangeError(f"byte {error.start}: not valid UTF-8") from error
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or error.lineno == 1:
            raise ExchangeError(f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from error
    values = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                values.append(_loads(line))
        except json.JSONDecodeError as error:
            raise ExchangeError(f"line {number}, column {error.colno}: not valid JSON: {error.msg}") from error
    return values


def _loads(text: str) -> Any:
    try:
        data = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise ExchangeError("not usable: lists or objects are nested too deeply") from error
    except ValueError as error:  # Python's limit of digits
        raise ExchangeError("not usable: it holds a number with thousands of digits") from error
    if "\\ud" in text.lower():  # half of an emoji that another program cut in two cannot be stored
        whole = json.dumps(data, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        data = json.loads(whole.decode("utf-16-le", "replace"))
    return data


def _refuse(constant: str) -> NoReturn:
    raise ExchangeError(f"not valid JSON: it holds the number {constant}")
