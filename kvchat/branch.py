"""The branch of a conversation that is shown: its messages, and the token ids that the engine saw of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from engine.api import Accepted, Divergence, FinishReason, Message, Metrics, Phase
from kvchat.continuation import continued
from kvchat.store import Role, Status, Store, StoredMessage, StoreError


@dataclass(slots=True)
class Reply:
    """The reply that is being generated: the last message of the conversation, not finished yet."""

    message_id: int
    request_id: str = ""
    begun: StoredMessage | None = None
    """Of a reply that goes on: what it was before."""
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

    @property
    def context_tokens(self) -> int:
        """Tokens of the context that are filled so far; a prompt has what the reply begins with."""
        return self.prompt_tokens + len(self.token_ids) - (len(self.begun.token_ids) if self.begun else 0)

    def measured(self, metrics: Metrics) -> Metrics:
        """What the whole reply cost, by what its running request did."""
        earlier = self.begun.metrics if self.begun else None
        return continued(earlier, metrics) if earlier else metrics


class Branch:
    """The messages from the root to the leaf, in memory and in the store.

    What is written is in memory even when the store refuses it: every method that writes may raise StoreError, after it
    did its work, except `append`, which does nothing then. What was refused is written again before anything else is.
    """

    def __init__(self, store: Store, conversation_id: str, model: str) -> None:
        """Read it. Token ids mean something to `model` only: those of another model's tokenizer are left aside."""
        self.messages = store.path(conversation_id)
        self.tree = store.tree(conversation_id)
        """The ids of the messages below each one, on all branches; see Store.tree."""
        self.can_undelete = store.has_deleted(conversation_id)
        self._store = store
        self._conversation_id = conversation_id
        self._model = model
        self._unsaved: dict[object, Callable[[], object]] = {}
        """The writes that the store has not taken yet, oldest first, by what they write."""

    @property
    def token_count(self) -> int:
        return sum(map(len, self.token_ids))

    @property
    def token_ids(self) -> list[tuple[int, ...]]:
        """Those of each message; none of one that the model did not read."""
        return [self._token_ids(message) for message in self.messages]

    @property
    def can_resume(self) -> bool:
        """Whether the last message is a reply that ended before its end, and the model knows its tokens."""
        if not self.messages or self.messages[-1].role != "assistant":
            return False
        last = self.messages[-1]
        return bool(self._token_ids(last)) and (last.status in ("stopped", "failed") or last.finish_reason == "length")

    def context(self, system_prompt: str) -> tuple[Message, ...]:
        """What the reply at the end answers, as the engine wants it, and its own beginning when it has one."""
        system = (Message("system", system_prompt),) if system_prompt else ()
        begun = self.messages if self._token_ids(self.messages[-1]) else self.messages[:-1]
        return system + tuple(Message(each.role, each.text, self._token_ids(each)) for each in begun)

    def index_of(self, message_id: int) -> int:
        """Where in `messages` one is. Raises StoreError when it is not there any more."""
        for index, message in enumerate(self.messages):
            if message.id == message_id:
                return index
        raise StoreError("that message is not on this branch any more")

    def siblings(self, message: StoredMessage) -> list[int]:
        """The ids of a message of this branch and of the others in its place, oldest first."""
        return sorted({*self.tree.get(message.parent_id, ()), message.id})

    def append(self, role: Role, text: str, status: Status = "complete", at: int | None = None) -> StoredMessage:
        """Commit a message behind the last one, or beside the one at an index: the branch then goes on, or ends, with
        the new one."""
        self.save()
        kept, replaced = self.messages[:at], self.messages[len(self.messages) if at is None else at :][:1]
        parent_id = kept[-1].id if kept else None
        tree = self._store.tree(self._conversation_id)
        message = self._store.append_message(self._conversation_id, parent_id, role, text, status=status)
        empty = [each.id for each in replaced if each.status in ("failed", "stopped") and not each.text]
        tree[parent_id] = [*(each for each in tree.get(parent_id, ()) if each not in empty), message.id]
        self.messages, self.tree = [*kept, message], tree
        return message

    def resume(self) -> StoredMessage:
        """Let the reply at the end go on, and return what it was. Raises StoreError, and does nothing then."""
        self.save()
        begun = self.messages[-1]
        self._store.update_message(begun.id, status="streaming", finish_reason=None, error="")
        self._replace(-1, status="streaming", finish_reason=None, error="")
        return begun

    def show(self, message_id: int) -> None:
        """Become the newest branch through a message."""
        self.save()
        newest, todo = message_id, [message_id]
        while todo:
            newest = max(newest, at := todo.pop())
            todo += self.tree.get(at, ())
        self._store.update_conversation(self._conversation_id, leaf_id=newest)
        self._read()

    def delete(self, message_id: int) -> None:
        """Delete a message with all that follows it; `undelete` brings it back until the program ends."""
        self.save()
        self._store.delete_message(message_id)
        self._read()

    def undelete(self) -> None:
        """Bring back what was deleted last, and show it."""
        self.save()
        self._store.undelete(self._conversation_id)
        self._read()

    def _read(self) -> None:
        self.messages = self._store.path(self._conversation_id)
        self.tree = self._store.tree(self._conversation_id)
        self.can_undelete = self._store.has_deleted(self._conversation_id)

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
        """Forget the reply at the end, which has no text, and the message that it answers, unless that one has other
        replies. What was shown before is shown again."""
        *kept, asked, reply = self.messages
        self.messages = kept
        self._unsaved["taken back"] = partial(self._forget, reply.id, asked.id)
        self.save()

    def _forget(self, *message_ids: int) -> None:
        for message_id in message_ids:
            self._store.discard_message(message_id)
        self._read()

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
            self._cut_token_ids(event.divergence.token_index)  # not those of the reply: they follow the new ones
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
        """Keep the first `length` ids of what the reply at the end answers."""
        for index, message in enumerate(self.messages[:-1]):
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
