"""How a message is written: a text that begins with a slash is a command."""

from __future__ import annotations


def is_command(text: str) -> bool:
    """Whether a message is a command; one that begins with two slashes is a message that begins with one."""
    return text.startswith("/") and not text.startswith("//")


def message_of(text: str) -> str:
    """The message that is sent for what was written."""
    return text[1:] if text.startswith("//") else text


def written(text: str) -> str:
    """What to write for a message that was sent."""
    return f"/{text}" if text.startswith("/") else text
