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
from kvchat.tui.widgets.markdown import ReplyMarkdown

_ENDINGS: dict[FinishReason, str] = {
    "length": "cut at the token limit",
    "context_full": "cut: the context is full",
    "aborted": "stopped",
}


class AssistantMessage(Vertical):
    """A reply and, below it, a line that says what it is doing, what it cost or why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[StoredMessage, str] | None = None
        self._text = ReplyMarkdown()
        self._foot = Static(markup=False, classes="foot")

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._foot

    async def show_reply(self, reply: Reply) -> None:
        """Show the reply while it is generated."""
        await self._text.show(printable(reply.text), complete=False)
        self._foot.update(Content(describe(reply)))

    async def show_message(self, message: StoredMessage, branch: str = "") -> None:
        """Show the reply as it ended; `branch` says which of several it ends."""
        if (message, branch) == self._shown:
            return
        self._shown = message, branch
        await self._text.show(printable(message.text), complete=True)
        self._foot.update(Content(" · ").join(filter(None, [Content(branch), foot(message)])))


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
