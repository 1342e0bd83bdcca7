"""Opens a conversation of the history, archives or deletes it."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.store import StoreError
from kvchat.tui.format import count, printable, typed
from kvchat.tui.workspace import Stored, Workspace

ROWS = 300
SEARCH_DELAY_S = 0.15
TEXT_LENGTH = 200


class HistoryScreen(ModalScreen[Stored | None]):
    """Lists the conversations, or those that contain what is typed. Dismissed with the chosen one or None."""

    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", show=False),
        Binding("up", "move('cursor_up')", show=False),
        Binding("down", "move('cursor_down')", show=False),
        Binding("pageup", "move('page_up')", show=False),
        Binding("pagedown", "move('page_down')", show=False),
        Binding(
            "f8",
            "archive",
            "Archive",
            show=False,
            tooltip="Archive it, or bring it back: only words find an archived one",
        ),
        Binding(
            "ctrl+x", "delete", "Delete", show=False, priority=True, tooltip="Delete it for good, after a question"
        ),
    ]

    def __init__(self, workspace: Workspace, words: str = "") -> None:
        super().__init__()
        self._workspace = workspace
        self._found: list[Stored] = []
        self._words = Input(typed(words), compact=True, placeholder="Words of the title or of any message")
        self._list = OptionList(compact=True)
        self._list.can_focus = False  # the keys go to the words; some of them move the highlight
        self._count = Static(classes="hint", markup=False)
        self._search_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="history"):
            yield Static("Open conversation", classes="heading", markup=False)
            yield self._words
            yield self._list
            yield self._count

    def on_mount(self) -> None:
        self._search()

    @on(Input.Changed)
    def _search_soon(self) -> None:
        if self._search_timer:
            self._search_timer.stop()
        self._search_timer = self.set_timer(SEARCH_DELAY_S, self._search)

    def _search(self) -> None:
        self._search_timer = None
        try:
            found, rest = self._workspace.history(self._words.value, ROWS)
        except StoreError as error:
            self._count.update(printable(str(error)))
            return
        self._found = found
        self._list.set_options(map(_option, found))
        self._list.highlighted = 0 if found else None
        more = "" if rest == 0 else f" · {'' if rest is None else count(rest) + ' '}more: type to find them"
        self._count.update(f"{count(len(found))} shown{more} · Enter opens · F8 archives · ^X deletes · Esc cancels")

    async def action_move(self, how: str) -> None:
        await self.app.run_action(how, self._list)

    @on(Input.Submitted)
    def _open_highlighted(self) -> None:
        if self._search_timer:  # the list is not yet what was asked for
            self._search_timer.stop()
            self._search()
        self._list.action_select()

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index])

    def action_archive(self) -> None:
        if chosen := self._highlighted_closed():
            self._change(lambda: self._workspace.archive(chosen.conversation))

    @work
    async def action_delete(self) -> None:
        from kvchat.tui.screens.confirm import ConfirmScreen

        if chosen := self._highlighted_closed():
            question = f"Delete this conversation for good?\n\n{printable(chosen.conversation.title) or 'New chat'}"
            if await self.app.push_screen_wait(ConfirmScreen(question, "Delete")):
                self._change(lambda: self._workspace.delete(chosen.conversation))

    def _highlighted_closed(self) -> Stored | None:
        row = self._list.highlighted
        if row is None:
            return None
        if self._found[row].is_open:
            self.notify("This conversation is open: close its tab first", severity="warning")
            return None
        return self._found[row]

    def _change(self, change: Callable[[], None]) -> None:
        row = self._list.highlighted
        try:
            change()
        except StoreError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return
        self._search()
        if self._found:
            self._list.highlighted = min(row or 0, len(self._found) - 1)


def _option(stored: Stored) -> Option:
    conversation = stored.conversation
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(conversation.updated_at))
    text = " ".join(stored.text[:TEXT_LENGTH].split())
    about = " · ".join(filter(None, [when, stored.persona, text]))
    content = Content.assemble(
        (printable(conversation.title) or "New chat", "bold"),
        "\n",
        ("open · ", "$text-success") if stored.is_open else "",
        ("archived · ", "$text-warning") if conversation.archived else "",
        (printable(about), "$foreground-muted"),
    )
    return Option(content, id=conversation.id)
