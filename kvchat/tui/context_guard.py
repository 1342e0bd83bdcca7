"""Says how full the context of the tab that is shown is: before a message is sent, and when nothing more fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import EngineState, Metrics
from kvchat.conversation import ConversationController
from kvchat.tui.context import WARN_ABOVE, newest_turns, summary_request
from kvchat.tui.estimate import estimated_tokens, sending_cost
from kvchat.tui.format import count, percent
from kvchat.tui.monitor import Monitor
from kvchat.tui.read_prefixes import ReadPrefixes
from kvchat.writing import is_command

if TYPE_CHECKING:
    from kvchat.tui.screens.chat import ChatScreen
    from kvchat.tui.widgets.chat_pane import ChatPane


class ContextGuard:
    def __init__(self, chat: ChatScreen, monitor: Monitor) -> None:
        self._chat, self._monitor = chat, monitor
        self._warned: set[str] = set()
        """Conversations whose user was told that the context is nearly full."""
        self._read = ReadPrefixes()

    def engine_changed(self, engine: EngineState) -> None:
        if engine.state != "ready":
            self._read.clear()

    def replied(self, tab: ConversationController, metrics: Metrics) -> None:
        """A reply ended; the engine read all before it if there was a first token."""
        if metrics.ttft_s is not None:
            self._read.add(tab.conversation.system_prompt, tab.token_ids)

    def forecast(self, pane: ChatPane) -> None:
        """Say what sending the draft of the tab that is shown will cost, and warn once when little is left."""
        tab, limit = self._chat.workspace.active, self._monitor.context_length
        if not limit:
            return
        filled = tab.context_tokens / limit
        parts = [f"context {percent(filled)}"] if tab.context_tokens else []
        text = pane.composer.text
        fits = True
        if text and not is_command(text):
            new, cached = self._tokens(pane, text)
            if not (fits := new + cached <= limit):
                parts = [f"too long: context {percent((new + cached) / limit)}"]
            parts.insert(0, sending_cost(new, cached, self._monitor.prefill_tokens_per_s))
        pane.composer.forecast(" · ".join(parts), filled > WARN_ABOVE or not fits)
        if filled <= WARN_ABOVE:
            self._warned.discard(tab.id)
        elif tab.id not in self._warned:
            self._warned.add(tab.id)
            left = count(max(0, limit - tab.context_tokens))
            self._chat.notify(f"Context {percent(filled)} full: {left} tokens left", severity="warning")

    def _tokens(self, pane: ChatPane, text: str) -> tuple[int, int]:
        """About how many tokens the engine has to read for a text that is sent, and how many it has read before."""
        tab, preceding, prompt = pane.controller, pane.preceding, pane.controller.conversation.system_prompt
        if tab.reply and preceding == len(tab.messages):
            return estimated_tokens(text), tab.context_tokens
        known = tab.token_ids[:preceding]
        cached = self._read.tokens(known)
        unread = [each.text for each, token_ids in zip(tab.messages, known, strict=False) if not token_ids]
        new = estimated_tokens("".join([*unread, text])) + sum(map(len, known)) - cached
        if any(known[:1]):
            return new, cached
        shared = estimated_tokens(prompt)
        return (new, cached + shared) if self._read.knows(prompt) else (new + shared, cached)

    def reason(self, tab: ConversationController) -> str:
        """Why the message that came back from the engine was not sent."""
        if not self._never_fits(tab):
            return tab.refusal
        tokens, limit = count(estimated_tokens(tab.draft)), count(self._monitor.context_length)
        return f"the message alone has about {tokens} tokens, and the context holds {limit}: shorten it"

    def _never_fits(self, tab: ConversationController) -> bool:
        """Whether a message that was refused would be too long in a conversation of its own, too."""
        alone = estimated_tokens(tab.conversation.system_prompt + tab.draft)
        return bool(tab.refusal) and tab.context_full and alone > self._monitor.context_length

    async def ask_when_full(self) -> None:
        """Let the user choose how to go on when the context of the tab that is shown is full. Raises StoreError."""
        from kvchat.tui.screens.context_full import ContextFullScreen

        chat, limit = self._chat, self._monitor.context_length
        tab = chat.workspace.active
        if not tab.context_full or not tab.messages or self._never_fits(tab):
            return
        tab.context_full = False
        choice = await chat.app.push_screen_wait(ContextFullScreen())
        if choice == "stop" or chat.workspace.find(tab.id) is None:
            return
        kept = newest_turns(tab.messages, limit) if choice == "drop" else []
        new = chat.workspace.open_continuation(tab, kept)
        new.draft, tab.draft = tab.draft, ""
        await chat.show_tab(new)
        await chat.pane_of(tab).show_draft("")
        if choice == "summarise":
            new.send(summary_request(tab.messages, limit - estimated_tokens(new.conversation.system_prompt)))
        else:
            left = count(len(tab.messages) - len(kept))
            chat.notify(f"{left} older messages are not read any more; they stay in the other tab", timeout=8)
