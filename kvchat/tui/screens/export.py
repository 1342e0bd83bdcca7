"""Asks for the file that a conversation is written to."""

from __future__ import annotations

import re
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

NAME_LENGTH = 60


class ExportScreen(ModalScreen[str | None]):
    """Dismissed with the path as it was written, or None."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel", show=False)]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Export the conversation", classes="heading", markup=False)
            yield Input(str(suggested_path(self._title)), compact=True, placeholder="A file", select_on_focus=False)
            yield Static(
                "The ending says the format: .md Markdown, .txt text, .json all that is stored, for kvchat import",
                classes="hint",
                markup=False,
            )
            yield Static("Enter writes it · Esc cancels", classes="hint", markup=False)

    @on(Input.Submitted)
    def _write(self, event: Input.Submitted) -> None:
        if path := event.value.strip():
            self.dismiss(path)


def suggested_path(title: str) -> Path:
    """A file of the current folder, named after the conversation."""
    words = re.sub(r"[^\w.-]+", "-", title).strip("-.")[:NAME_LENGTH].strip("-.")
    return Path.cwd() / f"{words or 'conversation'}.md"
