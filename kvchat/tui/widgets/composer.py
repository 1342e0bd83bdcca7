"""Where the user writes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from textual import on
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Click, Key, Paste
from textual.keys import Keys
from textual.message import Message
from textual.widgets import Static, TextArea

from kvchat.tui.attachments import AttachmentError, attached_name, read_attachment
from kvchat.tui.completion import Candidate
from kvchat.tui.estimate import estimated_tokens
from kvchat.tui.format import count, printable, size, typed
from kvchat.tui.widgets.completions import Complete, Completions

CHIP_LINES = 20
CHIP_CHARACTERS = 2_000
SEPARATOR = "\x1e"
"""Between the typed text and each pasted one in a draft; no text that is typed or pasted contains it."""


def joined(first: str, second: str) -> str:
    """One draft of two: the typed texts, then the pasted ones."""
    (text, *pasted), (more, *others) = first.split(SEPARATOR), second.split(SEPARATOR)
    return SEPARATOR.join(["\n\n".join(filter(None, [text, more])), *pasted, *others])


# Alt+Enter in most terminals. Textual knows it from the few that name each key, and takes this one for Enter.
cast(dict[str, object], ANSI_SEQUENCES_KEYS)["\x1b\r"] = (Keys.ControlJ,)


class Chip(Static):
    """A large paste or a file: a click puts it into the text, a click on the cross removes it."""

    CROSS = " ✕ "

    class Clicked(Message):
        """The user wants the chip away, and its text in the composer or not."""

        def __init__(self, chip: Chip, keep_text: bool) -> None:
            super().__init__()
            self.chip = chip
            self.keep_text = keep_text

    def __init__(self, text: str) -> None:
        super().__init__(Content.assemble(f" {_label(text)}", (self.CROSS, "$foreground-muted")))
        self.text = text
        self.tooltip = "Click to edit as text"

    def on_click(self, event: Click) -> None:
        self.post_message(self.Clicked(self, keep_text=event.x < self.size.width - len(self.CROSS)))


def _label(text: str) -> str:
    if name := attached_name(text):
        return f"{printable(name)} · {size(len(text.encode()))} · about {count(estimated_tokens(text))} tokens"
    lines = text.rstrip("\n").count("\n") + 1
    return f"pasted · {count(lines)} lines" if lines > 1 else f"pasted · {count(len(text))} characters"


class Editor(TextArea):
    """The text itself; it grows with its lines. What is more than text it leaves to its composer."""

    BINDINGS = [
        Binding("enter", "send", "Send"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line"),
        Binding("up", "cursor_up", show=False, tooltip="On an empty line: the message sent last, then those before it"),
        Binding("down", "cursor_down", show=False, tooltip="From a recalled message back towards the empty line"),
        Binding("tab", "complete", show=False, tooltip="Complete a /command, or an @path to attach the file"),
        Binding("escape", "screen.leave", show=False, tooltip="Give up an edit, or leave the message you went to"),
    ]

    def __init__(self, composer: Composer) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder="Write a message")
        self._composer = composer

    async def on_key(self, event: Key) -> None:
        """Do what a key is bound to before the next one is read: left to Textual, the key would first travel to the
        application, and characters typed after it would overtake it."""
        if await self._composer.completion_key(event.key):
            event.stop()
            event.prevent_default()
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                break
        else:
            if event.key.startswith("alt+"):  # of what is not possible now; it is no letter of the message
                event.prevent_default()

    async def action_send(self) -> None:
        await self._composer.submit()

    def action_complete(self) -> None:
        """Without anything to complete, Tab does nothing: the keys stay with the text."""

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    async def action_cursor_up(self, select: bool = False) -> None:  # type: ignore[override]
        at_first = self.navigator.is_first_wrapped_line(self.cursor_location)
        if select or not at_first or not await self._composer.recall(-1):
            super().action_cursor_up(select)

    async def action_cursor_down(self, select: bool = False) -> None:  # type: ignore[override]
        at_last = self.navigator.is_last_wrapped_line(self.cursor_location)
        if select or not at_last or not await self._composer.recall(1):
            super().action_cursor_down(select)

    async def action_delete_left(self) -> None:  # type: ignore[override]
        if self.text:
            super().action_delete_left()
        else:
            await self._composer.remove_last_chip()

    async def action_paste(self) -> None:  # type: ignore[override]
        await self._take(self.app.clipboard)

    async def on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        await self._take(event.text)

    async def _take(self, text: str) -> None:
        text = typed(text)
        if text.count("\n") >= CHIP_LINES or len(text) > CHIP_CHARACTERS:
            await self._composer.add_chip(text)
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
        """The user wants to see the message that was sent before what is written here, or after it."""

        def __init__(self, step: Literal[-1, 1]) -> None:
            super().__init__()
            self.step = step

    def __init__(self, draft: str = "", complete: Complete = lambda before: ()) -> None:
        super().__init__()
        self._completions = Completions(complete)
        self.editor = Editor(self)
        self._chips = Horizontal(classes="chips")
        self._initial_draft = draft

    def compose(self) -> ComposeResult:
        yield self._completions
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
        self._chips_changed()

    async def clear(self) -> None:
        await self.set_draft("")

    def expand_chips(self) -> None:
        """Put all pasted texts into the editor."""
        for chip in self._chips.query(Chip):
            chip.post_message(Chip.Clicked(chip, keep_text=True))

    async def submit(self) -> None:
        """Have the message sent, if there is one."""
        if text := self.text:
            await self._tell(self.Submitted(text))

    async def completion_key(self, key: str) -> bool:
        """Let the list of completions have a key; whether it had a use for it."""
        self._offer()
        candidate = self._completions.candidate
        if candidate is None:
            return False
        match key:
            case "up" | "down":
                self._completions.move(key)
            case "escape":
                self._completions.dismiss()
            case "enter" if not self._completions.on_enter:
                return False
            case "tab" | "enter":
                await self._accept(candidate)
                nothing_follows = candidate.is_written and not self._completions.candidate
                if key == "enter" and (candidate.final or nothing_follows):
                    await self.submit()
            case _:
                return False
        return True

    def close_completions(self) -> bool:
        """Close the list of completions; whether it was open."""
        return self._completions.dismiss()

    async def attach(self, path: Path) -> None:
        """Take a text file along, or say why not."""
        try:
            text = read_attachment(path)
        except AttachmentError as error:
            self.notify(printable(str(error)), severity="error", timeout=10, markup=False)
        else:
            await self.add_chip(text)

    def forecast(self, text: str, warn: bool) -> None:
        """Say something about sending, in the frame below the text."""
        self.border_subtitle = Content.styled(text, "$text-warning" if warn else "$foreground-muted")

    def tell(self, what: str) -> None:
        """Say in the frame above the text what is written here; nothing for a new message."""
        self.border_title = Content(what)
        self.set_class(bool(what), "-editing")

    async def recall(self, step: Literal[-1, 1]) -> bool:
        """Have a message that was sent brought back; whether another text is here now."""
        before = self.draft
        await self._tell(self.RecallWanted(step))
        if self.draft == before:
            return False
        self._offer()
        self._completions.dismiss()  # the arrows are for the walk
        return True

    async def add_chip(self, text: str) -> None:
        """Take a text that is too large to stand in the editor."""
        await self._chips.mount(Chip(text))
        self._chips_changed()

    async def remove_last_chip(self) -> None:
        if chips := self._chips.query(Chip):
            await chips.last().remove()
            self._chips_changed()

    async def _tell(self, message: Message) -> None:
        """Let the parent act on a message at once; of a posted one it would hear after keys typed later."""
        if self.parent:
            await self.parent._dispatch_message(message)

    @on(Chip.Clicked)
    async def _dissolve_chip(self, event: Chip.Clicked) -> None:
        await event.chip.remove()
        if event.keep_text:
            self.editor.insert(event.chip.text)
        self._chips_changed()
        self.editor.focus()

    @on(Completions.Chosen)
    async def _chosen(self, event: Completions.Chosen) -> None:
        event.stop()
        await self._accept(event.candidate)
        self.editor.focus()

    async def _accept(self, candidate: Candidate) -> None:
        row, column = self.editor.cursor_location
        self.editor.replace(candidate.text, (row, column - candidate.replaces), (row, column))
        if candidate.path:
            await self.attach(candidate.path)
        self._offer()

    def _offer(self) -> None:
        row, column = self.editor.cursor_location
        before = self.editor.document.get_line(row)[:column]
        self._completions.refresh_for(before if row == 0 or "@" in before else "")

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._offer()
        self.post_message(self.Changed(self.draft))

    def _chips_changed(self) -> None:
        self._show_chips()
        self.post_message(self.Changed(self.draft))

    def _show_chips(self) -> None:
        self._chips.display = bool(self._chips.query(Chip))
