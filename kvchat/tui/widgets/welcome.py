"""What an empty conversation shows: who will answer, and what one can do here."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kvchat.personas import Persona
from kvchat.tui.format import printable

HINTS = (
    ("Enter", "send"),
    ("Ctrl+J", "new line"),
    ("Ctrl+T", "new tab"),
    ("Ctrl+N", "choose a persona"),
    ("Ctrl+P", "everything else"),
    ("F1", "all keys"),
)
KEY_WIDTH = max(len(key) for key, _ in HINTS)


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
        lines = (Content.assemble((key.rjust(KEY_WIDTH), "$primary"), "  ", does) for key, does in HINTS)
        yield Static(Content("\n").join(lines), id="hints")
