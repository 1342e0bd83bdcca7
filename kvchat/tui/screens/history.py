"""Opens a conversation of the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.store import StoreError
from kvchat.tui.format import count, printable
from kvchat.tui.workspace import Stored

ROWS = 300
SEARCH_DELAY_S = 0.15
TEXT_LENGTH = 200

Find = Callable[[str, int], tuple[Sequence[Stored], int | None]]
"""(words, limit) -> what was found, and how much more there is, None if that is not known; may raise StoreError."""


class HistoryScreen(ModalScreen[str | None]):
    """Lists the conversations, or those that contain what is typed. Dismissed with the id of the chosen one or None."""

    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", show=False),
        Binding("up", "move('cursor_up')", show=False),
        Binding("down", "move('cursor_down')", show=False),
        Binding("pageup", "move('page_up')", show=False),
        Binding("pagedown", "move('page_down')", show=False),
    ]

    def __init__(self, find: Find, words: str = "") -> None:
        super().__init__()
        self._find = find
        self._words = Input(words, compact=True, placeholder="Words of the title or of any message")
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
            found, rest = self._find(self._words.value, ROWS)
        except StoreError as error:
            self._count.update(printable(str(error)))
            return
        self._list.set_options(map(_option, found))
        self._list.highlighted = 0 if found else None
        more = "" if rest == 0 else f" · {'' if rest is None else count(rest) + ' '}more: type to find them"
        self._count.update(f"{count(len(found))} shown{more} · Enter opens it · Esc cancels")

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
        self.dismiss(event.option_id)


def _option(stored: Stored) -> Option:
    conversation = stored.conversation
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(conversation.updated_at))
    text = " ".join(stored.text[:TEXT_LENGTH].split())
    about = " · ".join(filter(None, [when, stored.persona, text]))
    content = Content.assemble(
        (printable(conversation.title) or "New chat", "bold"),
        "\n",
        ("open · ", "$text-success") if stored.is_open else "",
        (printable(about), "$foreground-muted"),
    )
    return Option(content, id=conversation.id)
