"""Chooses the persona of a new conversation, and changes the personas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engine.api import SamplingParams
from kvchat.personas import Persona, Personas, load_personas
from kvchat.personas.editing import delete_persona, name_for, save_persona, with_persona, without_persona
from kvchat.toml_file import ConfigError
from kvchat.tui.ask import ask
from kvchat.tui.format import printable
from kvchat.tui.screens.confirm import ConfirmScreen
from kvchat.tui.screens.persona_form import PersonaForm


class PersonaScreen(ModalScreen[Persona | None]):
    """Lists the personas beside the prompt of the highlighted one. Dismissed with the chosen persona or None."""

    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", show=False),
        Binding("n", "new", "New", show=False, tooltip="Make a persona"),
        Binding("e", "edit", "Edit", show=False, tooltip="Change the persona; a shipped one gets a file of yours"),
        Binding("d", "duplicate", "Duplicate", show=False, tooltip="Make a persona that begins as a copy"),
        Binding("delete,x", "delete", "Delete", show=False, tooltip="Delete a persona of yours"),
    ]

    def __init__(
        self, personas: Personas, default: str, sampling: SamplingParams, changed: Callable[[Personas], None]
    ) -> None:
        """`default` is highlighted, and cannot be deleted; `sampling` is what a persona changes; `changed` is told of
        every change."""
        super().__init__()
        self._personas = personas
        self._default = default
        self._sampling = sampling
        self._changed = changed
        self._list = OptionList(compact=True)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="personas"):
            yield Static("New conversation with", classes="heading", markup=False)
            with Horizontal():
                yield self._list
                with VerticalScroll(can_focus=False):
                    yield Static(id="prompt", markup=False)
            yield Static(
                "Enter starts it · N new · E edit · D duplicate · X delete · Esc cancels", classes="hint", markup=False
            )

    def on_mount(self) -> None:
        self._show(self._default)

    def _show(self, name: str) -> None:
        """List the personas and highlight the one of this name, or the first."""
        self._list.set_options(map(_option, self._personas.all))
        names = [persona.name for persona in self._personas.all]
        self._list.highlighted = names.index(name) if name in names else 0

    @property
    def _highlighted(self) -> Persona:
        return self._personas.all[self._list.highlighted or 0]

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#prompt", Static).update(printable(self._personas.all[event.option_index].system_prompt))

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._personas.all[event.option_index])

    @work
    async def action_new(self) -> None:
        await self._fill_in("New persona", Persona(name="", system_prompt=""))

    @work
    async def action_edit(self) -> None:
        with self._complaining():
            stored = self._as_stored()
            await self._fill_in(f"Edit {printable(stored.title)}", stored)

    @work
    async def action_duplicate(self) -> None:
        with self._complaining():
            stored = self._as_stored()
            copy = replace(stored, name="", title=f"{stored.title} (copy)")
            await self._fill_in(f"Copy of {printable(stored.title)}", copy)

    @work
    async def action_delete(self) -> None:
        name = self._highlighted.name
        title = printable(self._highlighted.title or name)
        question = ConfirmScreen(f"Delete the persona {title}?", "Delete", loses=True)
        if not await ask(self, question):
            return
        with self._complaining():
            rest = without_persona(self._personas, name)
            if name == self._default and name not in [persona.name for persona in rest.all]:
                raise ConfigError(f"'{name}' is the persona of new tabs: set another one in the settings first")
            delete_persona(name)
            self._use(rest, name)

    def _as_stored(self) -> Persona:
        """The highlighted persona without what flags of the command line changed. Raises ConfigError."""
        return load_personas().named(self._highlighted.name)

    async def _fill_in(self, heading: str, persona: Persona) -> None:
        form = PersonaForm(heading, persona, self._sampling, self._save)
        if saved := await ask(self, form):
            self._use(with_persona(self._personas, saved), saved.name)

    def _save(self, persona: Persona) -> Persona:
        taken = [each.name for each in self._personas.all]
        return save_persona(persona if persona.name else replace(persona, name=name_for(persona.title, taken)))

    def _use(self, personas: Personas, name: str) -> None:
        self._personas = personas
        self._changed(personas)
        self._show(name)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.notify(printable(str(error)), severity="error", markup=False)


def _option(persona: Persona) -> Option:
    return Option(
        Content.assemble(
            (printable(persona.title or persona.name), "bold"),
            ("\n" + printable(persona.description), "$foreground-muted") if persona.description else "",
        )
    )
