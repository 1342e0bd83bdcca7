"""Asks how to go on when the context is full."""

from __future__ import annotations

from typing import Literal, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

Choice = Literal["summarise", "drop", "stop"]


class ContextFullScreen(ModalScreen[Choice]):
    """Dismissed with what the user wants."""

    BINDINGS = [Binding("escape", "dismiss('stop')", "Stop here", show=False)]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("The context is full", classes="heading", markup=False)
            yield Static("The model cannot read more of this conversation. It stays as it is, in the history.\n")
            yield OptionList(
                Option("Summarise it, and go on in a new tab", id="summarise"),
                Option("Go on in a new tab with the newest turns only", id="drop"),
                Option("Stop here", id="stop"),
                compact=True,
            )
            yield Static("Enter chooses · Esc stops here", classes="hint", markup=False)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(cast(Choice, event.option_id))
