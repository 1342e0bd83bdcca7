"""Opens a conversation of the history, archives or deletes it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.widgets.option_list import Option

from kvchat.tui.format import hashtags, printable
from kvchat.tui.widgets.finder import Finder
from kvchat.tui.workspace import Stored, Workspace

TEXT_LENGTH = 200


class History(Finder):
    """Two lines a conversation: its title, and what is known of it."""

    def __init__(self, workspace: Workspace, words: str) -> None:
        hint = " · Enter opens · F8 archives · ^X deletes · Esc cancels"
        super().__init__(workspace, words, "Words of the title or of any message", hint, texts=True)

    def on_mount(self) -> None:
        self.search()

    def options(self, found: Sequence[Stored]) -> Sequence[Option]:
        return [_option(stored) for stored in found]


class HistoryScreen(ModalScreen[Stored | None]):
    """Dismissed with the conversation that was chosen, or with None."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel", show=False)]

    def __init__(self, workspace: Workspace, words: str = "") -> None:
        super().__init__()
        self._history = History(workspace, words)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="history"):
            yield Static("Open conversation", classes="heading", markup=False)
            yield self._history

    @on(Finder.Chosen)
    def _chosen(self, event: Finder.Chosen) -> None:
        self.dismiss(event.stored)


def _option(stored: Stored) -> Option:
    conversation = stored.conversation
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(conversation.updated_at))
    text = " ".join(stored.text[:TEXT_LENGTH].split())
    about = " · ".join(filter(None, [when, stored.persona, hashtags(conversation.tags), text]))
    content = Content.assemble(
        (printable(conversation.title) or "New chat", "bold"),
        "\n",
        ("open · ", "$text-success") if stored.is_open else "",
        ("archived · ", "$text-warning") if conversation.archived else "",
        (printable(about), "$foreground-muted"),
    )
    return Option(content, id=conversation.id)
