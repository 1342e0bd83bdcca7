"""A field for words, and below it the conversations that contain them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.store import StoreError
from kvchat.tui.ask import ask
from kvchat.tui.format import count, printable, typed
from kvchat.tui.workspace import Stored, Workspace

ROWS = 300
SEARCH_DELAY_S = 0.15


class Finder(Vertical):
    """Lists the conversations, or those that contain what is typed; a chosen one is told with Chosen.

    The keys go to the words; some of them move the highlight, archive or delete.
    """

    BINDINGS = [
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

    class Chosen(Message):
        """The user wants to see this conversation."""

        def __init__(self, stored: Stored) -> None:
            super().__init__()
            self.stored = stored

    def __init__(self, workspace: Workspace, words: str, placeholder: str, hint: str, texts: bool) -> None:
        """`texts`: whether the rows show the last message of each."""
        super().__init__()
        self._workspace = workspace
        self._texts = texts
        self._hint = hint
        self.words = Input(typed(words), compact=True, placeholder=placeholder)
        self.list = OptionList(compact=True, markup=False)
        self.list.can_focus = False
        self._count = Static(classes="hint", markup=False)
        self._found: dict[str, Stored] = {}
        self._search_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.words
        yield self.list
        yield self._count

    def options(self, found: Sequence[Stored]) -> Sequence[Option]:
        """The rows of what was found, each with the conversation's id; headings are rows that are disabled."""
        raise NotImplementedError

    @property
    def searching(self) -> bool:
        """What is typed is not listed yet."""
        return self._search_timer is not None

    def search_soon(self, delay_s: float = SEARCH_DELAY_S) -> None:
        if self._search_timer:
            self._search_timer.stop()
        self._search_timer = self.set_timer(delay_s, self.search)

    def search(self) -> None:
        """List what is asked for now, and highlight the first."""
        self._search_timer = None
        try:
            found, rest = self._workspace.history(self.words.value, ROWS, self._texts)
        except StoreError as error:
            self._count.update(printable(str(error)))
            return
        self._found = {stored.conversation.id: stored for stored in found}
        self.list.set_options(self.options(found))
        self.highlight(next(iter(self._found), None))
        more = "" if rest == 0 else f" · {'' if rest is None else count(rest) + ' '}more: type to find them"
        self._count.update(f"{count(len(found))} shown{more}{self._hint}")

    def highlight(self, conversation_id: str | None) -> None:
        """Move the highlight to a conversation that is listed, or to none."""
        self.list.highlighted = (
            self.list.get_option_index(conversation_id) if conversation_id and conversation_id in self._found else None
        )

    @property
    def highlighted(self) -> Stored | None:
        option = self.list.highlighted_option
        return self._found.get(option.id or "") if option else None

    async def action_move(self, how: str) -> None:
        await self.app.run_action(how, self.list)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.search_soon()

    @on(Input.Submitted)
    def _open_highlighted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._search_timer:  # the list is not yet what was asked for
            self._search_timer.stop()
            self.search()
        self.list.action_select()

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._found[event.option_id or ""]))

    def action_archive(self) -> None:
        if chosen := self._highlighted_closed():
            self._change(lambda: self._workspace.archive(chosen.conversation))

    @work
    async def action_delete(self) -> None:
        from kvchat.tui.screens.confirm import ConfirmScreen

        if chosen := self._highlighted_closed():
            question = f"Delete this conversation for good?\n\n{printable(chosen.conversation.title) or 'New chat'}"
            if await ask(self.screen, ConfirmScreen(question, "Delete", loses=True)):
                self._change(lambda: self._workspace.delete(chosen.conversation))

    def _highlighted_closed(self) -> Stored | None:
        chosen = self.highlighted
        if chosen and chosen.is_open:
            self.notify("This conversation is open: close its tab first", severity="warning")
            return None
        return chosen

    def _change(self, change: Callable[[], None]) -> None:
        row = self.list.highlighted or 0
        try:
            change()
        except StoreError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return
        self.search()
        if self._found:
            self.list.highlighted = min(row, self.list.option_count - 1)
