"""A message of the user on the screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from kvchat.tui.format import count, printable

FOLD_ABOVE = 20
"""Lines; of a longer message the first FOLDED_LINES are shown."""
FOLDED_LINES = 12
FOLD_CHARACTERS = 4_000
"""Of a message with more of them the first FOLDED_CHARACTERS are shown."""
FOLDED_CHARACTERS = 1_000
SHOWN_CHARACTERS = 40_000
"""Of an unfolded message. What is longer was pasted and is not read here."""


class UserMessage(Static):
    """What the user wrote; a long message shows its beginning until it is clicked."""

    def __init__(self, text: str, queued: bool = False, folded: bool = True) -> None:
        super().__init__(markup=False, classes="-queued" if queued else "")
        self.text = text
        self._note = "queued · sent after this reply · Up takes it back" if queued else ""
        self._folds = text.count("\n") >= FOLD_ABOVE or len(text) > FOLD_CHARACTERS
        self._folded = folded

    def on_mount(self) -> None:
        self._draw()

    def on_click(self) -> None:
        self.fold(not self._folded)

    def show_note(self, note: str) -> None:
        """Say something below the text."""
        if note != self._note:
            self._note = note
            self._draw()

    def fold(self, folded: bool) -> None:
        """Fold or unfold a long message."""
        if self._folds and folded != self._folded:
            self._folded = folded
            self._draw()

    def _draw(self) -> None:
        shown, hidden = shown_part(self.text, self._folded)
        parts: list[str | tuple[str, str]] = [printable(shown)]
        if hidden:
            parts.append((f"\n… {hidden}", "$foreground-muted"))
        if self._note:
            parts.append((f"\n{self._note}", "$foreground-muted"))
        self.update(Content.assemble(*parts))


def shown_part(text: str, folded: bool) -> tuple[str, str]:
    """What is shown of a message, and how much more there is: "18 more lines", empty for nothing."""
    shown = text
    if folded and text.count("\n") >= FOLD_ABOVE:
        shown = "\n".join(text.split("\n", FOLDED_LINES)[:FOLDED_LINES])
    if folded and len(text) > FOLD_CHARACTERS:
        shown = shown[:FOLDED_CHARACTERS]
    shown = shown[:SHOWN_CHARACTERS]
    if len(shown) == len(text):
        return text, ""
    lines = text.count("\n", len(shown) + 1) + 1 if text[len(shown)] == "\n" else text.count("\n", len(shown))
    more = f"{count(lines)} more lines" if lines > 1 else f"{count(len(text) - len(shown))} more characters"
    return shown, more
