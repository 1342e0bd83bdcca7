"""Gives a conversation a title."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kvchat.tui.format import typed


class RenameScreen(ModalScreen[str | None]):
    """Dismissed with the new title, empty for the automatic one, or None when nothing should change."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel", show=False)]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Rename the conversation", classes="heading", markup=False)
            yield Input(
                typed(self._title),
                max_length=200,
                compact=True,
                placeholder="Empty: the first line of the conversation",
            )
            yield Static("Enter keeps the title · Esc leaves it as it was", classes="hint", markup=False)

    @on(Input.Submitted)
    def _rename(self, event: Input.Submitted) -> None:
        self.dismiss(" ".join(event.value.split()))
