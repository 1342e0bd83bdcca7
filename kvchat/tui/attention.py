"""Tells the user that a reply ended which they do not look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from kvchat.conversation import ConversationController
from kvchat.tui.format import printable
from kvchat.tui.keymap import spelled

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

    from kvchat.tui.app import KvChatApp
    from kvchat.tui.screens.chat import ChatScreen

Attention = Literal["toast", "bell", "desktop"]
"""toast: within the window; bell: also the terminal's bell; desktop: also a notification by OSC 9, which iTerm2, kitty,
WezTerm, Ghostty and Windows Terminal show."""


def tell_of_ended(chat: ChatScreen, tab: ConversationController, how: Attention) -> None:
    """A reply ended in `tab`: say so unless the user sees it."""
    last = tab.messages[-1]
    if last.status not in ("complete", "failed"):
        return
    title = printable(tab.title) or "New chat"
    what = "the reply is here" if last.status == "complete" else f"the reply failed: {printable(last.error)}"
    if not tab.visible:
        severity: SeverityLevel = "information" if last.status == "complete" else "error"
        chat.notify(what + _way(chat, tab), title=title, severity=severity, markup=False)
    if how != "toast" and (not tab.visible or not chat.app.app_focus):
        call(chat, how, f"{title}: {what}")


def call(chat: ChatScreen, how: Attention, text: str) -> None:
    """Have the terminal ring, or the desktop show a line."""
    if how == "bell":
        chat.app.bell()
    elif driver := chat.app._driver:
        driver.write(f"\x1b]9;{' '.join(text.split())}\x07")


def _way(chat: ChatScreen, tab: ConversationController) -> str:
    """How to get there."""
    number = chat.workspace.tabs.index(tab) + 1
    return f" · {spelled(f'tab_{number}', cast('KvChatApp', chat.app).keymap)}" if number < 10 else ""
