"""Says how full the context of the tab that is shown is: before a message is sent, and when nothing more fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.tui import slash
from kvchat.tui.context import WARN_ABOVE, newest_turns, summary_request
from kvchat.tui.estimate import estimated_tokens, sending_cost
from kvchat.tui.format import count, percent
from kvchat.tui.monitor import Monitor

if TYPE_CHECKING:
    from kvchat.tui.screens.chat import ChatScreen
    from kvchat.tui.widgets.chat_pane import ChatPane


class ContextGuard:
    def __init__(self, chat: ChatScreen, monitor: Monitor) -> None:
        self._chat, self._monitor = chat, monitor
        self._warned: set[str] = set()
        """Conversations whose user was told that the context is nearly full."""

    def forecast(self, pane: ChatPane) -> None:
        """Say what sending the draft of the tab that is shown will cost, and warn once when little is left."""
        tab, limit = self._chat.workspace.active, self._monitor.context_length
        if not limit:
            return
        filled = tab.context_tokens / limit
        parts = [f"context {percent(filled)}"] if tab.context_tokens else []
        text = pane.composer.text
        if text and not slash.is_command(text):
            new = estimated_tokens(text if tab.messages else tab.conversation.system_prompt + text)
            parts.insert(0, sending_cost(new, tab.context_tokens, self._monitor.prefill_tokens_per_s))
        pane.composer.forecast(" · ".join(parts), filled > WARN_ABOVE)
        if filled <= WARN_ABOVE:
            self._warned.discard(tab.id)
        elif tab.id not in self._warned:
            self._warned.add(tab.id)
            left = count(max(0, limit - tab.context_tokens))
            self._chat.notify(f"Context {percent(filled)} full: {left} tokens left", severity="warning")

    async def ask_when_full(self) -> None:
        """Let the user choose how to go on when the context of the tab that is shown is full. Raises StoreError."""
        from kvchat.tui.screens.context_full import ContextFullScreen

        chat, limit = self._chat, self._monitor.context_length
        tab = chat.workspace.active
        if not tab.context_full or not tab.messages:
            return
        tab.context_full = False
        choice = await chat.app.push_screen_wait(ContextFullScreen())
        if choice == "stop" or chat.workspace.find(tab.id) is None:
            return
        kept = newest_turns(tab.messages, limit) if choice == "drop" else []
        new = chat.workspace.open_continuation(tab, kept)
        new.draft, tab.draft = tab.draft, ""
        await chat.show_tab(new)
        await chat.pane_of(tab).composer.clear()
        if choice == "summarise":
            new.send(summary_request(tab.messages, limit))
        else:
            left = count(len(tab.messages) - len(kept))
            chat.notify(f"{left} older messages are not read any more; they stay in the other tab", timeout=8)
