"""Chooses the persona of a new conversation."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kvchat.personas import Persona
from kvchat.tui.format import printable


class PersonaScreen(ModalScreen[Persona | None]):
    """Lists the personas beside the prompt of the highlighted one. Dismissed with the chosen persona or None."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel", show=False)]

    def __init__(self, personas: Sequence[Persona], default: str) -> None:
        super().__init__()
        self._personas = personas
        self._default = default

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="personas"):
            yield Static("New conversation with", classes="heading", markup=False)
            with Horizontal():
                yield OptionList(*map(_option, self._personas), compact=True)
                with VerticalScroll(can_focus=False):
                    yield Static(id="prompt", markup=False)
            yield Static("Enter starts it · Esc cancels", classes="hint", markup=False)

    def on_mount(self) -> None:
        names = [persona.name for persona in self._personas]
        self.query_one(OptionList).highlighted = names.index(self._default)

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#prompt", Static).update(printable(self._personas[event.option_index].system_prompt))

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._personas[event.option_index])


def _option(persona: Persona) -> Option:
    return Option(
        Content.assemble(
            (printable(persona.title or persona.name), "bold"),
            ("\n" + printable(persona.description), "$foreground-muted") if persona.description else "",
        )
    )
