"""A reply on the screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from engine.api import FinishReason
from kvchat.branch import Reply
from kvchat.store import StoredMessage
from kvchat.tui.format import count, printable, rate, statistics, tokens
from kvchat.tui.widgets.extents import Extents
from kvchat.tui.widgets.markdown import ReplyMarkdown
from kvchat.tui.widgets.sections import FIRST, Section, following

_ENDINGS: dict[FinishReason, str] = {
    "length": "cut at the token limit",
    "context_full": "cut: the context is full",
    "aborted": "stopped",
}


class AssistantMessage(Vertical):
    """A reply and, below it, a line that says what it is doing, what it cost or why it failed.

    A long one consists of sections, and of those only the ones near the view are drawn, see `draw`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[StoredMessage, str] | None = None
        self._text = ""
        self._sections: list[Section] = []
        self._bodies: list[ReplyMarkdown] = []
        """Of the sections."""
        self._foot = Static(markup=False, classes="foot")

    def compose(self) -> ComposeResult:
        yield self._foot

    async def show_reply(self, reply: Reply) -> None:
        """Show the reply while it is generated."""
        await self._show(printable(reply.text), complete=False)
        self._foot.update(Content(describe(reply)))

    async def show_message(self, message: StoredMessage, branch: str = "") -> None:
        """Show the reply as it ended; `branch` says which of several it ends."""
        if (message, branch) == self._shown:
            return
        self._shown = message, branch
        await self._show(printable(message.text), complete=True)
        self._foot.update(Content(" · ").join(filter(None, [Content(branch), foot(message)])))

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


def describe(reply: Reply) -> str:
    """What a running reply is doing, on one line."""
    if reply.stopping:
        return "stopping…"
    if not reply.prompt_tokens:
        return "waiting for the engine…"
    match reply.phase:
        case "queued":
            return f"queued: {printable(reply.reason)}" if reply.reason else "queued…"
        case "prefill":
            parts = [f"reading {count(reply.computed_tokens)} / {count(reply.prompt_tokens)} tokens"]
        case "decode":
            speed = reply.metrics.tokens_per_s if reply.metrics else None
            parts = ([f"{rate(speed)} tok/s"] if speed else []) + [tokens(len(reply.token_ids))]
    if reply.reread_tokens:
        parts.append(f"{tokens(reply.reread_tokens)} of history read again")
    return " · ".join(parts)


def foot(message: StoredMessage) -> Content:
    """How a reply ended and what it cost."""
    parts: list[Content] = []
    if message.status == "failed":
        parts.append(Content.styled(f"failed: {printable(message.error)}", "$text-error"))
    elif message.status == "stopped":
        parts.append(Content.styled(_ENDINGS["aborted"], "$text-warning"))
    elif message.finish_reason in _ENDINGS:
        parts.append(Content.styled(_ENDINGS[message.finish_reason], "$text-warning"))
    if message.token_ids and (message.status in ("failed", "stopped") or message.finish_reason == "length"):
        parts.append(Content("Alt+C continues"))
    if message.status in ("failed", "stopped"):
        parts.append(Content("F5 tries again"))
    if message.metrics and message.metrics.ttft_s is not None:
        parts.append(Content(statistics(message.metrics)))
    return Content(" · ").join(parts)
