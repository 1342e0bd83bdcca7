"""What an empty conversation shows: who will answer, and what one can do here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kvchat.personas import Persona
from kvchat.tui.format import printable

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp

HINTS = (
    ("new_tab", "new tab"),
    ("persona", "choose a persona"),
    ("sidebar", "all conversations"),
    ("commands", "everything else"),
    ("help", "all keys"),
)
"""Bindings by their ids, and what they do."""


class Welcome(Vertical):
    """Shown until the first message."""

    def __init__(self, persona: Persona | None) -> None:
        super().__init__()
        self._persona = persona

    def compose(self) -> ComposeResult:
        yield Static("kvchat", id="brand", markup=False)
        yield Static("Everything stays on this machine.", classes="quiet", markup=False)
        if self._persona:
            name = self._persona.title or self._persona.name
            about = self._persona.greeting or self._persona.description
            yield Static(printable(name), id="persona", markup=False)
            yield Static(printable(about), classes="quiet", markup=False)
        key_of = cast("KvChatApp", self.app).key_of
        hints = [("Enter", "send"), ("Ctrl+J", "new line"), *((key_of(name), does) for name, does in HINTS)]
        width = max(len(key) for key, _ in hints)
        lines = (Content.assemble((key.rjust(width), "$primary"), "  ", does) for key, does in hints)
        yield Static(Content("\n").join(lines), id="hints")
