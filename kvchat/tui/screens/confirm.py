"""A question with two answers."""

from __future__ import annotations

from math import inf
from time import monotonic

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Static


class ConfirmScreen(ModalScreen[bool]):
    """Asks before something is done that cannot be undone. Dismissed with True for yes."""

    BINDINGS = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n", "answer(False)", "No", show=False),
        Binding("escape", "leave", "No", show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, yes: str, no: str = "Cancel", loses: bool = False) -> None:
        """`loses`: yes throws away what nothing brings back, so that Enter alone says no."""
        super().__init__()
        self._question, self._yes, self._no = question, yes, no
        self._preselected = "#no" if loses else "#yes"
        self._shown_at = inf

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(self._yes, id="yes", variant="primary", compact=True)
                yield Button(self._no, id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one(self._preselected).focus()
        self.call_after_refresh(self._note_shown)

    def _note_shown(self) -> None:
        self._shown_at = monotonic()

    def on_key(self, event: Key) -> None:
        """Esc that was pressed before the question stood here is no answer to it: nobody would ever have seen it."""
        if event.key == "escape" and event.time < self._shown_at:
            event.stop()

    def action_leave(self) -> None:
        if self._shown_at < inf:  # else the key was on its way through another screen
            self.dismiss(False)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
