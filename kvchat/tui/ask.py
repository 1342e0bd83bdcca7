"""Dialogs that are waited for."""

from __future__ import annotations

from typing import Any, TypeVar

from textual.screen import Screen

Answer = TypeVar("Answer")


async def ask(over: Screen[Any], dialog: Screen[Answer]) -> Answer | None:
    """Show a dialog over a screen, and wait for its answer. None when something is over it already: of keys that come
    in one burst, before the first dialog is there, each would open another."""
    if over.app.screen is not over:
        return None
    answer: Answer | None = await over.app.push_screen_wait(dialog)
    return answer
