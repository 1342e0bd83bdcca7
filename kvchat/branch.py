"""The branch of a conversation that is shown: its messages, and the token ids that the engine saw of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from engine.api import Accepted, Divergence, FinishReason, Message, Metrics, Phase
from kvchat.store import Role, Status, Store, StoredMessage, StoreError


@dataclass(slots=True)
class Reply:
    """The reply that is being generated: the last message of the conversation, not finished yet."""

    message_id: int
    request_id: str = ""
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    phase: Phase = "queued"
    reason: str = ""
    """Why it waits."""
    prompt_tokens: int = 0
    """0 until the engine accepted the request."""
    computed_tokens: int = 0
    metrics: Metrics | None = None
    divergence: Divergence | None = None
    reread_tokens: int = 0
    """Tokens of the history that have to be computed again, because of the divergence."""
    stopping: bool = False


class Branch:
    """The messages from the root to the leaf, in memory and in the store.

    What is written is in memory even when the store refuses it: every method that writes may raise StoreError, after it
    did its work, except `append`, which does nothing then. What was refused is written again before anything else is.
    """

    def __init__(self, store: Store, conversation_id: str, model: str) -> None:
        """Read it. Token ids mean something to `model` only: those of another model's tokenizer are left aside."""
        self.messages = store.path(conversation_id)
        self.leaves = store.leaves(conversation_id)
        """Where the branches of the conversation end, oldest first; this one is among them unless it is empty."""
        self._store = store
        self._conversation_id = conversation_id
        self._model = model
        self._unsaved: dict[object, Callable[[], object]] = {}
        """The writes that the store has not taken yet, oldest first, by what they write."""

    @property
    def token_count(self) -> int:
        return sum(len(self._token_ids(message)) for message in self.messages)

    def context(self, system_prompt: str) -> tuple[Message, ...]:
        """What the reply at the end continues, as the engine wants it."""
        system = (Message("system", system_prompt),) if system_prompt else ()
        return system + tuple(Message(each.role, each.text, self._token_ids(each)) for each in self.messages[:-1])

    def append(self, role: Role, text: str, status: Status = "complete", replace_last: bool = False) -> StoredMessage:
        """Commit a message below the last one, or beside it: the branch then goes on with the new one."""
        self.save()
        kept = self.messages[:-1] if replace_last else self.messages
        parent_id = kept[-1].id if kept else None
        leaves = self._store.leaves(self._conversation_id)
        failed = [each.id for each in self.messages[-1:] if replace_last and each.status == "failed" and not each.text]
        message = self._store.append_message(self._conversation_id, parent_id, role, text, status=status)
        self.messages = [*kept, message]
        self.leaves = [leaf for leaf in leaves if leaf not in (parent_id, *failed)] + [message.id]
        return message

    def show(self, leaf_id: int) -> None:
        """Become the branch that ends at `leaf_id`."""
        self.save()
        self._store.update_conversation(self._conversation_id, leaf_id=leaf_id)
        self.messages = self._store.path(self._conversation_id)
        self.leaves = self._store.leaves(self._conversation_id)

    def draft(self, reply: Reply) -> None:
        """Store how far the reply at the end got."""
        self._write_reply(reply.message_id, text=reply.text, token_ids=tuple(reply.token_ids))

    def end(self, reply: Reply, status: Status, finish_reason: FinishReason | None, error: str) -> None:
        """Complete the reply at the end."""
        outcome: dict[str, Any] = {
            "text": reply.text,
            "token_ids": tuple(reply.token_ids),
            "status": status,
            "finish_reason": finish_reason,
            "error": error,
            "divergence": reply.divergence,
        }
        self._replace(-1, **outcome, metrics=reply.metrics)
        if reply.metrics:
            self._unsaved["metrics", reply.message_id] = partial(
                self._store.save_metrics, reply.message_id, reply.metrics
            )
        self._write_reply(reply.message_id, **outcome)

    def take_back(self) -> None:
        """Show the branch without its last message and the reply to it; both stay in the tree."""
        self.messages = self.messages[:-2]
        leaf_id = self.messages[-1].id if self.messages else None
        self._unsaved["leaf"] = partial(self._store.update_conversation, self._conversation_id, leaf_id=leaf_id)
        self.save()

    def save(self) -> None:
        """Write what the store has not taken yet. Raises StoreError."""
        try:
            while self._unsaved:
                what, write = next(iter(self._unsaved.items()))
                write()
                del self._unsaved[what]
        except StoreError:
            if not self._store.path(self._conversation_id):  # deleted elsewhere: there is nothing to write to
                self._unsaved.clear()
            raise

    def accept(self, event: Accepted) -> None:
        """Give the new ids to the message that was asked, the last but one, so that the ids along the branch stay
        exactly what the engine was fed.

        After a divergence it was fed the old ids up to `token_index` and the new ones from there, which cover the rest
        of every message behind that point: those ids are cut away, and the message that was asked carries the new ones.
        """
        before = list(self.messages)
        if event.divergence:
            self._cut_token_ids(event.divergence.token_index)
        if event.new_token_ids:
            asked = self.messages[-2]
            self._replace_token_ids(-2, self._token_ids(asked) + event.new_token_ids)
        for old, new in zip(before, self.messages, strict=True):
            if new is not old:
                self._unsaved["token_ids", new.id] = partial(
                    self._store.update_message, new.id, token_ids=new.token_ids
                )
        self.save()

    def _write_reply(self, message_id: int, **changes: Any) -> None:
        self._unsaved["reply", message_id] = partial(self._store.update_message, message_id, **changes)
        self.save()

    def _cut_token_ids(self, length: int) -> None:
        """Keep the first `length` ids of the branch."""
        for index, message in enumerate(self.messages):
            token_ids = self._token_ids(message)
            if len(token_ids) > length:
                self._replace_token_ids(index, token_ids[:length])
            length = max(0, length - len(token_ids))

    def _token_ids(self, message: StoredMessage) -> tuple[int, ...]:
        return message.token_ids if message.model == self._model else ()

    def _replace_token_ids(self, index: int, token_ids: tuple[int, ...]) -> None:
        """The ids of another model's message stay for that model."""
        if self.messages[index].model == self._model:
            self._replace(index, token_ids=token_ids)

    def _replace(self, index: int, **changes: Any) -> StoredMessage:
        self.messages[index] = msgspec.structs.replace(self.messages[index], **changes)
        return self.messages[index]
