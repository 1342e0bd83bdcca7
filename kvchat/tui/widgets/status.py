"""What the engine as a whole is doing: a word in the footer, and a banner when it needs the user."""

from __future__ import annotations

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from engine.api import EngineState
from kvchat.tui.format import printable, shorten

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_DETAIL_WIDTH = 40


class Status(Static):
    """The end of the footer: the loaded model, or what keeps it from being ready."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._state = EngineState("loading")
        self._frame = 0
        self._spinner: Timer | None = None

    def on_mount(self) -> None:
        self._spinner = self.set_interval(0.12, self._spin)

    def show(self, state: EngineState) -> None:
        """Show the state of the engine."""
        self._state = state
        self.set_class(state.state == "ready", "-ready")
        if self._spinner:
            (self._spinner.resume if state.state == "loading" else self._spinner.pause)()
        self._draw()

    def _spin(self) -> None:
        self._frame = (self._frame + 1) % len(_FRAMES)
        self._draw()

    def _draw(self) -> None:
        match self._state:
            case EngineState("loading", detail):
                text = shorten(printable(detail) or "loading the model", _DETAIL_WIDTH)
                content = Content.assemble((f"{_FRAMES[self._frame]} ", "$accent"), text)
            case EngineState("ready", _, model):
                name = shorten(printable(model.name), _DETAIL_WIDTH) if model else "ready"
                content = Content.assemble(("● ", "$success"), name)
            case _:
                content = Content.assemble(("● ", "$error"), "no engine")
        self.update(content)


class Banner(Static):
    """One line across the chat about the engine, while something is wrong with it."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def show(self, text: str) -> None:
        """Show this text, or nothing when it is empty."""
        self.update(printable(text))
        self.display = bool(text)
