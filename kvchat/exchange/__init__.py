"""Conversations to and from files: kvchat's own JSON, Markdown, plain text, and what other programs export."""

from __future__ import annotations

from kvchat.exchange.errors import ExchangeError
from kvchat.exchange.reading import read_conversations
from kvchat.exchange.writing import FORMATS, format_of, render, save

__all__ = ["FORMATS", "ExchangeError", "format_of", "read_conversations", "render", "save"]
