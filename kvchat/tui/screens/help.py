"""All keys and commands, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import HorizontalGroup, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.tui.slash import SlashCommand


class HelpScreen(ModalScreen[None]):
    """Lists bindings under their headings, then the commands."""

    BINDINGS = [Binding("escape,f1,q,enter", "dismiss", "Close", show=False)]

    def __init__(self, sections: Mapping[str, Sequence[BindingType]], commands: Sequence[SlashCommand]) -> None:
        super().__init__()
        self._sections = sections
        self._commands = commands

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="help"):
            yield Static("Keys", classes="heading", markup=False)
            with VerticalScroll():
                for title, bindings in self._sections.items():
                    yield Static(title, classes="subheading", markup=False)
                    yield from self._lines(bindings)
                yield Static("Commands, written as a message", classes="subheading", markup=False)
                for command in self._commands:
                    yield from self._line(command.usage, command.about)
            yield Static("Esc closes this page", classes="hint", markup=False)

    def _lines(self, bindings: Sequence[BindingType]) -> ComposeResult:
        same_action = groupby(Binding.make_bindings(bindings), key=lambda binding: binding.action)
        for _, [*alternatives] in same_action:
            keys = ", ".join(self.app.get_key_display(binding) for binding in alternatives)
            about = alternatives[0].tooltip or alternatives[0].description
            yield from self._line(keys, about)

    def _line(self, what: str, about: str) -> ComposeResult:
        with HorizontalGroup():
            yield Static(what, classes="key", markup=False)
            yield Static(about, classes="about", markup=False)
