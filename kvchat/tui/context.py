"""What can be done with a conversation that fills the model's context."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.store import StoredMessage
from kvchat.tui.estimate import estimated_tokens

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
            room -= sum(estimated_tokens(each.text) for each in turn)
            if room < 0 and kept:
                break
            kept, turn = turn + kept, []
    return kept


def summary_request(messages: Sequence[StoredMessage], context_length: int) -> str:
    """The message that asks for a summary of the newest turns that fit."""
    kept = newest_turns(messages, context_length)
    names = {"user": "User", "assistant": "Assistant", "system": "System"}
    return _REQUEST + "\n\n".join(f"{names[each.role]}: {each.text}" for each in kept)
