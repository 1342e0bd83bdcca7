"""The line below the transcript that says what can be done with the message the cursor is on."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from kvchat.tui.message_keys import ACTIONS, MOVES


class MessageBar(Static, can_focus=True):
    """While it has the focus, letters are what they say here; a click on a name does the same at any time."""

    FOCUS_ON_CLICK = False
    BINDINGS = [*MOVES, *ACTIONS]

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._place = 0, 1

    def show(self, place: tuple[int, int]) -> None:
        """Show what is possible now for a message at this place of its siblings."""
        self._place = place
        self.display = True
        self._draw()

    def hide(self) -> None:
        self.display = False

    def on_focus(self) -> None:
        self._draw()

    def on_blur(self) -> None:
        self._draw()

    def _draw(self) -> None:
        letters = "$primary" if self.has_focus else "$foreground-muted"
        parts: list[Content] = []
        number, count = self._place
        if count > 1:
            parts.append(_link("step_branch(-1)", "◂") + Content(f" {number}/{count} ") + _link("step_branch(1)", "▸"))
        for binding in ACTIONS:
            action = binding.action.removeprefix("screen.")
            if self.screen.check_action(action, ()):
                parts.append(Content.styled(f"{binding.key[0]} ", letters) + _link(action, binding.description))
        parts.append(Content.styled("Esc ", letters) + _link("leave", "Back"))
        self.update(Content("  ").join(parts))


def _link(action: str, text: str) -> Content:
    return Content(text).stylize(f"@click=screen.{action}")
