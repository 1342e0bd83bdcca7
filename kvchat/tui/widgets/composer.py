"""Where the user writes."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Click, Paste
from textual.message import Message
from textual.widgets import Static, TextArea

from kvchat.tui.format import count, typed

CHIP_LINES = 20
CHIP_CHARACTERS = 2_000
SEPARATOR = "\x1e"
"""Between the typed text and each pasted one in a draft; no text that is typed or pasted contains it."""


class Chip(Static):
    """A large paste: a click puts it into the text, a click on the cross removes it."""

    CROSS = " ✕ "

    class Clicked(Message):
        """The user wants the chip away, and its text in the composer or not."""

        def __init__(self, chip: Chip, keep_text: bool) -> None:
            super().__init__()
            self.chip = chip
            self.keep_text = keep_text

    def __init__(self, text: str) -> None:
        lines = text.rstrip("\n").count("\n") + 1
        label = f" pasted · {count(lines)} lines" if lines > 1 else f" pasted · {count(len(text))} characters"
        super().__init__(Content.assemble(label, (self.CROSS, "$foreground-muted")))
        self.text = text
        self.tooltip = "Click to edit as text"

    def on_click(self, event: Click) -> None:
        self.post_message(self.Clicked(self, keep_text=event.x < self.size.width - len(self.CROSS)))


class Editor(TextArea):
    """The text itself; it grows with its lines."""

    BINDINGS = [
        Binding("enter", "send", "Send", priority=True),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", priority=True),
    ]

    class Sent(Message):
        """Enter was pressed."""

    class Pasted(Message):
        """A text too large to stand in the composer was pasted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class LeftUp(Message):
        """Up was pressed in an empty composer."""

    class Emptied(Message):
        """Backspace was pressed in an empty composer."""

    def __init__(self) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder="Write a message")

    def action_send(self) -> None:
        self.post_message(self.Sent())

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_cursor_up(self, select: bool = False) -> None:
        if self.text or select:
            super().action_cursor_up(select)
        else:
            self.post_message(self.LeftUp())

    def action_delete_left(self) -> None:
        if self.text:
            super().action_delete_left()
        else:
            self.post_message(self.Emptied())

    def action_paste(self) -> None:
        self._take(self.app.clipboard)

    def on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        self._take(event.text)

    def _take(self, text: str) -> None:
        text = typed(text)
        if text.count("\n") >= CHIP_LINES or len(text) > CHIP_CHARACTERS:
            self.post_message(self.Pasted(text))
        else:
            self.replace(text, *self.selection)
            self.scroll_cursor_visible()


class Composer(Vertical):
    """A message in the making: text, and chips for what was pasted."""

    class Submitted(Message):
        """The user wants this sent. Whoever sends it clears the composer."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Changed(Message):
        """The draft is another one."""

        def __init__(self, draft: str) -> None:
            super().__init__()
            self.draft = draft

    class RecallWanted(Message):
        """The user wants the last message back in the composer."""

    def __init__(self, draft: str = "") -> None:
        super().__init__()
        self.editor = Editor()
        self._chips = Horizontal(classes="chips")
        self._initial_draft = draft

    def compose(self) -> ComposeResult:
        yield self._chips
        yield self.editor

    async def on_mount(self) -> None:
        await self.set_draft(self._initial_draft)

    @property
    def text(self) -> str:
        """The whole message: what was typed, then what was pasted."""
        return "\n\n".join(part for part in self.draft.split(SEPARATOR) if part.strip())

    @property
    def draft(self) -> str:
        """Everything needed to show this composer again."""
        return SEPARATOR.join([self.editor.text, *(chip.text for chip in self._chips.query(Chip))])

    async def set_draft(self, draft: str) -> None:
        text, *pasted = draft.split(SEPARATOR)
        self.editor.load_text(text)
        self.editor.move_cursor(self.editor.document.end)
        await self._chips.query(Chip).remove()
        await self._chips.mount_all(Chip(text) for text in pasted)
        self._show_chips()

    async def clear(self) -> None:
        await self.set_draft("")

    def expand_chips(self) -> None:
        """Put all pasted texts into the editor."""
        for chip in self._chips.query(Chip):
            chip.post_message(Chip.Clicked(chip, keep_text=True))

    @on(Editor.Sent)
    def _send(self) -> None:
        if text := self.text:
            self.post_message(self.Submitted(text))

    @on(Editor.Pasted)
    async def _add_chip(self, event: Editor.Pasted) -> None:
        await self._chips.mount(Chip(event.text))
        self._chips_changed()

    @on(Editor.Emptied)
    async def _remove_last_chip(self) -> None:
        if chips := self._chips.query(Chip):
            await chips.last().remove()
            self._chips_changed()

    @on(Chip.Clicked)
    async def _dissolve_chip(self, event: Chip.Clicked) -> None:
        await event.chip.remove()
        if event.keep_text:
            self.editor.insert(event.chip.text)
        self._chips_changed()
        self.editor.focus()

    @on(Editor.LeftUp)
    def _recall(self) -> None:
        if not self._chips.query(Chip):
            self.post_message(self.RecallWanted())

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(self.draft))

    def _chips_changed(self) -> None:
        self._show_chips()
        self.post_message(self.Changed(self.draft))

    def _show_chips(self) -> None:
        self._chips.display = bool(self._chips.query(Chip))
