"""One more turn of a stored conversation, with the engine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.api import Event, Failed, GenerationRequest
from engine.client import EngineClient, Listener
from engine.errors import InvalidRequest, PromptTooLong
from kvchat.conversation import ConversationController
from kvchat.store import Conversation, Store, StoreError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.engine import Engine


def continued(engine: Engine, model: str, store: Store, conversation: Conversation, question: str) -> Iterator[Event]:
    """Ask in a conversation, store what is asked and answered, and yield the engine's events. Raises StoreError."""
    client = _DirectClient(engine)
    controller = ConversationController(
        conversation, store=store, client=client, model=model, pin_system=False, on_change=lambda *_: None
    )
    drafts = {tab.conversation_id: tab.draft for tab in store.open_tabs()}
    controller.draft = drafts.get(conversation.id, "")  # a question that is refused goes before it
    controller.send(question)
    while controller.reply:
        for event in client.step():
            controller.handle(event)
            yield event
    if controller.trouble:
        raise StoreError(controller.trouble)


class _DirectClient(EngineClient):
    """Steps when it is told to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refused: list[Event] = []

    def start(self, listener: Listener) -> None:
        """The engine runs already."""

    def submit(self, request: GenerationRequest) -> str:
        try:
            return self._engine.submit(request)
        except InvalidRequest as error:
            refusal = Failed("refused", str(error), refused=True, too_long=isinstance(error, PromptTooLong))
            self._refused.append(refusal)
            return refusal.request_id

    def step(self) -> list[Event]:
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        return list(self._engine.step())

    def abort(self, request_id: str) -> None:
        self._engine.abort(request_id)

    def close(self) -> None:
        """There is nothing to end."""

    def configure(self, config: EngineConfig) -> None:
        """There is one engine."""
