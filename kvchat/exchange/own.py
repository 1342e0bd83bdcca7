"""kvchat's own JSON: everything that is stored, so that an import gives back what was exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kvchat.exchange.errors import ExchangeError
from kvchat.exchange.parts import convert
from kvchat.store import ConversationCopy

FORMAT, VERSION = "kvchat", 1


def dump(conversations: Sequence[ConversationCopy]) -> str:
    """One conversation a line."""
    lines = ",\n".join(msgspec.json.encode(conversation).decode() for conversation in conversations)
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "conversations": [\n{lines}\n]}}\n'


def read(data: Mapping[str, Any]) -> list[ConversationCopy]:
    """Raises ExchangeError."""
    if data.get("version") != VERSION:
        raise ExchangeError(f"version {data.get('version')} of the format, this kvchat reads {VERSION}: upgrade kvchat")
    entries = convert(data.get("conversations"), list[Any], "conversations")
    return [convert(entry, ConversationCopy, f"conversation {number}") for number, entry in enumerate(entries, 1)]
