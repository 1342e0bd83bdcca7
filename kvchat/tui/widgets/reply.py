"""A reply on the screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from kvchat.branch import Reply
from kvchat.store import StoredMessage
from kvchat.tui.format import printable
from kvchat.tui.widgets.foot import Foot
from kvchat.tui.widgets.markdown import ReplyMarkdown


class AssistantMessage(Vertical):
    """A reply and, below it, a line that says what it is doing, what it cost or why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[StoredMessage, str] | None = None
        self._text = ReplyMarkdown()
        self._foot = Foot()

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._foot

    async def show_reply(self, reply: Reply) -> None:
        """Show the reply while it is generated."""
        await self._text.show(printable(reply.text), complete=False)
        self._foot.show_reply(reply)

    async def show_message(self, message: StoredMessage, branch: str = "") -> None:
        """Show the reply as it ended; `branch` says which of several it ends."""
        if (message, branch) == self._shown:
            return
        self._shown = message, branch
        await self._text.show(printable(message.text), complete=True)
        self._foot.show_message(message, branch)
