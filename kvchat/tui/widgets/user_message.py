"""A message of the user on the screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from kvchat.tui.format import count, printable

FOLD_ABOVE = 20
"""Lines; of a longer message the first FOLDED_LINES are shown."""
FOLDED_LINES = 12


class UserMessage(Static):
    """What the user wrote; a long message shows its first lines until it is clicked."""

    def __init__(self, text: str, queued: bool = False) -> None:
        super().__init__(markup=False, classes="-queued" if queued else "")
        self.text = text
        self._lines = printable(text).split("\n")
        self._folds = len(self._lines) > FOLD_ABOVE
        self._folded = self._folds
        self._note = "queued · sent after this reply · Up takes it back" if queued else ""

    def on_mount(self) -> None:
        self._draw()

    def on_click(self) -> None:
        self.toggle()

    def show_note(self, note: str) -> None:
        """Say something below the text."""
        if note != self._note:
            self._note = note
            self._draw()

    def toggle(self) -> None:
        """Fold or unfold a long message."""
        if self._folds:
            self._folded = not self._folded
            self._draw()

    def _draw(self) -> None:
        parts: list[str | tuple[str, str]] = []
        if self._folded:
            parts.append("\n".join(self._lines[:FOLDED_LINES]))
            parts.append((f"\n… {count(len(self._lines) - FOLDED_LINES)} more lines", "$foreground-muted"))
        else:
            parts.append("\n".join(self._lines))
        if self._note:
            parts.append((f"\n{self._note}", "$foreground-muted"))
        self.update(Content.assemble(*parts))
