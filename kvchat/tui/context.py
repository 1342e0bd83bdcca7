"""What can be done with a conversation that fills the model's context."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.store import StoredMessage
from kvchat.tui.estimate import estimated_tokens
from kvchat.tui.format import count

WARN_ABOVE = 0.85
"""Share of the context that may be filled before the user is told."""
KEPT_SHARE = 0.5
"""Of the context: what a conversation goes on with, so that there is room again."""
_REQUEST = (
    "Summarise the conversation below, so that we can go on from your summary: what was asked, what was found and "
    "decided, names and numbers that matter, what is still open.\n\n"
)


def newest_turns(messages: Sequence[StoredMessage], context_length: int) -> list[StoredMessage]:
    """The newest messages that fill about KEPT_SHARE of the context, from a message of the user on; at least one turn,
    if there is any."""
    room = context_length * KEPT_SHARE
    kept: list[StoredMessage] = []
    turn: list[StoredMessage] = []
    for message in reversed(messages):
        turn.insert(0, message)
        if message.role == "user":
            room -= sum(map(_tokens, turn))
            if room < 0 and kept:
                break
            kept, turn = turn + kept, []
    return kept


def summary_request(messages: Sequence[StoredMessage], context_length: int) -> str:
    """The message that asks for a summary of the newest turns, about KEPT_SHARE of the context long. Of a single turn
    that is longer the longest texts lose their middle."""
    kept = newest_turns(messages, context_length)
    most = _most_of_each([*map(_tokens, kept)], int(context_length * KEPT_SHARE))
    names = {"user": "User", "assistant": "Assistant", "system": "System"}
    return _REQUEST + "\n\n".join(f"{names[each.role]}: {_without_middle(each, most)}" for each in kept)


def _tokens(message: StoredMessage) -> int:
    """About how many tokens its text is. After a divergence its ids are also those of messages before it."""
    return max(estimated_tokens(message.text), min(len(message.token_ids), len(message.text.encode())))


def _most_of_each(lengths: Sequence[int], room: int) -> int:
    """The length to which the longest have to be cut, so that all fit."""
    for place, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - place)
        if length > share:
            return share
        room -= length
    return max(lengths, default=0)


def _without_middle(message: StoredMessage, tokens: int) -> str:
    """Its text, cut to about this many tokens; a mark says how much is left out."""
    text, whole = message.text, _tokens(message)
    if whole <= tokens:
        return text
    encoded = text.encode()
    half = len(encoded) * tokens // whole // 2
    head, tail = (part.decode(errors="ignore") for part in (encoded[:half], encoded[len(encoded) - half :]))
    return f"{head}\n[… {count(len(text) - len(head) - len(tail))} characters left out …]\n{tail}"
