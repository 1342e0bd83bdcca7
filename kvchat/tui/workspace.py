"""Which conversations are open, in which order, and whose an event is. Knows no widget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from engine.api import Event, SamplingParams
from engine.client import EngineClient
from engine.config import EngineConfig
from kvchat.config import Config
from kvchat.conversation import Change, ConversationController
from kvchat.fork import Fork
from kvchat.personas import Persona, Personas
from kvchat.store import Conversation, ConversationCopy, SearchHit, Store, StoredMessage, StoreError, Tab
from kvchat.titles import Titler

SEARCH_HITS = 500
"""What a search looks at; several hits can be in one conversation."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A conversation of the history, as a list shows it."""

    conversation: Conversation
    text: str
    """What was found, or the last message."""
    persona: str
    """What the user calls the persona it was started with."""
    is_open: bool
    message_id: int | None = None
    """The message that was found; None for a title, or when nothing was looked for."""


class Workspace:
    """The tabs. There is always at least one, and one of them is active."""

    def __init__(
        self,
        config: Config,
        store: Store,
        client: EngineClient,
        personas: Personas,
        on_change: Callable[[ConversationController, Change], None],
    ) -> None:
        """Bring back the tabs of the last time, or open a fresh one. Raises StoreError, and ConfigError for an unknown
        default persona."""
        self.tabs: list[ConversationController] = []
        self.default_persona = personas.named(config.persona)
        self._config = config
        self._store = store
        self._client = client
        self.personas = personas
        self._on_change = on_change
        self._titler = Titler(client, self.find, self.running) if config.ui.auto_titles else None
        self._closed: list[tuple[int, Tab]] = []
        """With the place that each had."""
        saved = store.open_tabs()
        self.tabs.extend(map(self._restored, saved))
        if not saved:
            self.tabs.append(self._fresh(self.default_persona))
        active = next((index for index, tab in enumerate(saved) if tab.active), 0)
        self.active = self.tabs[active]
        self.active.visible = True
        self.save()

    @property
    def sampling(self) -> SamplingParams:
        """What the settings say, which a persona may change."""
        return self._config.sampling

    def use_personas(self, personas: Personas) -> None:
        """New conversations begin with these. The default persona must be among them."""
        self.personas = personas
        self.default_persona = personas.named(self.default_persona.name)

    @property
    def model(self) -> str:
        return self._config.model

    def use_model(self, model: str) -> EngineConfig:
        """Let another model reply in every tab, and return the engine that it needs. Raises StoreError."""
        self._config = replace(self._config, engine=replace(self._config.engine, model=model))
        for tab in self.tabs:
            tab.use_model(model)
        return self._config.engine

    def sampling_defaults(self, tab: ConversationController) -> SamplingParams:
        """How a new conversation with the tab's persona would be sampled."""
        persona = self.persona_of(tab)
        return persona.sampling_params(self.sampling) if persona else self.sampling

    def find(self, conversation_id: str) -> ConversationController | None:
        return next((tab for tab in self.tabs if tab.id == conversation_id), None)

    def running(self) -> int:
        """How many tabs have a reply running."""
        return sum(1 for tab in self.tabs if tab.reply)

    def dispatch(self, events: Sequence[Event]) -> None:
        """Let every conversation fold in what is its own."""
        for event in events:
            for tab in self.tabs:
                tab.handle(event)
            if self._titler:
                self._titler.handle(event)

    def activate(self, tab: ConversationController) -> None:
        self.active.visible = False
        self.active = tab
        tab.visible, tab.unread = True, False
        self.save()

    def neighbour(self, step: int) -> ConversationController:
        """The tab `step` places to the right, around the end."""
        return self.tabs[(self.tabs.index(self.active) + step) % len(self.tabs)]

    def open_new(self, persona: Persona) -> ConversationController:
        """Add a fresh conversation at the end. Raises StoreError."""
        tab = self._fresh(persona)
        self.tabs.append(tab)
        self.save()
        return tab

    def open_continuation(
        self, tab: ConversationController, messages: Sequence[StoredMessage] = ()
    ) -> ConversationController:
        """Add a conversation with the persona and the settings of another, which begins with copies of `messages`.
        Raises StoreError."""
        old = tab.conversation
        new = self._store.create_conversation(
            title=f"{old.title} (continued)",
            persona=old.persona,
            system_prompt=old.system_prompt,
            model=self._config.model,
            sampling=old.sampling,
        )
        leaf_id = None
        for message in messages:
            leaf_id = self._store.append_message(new.id, leaf_id, message.role, message.text, status=message.status).id
        return self._open(Tab(new.id))

    def fork(self, tab: ConversationController, message: StoredMessage) -> ConversationController:
        """Go on from a message in a new tab beside this one: what leads to it is copied, with its tokens, so that the
        engine finds their KV. Raises StoreError."""
        title = f"Fork of {tab.title.removeprefix('Fork of ')}"
        new = self._restored(Tab(self._store.fork(message.id, title).id))
        new.fork = Fork.behind(new.messages)
        self.tabs.insert(self.tabs.index(tab) + 1, new)
        self.save()
        return new

    def open_stored(self, conversation_id: str) -> ConversationController:
        """Open a conversation of the history, or find its tab. Raises StoreError."""
        closed = next((each for each in self._closed if each[1].conversation_id == conversation_id), None)
        if closed:
            self._closed.remove(closed)
        return self._open(closed[1] if closed else Tab(conversation_id))

    def continue_with(self, conversation_id: str) -> None:
        """Show a conversation of the history, in place of a tab in which nothing was written. Raises StoreError."""
        before, tab = self.active, self.open_stored(conversation_id)
        self.activate(tab)
        if before is not tab and _is_empty(before):
            self.close(before)

    def history(self, words: str, limit: int, texts: bool = True) -> tuple[list[Stored], int | None]:
        """At most `limit` conversations that contain `words`, titles first, else all, the newest first; and how many
        more there are, None when the search did not look at all of them. Without `texts`, what is shown for want of
        words is not read. Raises StoreError."""
        if not words.strip():
            recent, rest = self._store.recent_conversations(limit)
            return [self._stored(each, texts=texts) for each in recent], rest
        hits = self._store.search(words, SEARCH_HITS)
        found: dict[str, SearchHit] = {}
        for hit in hits:
            if hit.conversation.leaf_id is not None:
                found.setdefault(hit.conversation.id, hit)
        shown = [
            self._stored(hit.conversation, hit.snippet, hit.message.id)
            if hit.message
            else self._stored(hit.conversation)
            for hit in list(found.values())[:limit]
        ]
        return shown, max(0, len(found) - limit) if len(hits) < SEARCH_HITS else None

    def copy_of(self, tab: ConversationController) -> ConversationCopy:
        """All that is stored of a tab's conversation. Raises StoreError."""
        return self._store.copy_of(tab.id)

    def tags(self) -> list[str]:
        """All that any conversation has. Raises StoreError."""
        return self._store.tags()

    def archive(self, conversation: Conversation) -> None:
        """Take a conversation out of the list, where only words find it; or put it back. Raises StoreError."""
        self._store.update_conversation(conversation.id, archived=not conversation.archived)

    def delete(self, conversation: Conversation) -> None:
        """Delete a conversation that is not open, for good. Raises StoreError."""
        self._closed = [each for each in self._closed if each[1].conversation_id != conversation.id]
        self._store.delete_conversation(conversation.id)

    def reopen(self) -> ConversationController | None:
        """Open the tab closed last again, where it was and with its draft. Raises StoreError."""
        if not self._closed:
            return None
        index, tab = self._closed.pop()
        return self._open(tab, index)

    def close(self, tab: ConversationController) -> ConversationController:
        """Close a tab, stop its reply, and return the tab to show now. A conversation in which nothing was written is
        forgotten. Raises StoreError; a tab with something that cannot be saved stays open."""
        tab.close()
        index = self.tabs.index(tab)
        if len(self.tabs) == 1:
            self.tabs.append(self._fresh(self.default_persona))
        self.tabs.remove(tab)
        if not self._forget_if_empty(tab):
            self._closed.append((index, Tab(tab.id, draft=tab.unsent)))
        if tab is self.active:
            self.activate(self.tabs[min(index, len(self.tabs) - 1)])
        self.save()
        return self.active

    def move(self, tab: ConversationController, step: int) -> None:
        """Change a tab's place in the order."""
        index = self.tabs.index(tab)
        self.tabs.insert((index + step) % len(self.tabs), self.tabs.pop(index))
        self.save()

    def save(self) -> None:
        """Keep which tabs are open, with what stands in them. Raises StoreError."""
        self._store.save_tabs([Tab(tab.id, tab is self.active, tab.unsent) for tab in self.tabs])

    def close_all(self) -> None:
        """Before the program ends: keep everything, wait for nothing. Raises StoreError."""
        failures = []
        for keep in (*(tab.close for tab in self.tabs), self.save):
            try:
                keep()
            except StoreError as failure:  # what else there is can perhaps be kept
                failures.append(failure)
        if failures:
            raise failures[0]
        if not self._store.owns_tabs:
            for tab in self.tabs:
                self._forget_if_empty(tab)

    def persona_of(self, tab: ConversationController) -> Persona | None:
        """The persona a conversation was started with, if it still exists."""
        return self._persona(tab.conversation)

    def _stored(
        self, conversation: Conversation, found: str = "", message_id: int | None = None, texts: bool = True
    ) -> Stored:
        if texts and not found and conversation.leaf_id is not None:
            found = self._store.message(conversation.leaf_id).text
        persona = self._persona(conversation)
        name = (persona.title or persona.name) if persona else conversation.persona
        return Stored(conversation, found, name, self.find(conversation.id) is not None, message_id)

    def _persona(self, conversation: Conversation) -> Persona | None:
        return next((each for each in self.personas.all if each.name == conversation.persona), None)

    def _forget_if_empty(self, tab: ConversationController) -> bool:
        if empty := _is_empty(tab):
            self._store.delete_conversation(tab.id)
        return empty

    def _fresh(self, persona: Persona) -> ConversationController:
        conversation = self._store.create_conversation(
            persona=persona.name,
            system_prompt=persona.system_prompt,
            model=self._config.model,
            sampling=persona.sampling_params(self._config.sampling),
        )
        return self._controller(conversation.id)

    def _open(self, saved: Tab, index: int | None = None) -> ConversationController:
        tab = self.find(saved.conversation_id)
        if tab is None:
            tab = self._restored(saved)
            self.tabs.insert(len(self.tabs) if index is None else index, tab)
            self.save()
        return tab

    def _restored(self, tab: Tab) -> ConversationController:
        controller = self._controller(tab.conversation_id)
        controller.draft = tab.draft
        return controller

    def _controller(self, conversation_id: str) -> ConversationController:
        conversation = self._store.conversation(conversation_id)
        persona = self._persona(conversation)
        return ConversationController(
            conversation,
            store=self._store,
            client=self._client,
            model=self._config.model,
            pin_system=bool(persona and persona.pin),
            on_change=self._changed,
        )

    def _changed(self, tab: ConversationController, change: Change) -> None:
        self._on_change(tab, change)
        if self._titler:
            self._titler.changed(tab, change)


def _is_empty(tab: ConversationController) -> bool:
    return not (tab.messages or tab.unsent or tab.can_undelete)
