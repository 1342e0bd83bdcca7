"""Changes how the replies of a conversation are sampled."""

from __future__ import annotations

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from kvchat.tui.slash import SETTINGS
from kvchat.tui.widgets.form import SamplingFields


class SamplingScreen(ModalScreen[SamplingParams | None]):
    """A field for each parameter; what is empty is as the persona and the settings have it. Dismissed with the result
    or None."""

    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", show=False),
        Binding("enter,ctrl+s", "save", "Save", show=False, priority=True),
    ]

    def __init__(self, sampling: SamplingParams, defaults: SamplingParams) -> None:
        super().__init__()
        self._sampling, self._defaults = sampling, defaults
        given = {name: getattr(sampling, name) for name in SETTINGS}
        changed = {name: value for name, value in given.items() if value != getattr(defaults, name)}
        self._fields = SamplingFields(SETTINGS, changed, defaults)
        self._problem = Static(classes="problem", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="sampling"):
            yield Static("Sampling of this tab, from the next reply on", classes="heading", markup=False)
            with VerticalScroll(can_focus=False):
                yield self._fields
            yield self._problem
            with Horizontal(classes="buttons"):
                yield Button("Save  ⏎", id="save", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#save")
    def action_save(self) -> None:
        """Use what is filled in, or say what is wrong with it."""
        focused = self.focused
        if isinstance(focused, Button) and focused.id == "cancel":
            self.dismiss(None)
            return
        try:
            values = self._fields.values()
        except InvalidRequest as error:
            self._problem.update(str(error))
        else:
            kept = {"stop": self._sampling.stop, "logit_bias": self._sampling.logit_bias}
            self.dismiss(replace(self._defaults, **kept, **values))
