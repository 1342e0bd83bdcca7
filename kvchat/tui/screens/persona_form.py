"""Makes or changes a persona."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, Input, Static, TextArea

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from kvchat.config import SAMPLING_KEYS
from kvchat.personas import Persona
from kvchat.toml_file import ConfigError
from kvchat.tui.estimate import estimated_tokens
from kvchat.tui.format import count, printable, typed
from kvchat.tui.widgets.form import Field, SamplingFields

PARAMETERS = tuple(name for name in SAMPLING_KEYS if name != "stop")
"""What the form asks for: the parameters that are one value."""


class PersonaForm(ModalScreen[Persona | None]):
    """Asks for everything of a persona but its name, and for that of a new one through its title. What `save` refuses
    stays on the screen. Dismissed with the saved persona or None."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("ctrl+s", "save", "Save", show=False, priority=True),
    ]

    def __init__(
        self, heading: str, persona: Persona, defaults: SamplingParams, save: Callable[[Persona], Persona]
    ) -> None:
        """`save` stores what was filled in and returns it; it raises ConfigError."""
        super().__init__()
        self._heading, self._persona, self._save = heading, persona, save
        self._title = Field("Title", persona.title, "What the list calls it")
        self._description = Field("Description", persona.description, "One line for the list")
        self._greeting = Field("Greeting", persona.greeting, "What a new tab says first; the model does not see it")
        self._prompt = TextArea(typed(persona.system_prompt), compact=True, highlight_cursor_line=False)
        self._tokens = Static(classes="hint", markup=False)
        self._pin = Checkbox("Keep its prompt in the KV cache, so that it is never computed again", persona.pin)
        self._sampling = SamplingFields(PARAMETERS, persona.sampling, defaults)
        self._problem = Static(classes="problem", markup=False)
        self._stored: list[object] = []
        """What stood in the form at first."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="persona-form"):
            yield Static(self._heading, classes="heading", markup=False)
            with VerticalScroll(can_focus=False):
                yield from (self._title, self._description, self._greeting)
                yield Static("System prompt", classes="subheading", markup=False)
                yield self._prompt
                yield self._tokens
                yield self._pin
                yield Static("Sampling; an empty field is the setting's", classes="subheading", markup=False)
                yield self._sampling
            yield self._problem
            with Horizontal(classes="buttons"):
                yield Button("Save  ^s", id="save", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    def on_mount(self) -> None:
        self._show_size()
        self._stored = self._written

    @on(TextArea.Changed)
    def _show_size(self) -> None:
        self._tokens.update(f"about {count(estimated_tokens(self._prompt.text))} tokens")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "save":
            self.action_save()
        else:
            self.action_cancel()

    def action_cancel(self) -> None:
        """Leave, and ask before what was written is lost."""
        from kvchat.tui.screens.confirm import ConfirmScreen

        if self._written == self._stored:
            self._leave(True)
        else:
            question = ConfirmScreen("Leave without saving what you changed?", "Leave", "Go on", loses=True)
            self.app.push_screen(question, self._leave)

    def _leave(self, wanted: bool | None) -> None:
        if wanted:
            self.dismiss(None)

    @property
    def _written(self) -> list[object]:
        return [*(each.value for each in self.query(Input)), self._prompt.text, self._pin.value]

    def action_save(self) -> None:
        """Store it, or say what is wrong."""
        try:
            self.dismiss(self._save(self._filled_in()))
        except (ConfigError, InvalidRequest) as error:
            self._problem.update(printable(str(error)))

    def _filled_in(self) -> Persona:
        """Raises ConfigError, InvalidRequest."""
        if not self._title.value:
            self._title.focus_input()
            raise ConfigError("it needs a title")
        if not self._prompt.text.strip():
            self._prompt.focus()
            raise ConfigError("it needs a system prompt")
        kept = {key: value for key, value in self._persona.sampling.items() if key not in PARAMETERS}
        return Persona(
            name=self._persona.name,
            title=self._title.value,
            description=self._description.value,
            greeting=self._greeting.value,
            system_prompt=self._prompt.text.strip(),
            sampling=kept | self._sampling.values(),
            pin=self._pin.value,
        )
