"""A reply on the screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from kvchat.branch import Reply
from kvchat.store import StoredMessage
from kvchat.tui.format import printable
from kvchat.tui.widgets.backdrop import Backdrop
from kvchat.tui.widgets.extents import Extents
from kvchat.tui.widgets.foot import Foot
from kvchat.tui.widgets.markdown import ReplyMarkdown
from kvchat.tui.widgets.sections import FIRST, Section, following
from kvchat.tui.widgets.unscrolled import Unscrolled


class AssistantMessage(Vertical, Backdrop, Unscrolled):
    """A reply and, below it, a line that says what it is doing, what it cost or why it failed.

    A long one consists of sections, and of those only the ones near the view are drawn, see `draw`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[StoredMessage, str, bool] | None = None
        self._text = ""
        self._sections: list[Section] = []
        self._bodies: list[ReplyMarkdown] = []
        """Of the sections."""
        self._foot = Foot()

    def compose(self) -> ComposeResult:
        yield self._foot

    async def show_reply(self, reply: Reply) -> None:
        """Show the reply while it is generated."""
        await self._show(printable(reply.text), complete=False)
        self._foot.show_reply(reply)

    async def show_message(self, message: StoredMessage, branch: str, last: bool) -> None:
        """Show the reply as it ended; `branch` says which of several it ends, the `last` message can go on."""
        if (message, branch, last) == self._shown:
            return
        self._shown = message, branch, last
        await self._show(printable(message.text), complete=True)
        self._foot.show_message(message, branch, last)

    def extents(self) -> Extents:
        """Where its sections are, in rows that are guessed as long as they were not drawn."""
        return Extents(body.rows for body in self._bodies)

    @property
    def drawn(self) -> range:
        """The sections that are drawn."""
        drawn = [index for index, body in enumerate(self._bodies) if body.drawn]
        return range(drawn[0], drawn[-1] + 1) if drawn else range(0)

    async def draw(self, sections: range) -> None:
        """Draw these sections and no others. A single one always is."""
        for index, body in enumerate(self._bodies):
            if index in sections or len(self._bodies) == 1:
                await body.draw()
            else:
                await body.undraw()

    async def _show(self, text: str, complete: bool) -> None:
        if not text.startswith(self._text):
            await self.remove_children(self._bodies)
            self._sections, self._bodies = [], []
        self._text = text
        first = max(0, len(self._sections) - 1)
        self._sections = self._sections or [FIRST]
        while section := following(text, self._sections[-1]):
            self._sections.append(section)
        missing = len(self._sections) - len(self._bodies)
        drawn = not self._bodies or self._bodies[-1].drawn
        added = [ReplyMarkdown(drawn and (not complete or missing == 1)) for _ in range(missing)]
        self._bodies += added
        await self.mount_all(added, before=self._foot)
        ends = [section.start for section in self._sections[1:]] + [len(text)]
        for index in range(first, len(ends)):
            section, last = self._sections[index], index == len(ends) - 1
            part = section.opening + text[section.start : ends[index]]
            await self._bodies[index].show(part, complete or not last)
