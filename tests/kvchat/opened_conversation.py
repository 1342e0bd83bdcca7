"""A conversation over a real store and a scripted engine."""

from __future__ import annotations

from tui.scripted_client import ScriptedClient

from kvchat.conversation import Change, ConversationController
from kvchat.store import Store, Tab

MODEL = "smollm2"


class Opened:
    """A controller whose client talks to it alone, and what it told its observer."""

    def __init__(self, store: Store, client: ScriptedClient, system_prompt: str = "", model: str = MODEL) -> None:
        self.seconds = 0.0
        self.changes: list[Change] = []
        conversation = store.create_conversation(system_prompt=system_prompt, model=MODEL)
        store.save_tabs([Tab(conversation.id)])
        self.store, self.client = store, client
        self.controller = self.open(conversation.id, model)

    def open(self, conversation_id: str, model: str = MODEL) -> ConversationController:
        controller = ConversationController(
            self.store.conversation(conversation_id),
            store=self.store,
            client=self.client,
            model=model,
            pin_system=False,
            on_change=lambda _, change: self.changes.append(change),
            clock=lambda: self.seconds,
        )
        self.client.start(lambda events: [controller.handle(event) for event in events])
        return controller
