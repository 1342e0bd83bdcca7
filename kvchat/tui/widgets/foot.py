"""The line below a reply: what it is doing, what it cost or why it failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from engine.api import FinishReason
from kvchat.branch import Reply
from kvchat.store import StoredMessage
from kvchat.tui.format import count, printable, rate, statistics, tokens

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp

_ENDINGS: dict[FinishReason, str] = {
    "length": "cut at the token limit",
    "context_full": "cut: the context is full",
    "aborted": "stopped",
}


class Foot(Static):
    """A click asks where the time went."""

    class CostWanted(Message):
        """The user wants to know why this reply was slow."""

        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._message_id: int | None = None
        """Of a reply that has something to tell."""

    def show_reply(self, reply: Reply) -> None:
        """Tell what a running reply is doing."""
        self._message_id = None
        self.update(Content(describe(reply)))

    def show_message(self, message: StoredMessage, branch: str, last: bool) -> None:
        """Tell how a reply ended; `branch` says which of several it ends, the `last` message can go on."""
        self._message_id = message.id if message.metrics else None
        self.set_class(self._message_id is not None, "-tells")
        key_of = cast("KvChatApp", self.app).key_of
        self.tooltip = f"Click, or {key_of('why_so_slow')}: where the time went" if message.metrics else None
        self.update(Content(" · ").join(filter(None, [Content(branch), ending(message, key_of, last)])))

    def on_click(self, event: Click) -> None:
        if self._message_id is not None:
            event.stop()  # it is not about the message
            self.post_message(self.CostWanted(self._message_id))


def describe(reply: Reply) -> str:
    """What a running reply is doing, on one line."""
    if reply.stopping:
        return "stopping…"
    if not reply.prompt_tokens:
        return "waiting for the engine…"
    match reply.phase:
        case "queued":
            what = "preempted" if reply.metrics and reply.metrics.preemptions else "queued"
            return f"{what}: {printable(reply.reason)}" if reply.reason else f"{what}…"
        case "prefill":
            parts = [f"reading {count(reply.computed_tokens)} / {count(reply.prompt_tokens)} tokens"]
        case "decode":
            speed = reply.metrics.tokens_per_s if reply.metrics else None
            parts = ([f"{rate(speed)} tok/s"] if speed else []) + [tokens(len(reply.token_ids))]
    if reply.reread_tokens:
        parts.append(f"{tokens(reply.reread_tokens)} of history read again")
    return " · ".join(parts)


def ending(message: StoredMessage, key_of: Callable[[str], str], last: bool) -> Content:
    """How a reply ended, what can be done about it while it is the last message, and what it cost; `key_of` gives the
    key of a binding."""
    parts: list[Content] = []
    if message.status == "failed":
        parts.append(Content.styled(f"failed: {printable(message.error)}", "$text-error"))
    elif message.status == "stopped":
        parts.append(Content.styled(_ENDINGS["aborted"], "$text-warning"))
    elif message.finish_reason in _ENDINGS:
        parts.append(Content.styled(_ENDINGS[message.finish_reason], "$text-warning"))
    if last and message.token_ids and (message.status in ("failed", "stopped") or message.finish_reason == "length"):
        parts.append(Content(f"{key_of('continue')} continues"))
    if last and message.status in ("failed", "stopped"):
        parts.append(Content(f"{key_of('try_again')} tries again"))
    if message.metrics and message.metrics.ttft_s is not None:
        parts.append(Content(statistics(message.metrics)))
    return Content(" · ").join(parts)
