"""The command palette: every key's action, and what has no key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.types import IgnoreReturnCallbackType

from kvchat.store import StoreError
from kvchat.tui import keys, slash
from kvchat.tui.format import printable
from kvchat.tui.screens.chat import ChatScreen

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp

HISTORY_HITS = 10

# Textual declares the explanation of a hit a str and parses it as markup, but takes a Content as it is.

Command = tuple[str, str, IgnoreReturnCallbackType]
"""Title, explanation, what to call."""


class ChatCommands(Provider):
    """What can be done on the chat screen, the tabs, the personas, and the conversations of the history."""

    async def discover(self) -> Hits:
        for title, about, call in self._commands():
            yield DiscoveryHit(Content(title), call, title, Content(about))  # type: ignore[arg-type]

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, about, call in self._commands():
            if (score := matcher.match(title)) > 0:
                yield Hit(score, _highlighted(title, matcher), call, title, Content(about))  # type: ignore[arg-type]
        for title, snippet, call in self._history(query):
            yield Hit(0.01, Content(title), call, title, Content(snippet))  # type: ignore[arg-type]

    @property
    def _chat(self) -> ChatScreen:
        return cast("KvChatApp", self.app).chat

    def _commands(self) -> Iterator[Command]:
        chat, app = self._chat, self.app
        for node, bindings in ((chat, [*keys.TABS, *keys.MESSAGES, *keys.REPLY, *keys.VIEW]), (app, keys.PROGRAM)):
            for binding in bindings:
                name = binding.action.partition("(")[0]
                if name != "command_palette" and node.check_action(name, ()):
                    yield binding.description, binding.tooltip, partial(app.run_action, binding.action, node)
        for title, action in (("Copy message", "copy_message"), ("Delete message", "delete_message")):
            if chat.check_action(action, ()):
                yield title, "The one you went to, else the last", partial(app.run_action, action, chat)
        for index, text in enumerate(chat.workspace.active.queued):
            yield "Take back queued message", printable(text), partial(chat.take_back, index)
        yield "Fold long messages", "Show long messages in full, or only their beginning", chat.action_toggle_folds
        yield "Expand pastes", "Put pasted texts into the composer, to edit them", chat.action_expand_pastes
        yield "Model", "Choose or install a model", cast("KvChatApp", app).pick_model
        yield "Sampling", "Change how the replies of this tab are sampled", chat.pick_sampling
        yield "Export conversation", "Write it to a file as Markdown, text or JSON", chat.export
        for command in slash.COMMANDS:
            line = f"/{command.name}"
            call = partial(chat.write, f"{line} ") if command.argument else partial(chat.run_command, line)
            yield command.usage, command.about, call
        yield "Theme", "Change the colours", app.action_change_theme
        yield "Screenshot", "Save the screen as an SVG file", partial(app.set_timer, 0.1, app.deliver_screenshot)
        for persona in chat.personas.all:
            name = printable(persona.title or persona.name)
            yield f"New tab with {name}", printable(persona.description), partial(chat.open_tab, persona)
        for number, tab in enumerate(chat.workspace.tabs, 1):
            yield f"Go to {printable(tab.title) or 'New chat'}", f"Tab {number}", partial(chat.show_tab, tab)

    def _history(self, query: str) -> Iterator[Command]:
        """Stored conversations that contain the words of `query`."""
        try:
            found, _ = self._chat.workspace.history(query, HISTORY_HITS)
        except StoreError:
            return  # the palette is no place to complain; the next write will
        for stored in found:
            open_it = partial(self._chat.open_stored, stored.conversation.id)
            yield f"Open {printable(stored.conversation.title)}", printable(stored.text), open_it


def _highlighted(title: str, matcher: Matcher) -> Content:
    """The title, never parsed as markup, with what was typed standing out."""
    _, offsets = matcher.fuzzy_search.match(matcher.query, title)
    content = Content(title)
    for offset in offsets:
        content = content.stylize(matcher.match_style, offset, offset + 1)
    return content
