"""Chooses the colours."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option


class ThemeScreen(ModalScreen[str | None]):
    """Lists the themes and shows everything in the highlighted one. Dismissed with its name, or with None, and then the
    theme is again what it was."""

    BINDINGS = [Binding("escape", "cancel", "Cancel", show=False)]

    def __init__(self, own: Sequence[str]) -> None:
        """`own` are the names to list first: kvchat's themes and the user's."""
        super().__init__()
        self._own = own
        self._before = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="themes"):
            yield Static("Theme", classes="heading", markup=False)
            yield OptionList(compact=True)
            yield Static("Enter keeps it · Esc goes back", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._before = self.app.theme
        others = sorted(set(self.app.available_themes) - set(self._own))
        names = [*self._own, *others]
        options = self.query_one(OptionList)
        options.set_options([*map(_option, self._own), None, *map(_option, others)])
        options.highlighted = names.index(self._before)

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_id:
            self.app.theme = event.option_id

    @on(OptionList.OptionSelected)
    def _keep(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)


def _option(name: str) -> Option:
    return Option(name, id=name)
