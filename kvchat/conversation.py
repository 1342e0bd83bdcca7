"""One conversation between the store, which keeps it, and the engine, which continues it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Literal

from engine.api import (
    Accepted,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Progress,
    SamplingParams,
    TokenDelta,
)
from engine.client import EngineClient
from kvchat.branch import Branch, Reply
from kvchat.conversation_state import ConversationState
from kvchat.store import Conversation, Status, Store, StoreError

DRAFT_INTERVAL_S = 1.0
TITLE_LENGTH = 48

Change = Literal["messages", "reply", "ended", "queue", "draft", "title", "trouble", "refused"]
"""What an observer should look at again: the list of messages; the running reply; a reply that just ended; the queued
messages; the draft; the title; `trouble`; `refusal`."""


class ConversationController(ConversationState):
    """Owns an open conversation: sends what the user writes and folds the engine's events into the messages.

    It runs on one thread, knows no widget, and tells `on_change(controller, change)` what changed.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        store: Store,
        client: EngineClient,
        model: str,
        pin_system: bool,
        on_change: Callable[[ConversationController, Change], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a stored conversation; `model` is the one that replies from now on. Raises StoreError."""
        super().__init__(conversation, Branch(store, conversation.id, model))
        self._store = store
        self._client = client
        self._model = model
        self._pin_system = pin_system
        self._on_change = on_change
        self._clock = clock
        self._drafted_at = 0.0

    def send(self, text: str) -> None:
        """Commit a message, then ask for the reply; while a reply runs the message waits its turn in `queued`.
        Raises StoreError if it could not be committed, and nothing is sent then."""
        if self.reply:
            self.queued.append(text)
            self._queue_changed()
            return
        self._adopt_model()
        self._branch.append("user", text)
        self._save(self._generate)
        if self.conversation.auto_title and len(self.messages) <= 2:
            self._save(lambda: self._set_title(title_of(text), auto=True))

    def stop(self) -> None:
        """End the running reply; what arrived stays."""
        reply = self.reply
        if reply is None or reply.stopping:
            return
        self._client.abort(reply.request_id)
        if reply.prompt_tokens:
            reply.stopping = True
            self._changed("reply")
        else:  # the engine may still be loading for long
            self._end(reply, "stopped", "aborted")

    def retry(self) -> None:
        """Ask again for a reply that is missing, failed or stopped. The old one stays in the history as another branch.
        Raises StoreError."""
        if self.can_retry:
            self.regenerate()

    def regenerate(self, message_id: int | None = None) -> None:
        """Ask for another reply in place of one, or to a message of the user, by default the last; complete or not, the
        old one stays as a branch. Raises StoreError."""
        if not self.can_regenerate:
            return
        index = len(self.messages) - 1 if message_id is None else self._branch.index_of(message_id)
        self._adopt_model()
        self._generate(at=index + (self.messages[index].role == "user"))

    def continue_reply(self) -> None:
        """Let the last reply go on right behind its last token. Raises StoreError."""
        if not self.can_continue:
            return
        begun = self._branch.resume()
        self._request(Reply(begun.id, "", begun, begun.text, list(begun.token_ids), metrics=begun.metrics))

    def edit(self, message_id: int, text: str) -> None:
        """Send another text in place of a message of the user, as a branch beside it; a running reply stops. Raises
        StoreError."""
        index = self._branch.index_of(message_id)
        self.interrupt()
        self._adopt_model()
        self._branch.append("user", text, at=index)
        self._save(self._generate)

    def step_branch(self, step: int, message_id: int | None = None) -> None:
        """Show the branch through the message that is `step` places further than one, around the end, in its place; by
        default where the branches part last. Not while a reply runs. Raises StoreError."""
        message = self.last_parting if message_id is None else self.messages[self._branch.index_of(message_id)]
        if self.reply or message is None:
            return
        siblings = self._branch.siblings(message)
        place, count = self.place(message)
        self._branch.show(siblings[(place - 1 + step) % count])
        self._changed("messages")

    def delete(self, message_id: int) -> None:
        """Delete a message with all that follows it, on every branch; not while a reply runs. Raises StoreError."""
        if self.reply is None:
            self._branch.delete(message_id)
            self._changed("messages")

    def undelete(self) -> None:
        """Take the last deletion back, and show what it took. Raises StoreError."""
        if self.can_undelete:
            self._branch.undelete()
            self._changed("messages")

    def rename(self, title: str) -> None:
        """Give it the user's title; an empty one brings the automatic title back. Raises StoreError."""
        if title:
            self._set_title(title, auto=False)
        else:
            first = next((message.text for message in self.messages if message.role == "user"), "")
            self._set_title(title_of(first), auto=True)

    def suggest_title(self, title: str) -> None:
        """Give it a title of the program's, unless it has one of the user's."""
        if self.conversation.auto_title:
            self._save(lambda: self._set_title(title, auto=True))

    def toggle_tags(self, tags: Collection[str]) -> None:
        """Take off those of the tags that it has, and put on the others. Raises StoreError."""
        self.conversation = self._store.update_conversation(self.id, tags={*self.conversation.tags} ^ {*tags})
        self._changed("title")

    def set_sampling(self, sampling: SamplingParams) -> None:
        """How replies are sampled from the next one on. Raises StoreError."""
        self.conversation = self._store.update_conversation(self.id, sampling=sampling)

    def set_system_prompt(self, text: str) -> None:
        """For a conversation without messages: later ones were computed under the old one. Raises StoreError."""
        self.conversation = self._store.update_conversation(self.id, system_prompt=text)

    def use_model(self, model: str) -> None:
        """Let another model reply from now on; a running reply stops. Raises StoreError."""
        self.close()
        if self.queued:
            self._return_queue()
        self._model = model
        self._branch = Branch(self._store, self.id, model)
        self._changed("messages")

    def unqueue(self, index: int = -1) -> str | None:
        """Take back a message that waits, by default the one queued last; None when there is none."""
        if not -len(self.queued) <= index < len(self.queued):
            return None
        text = self.queued.pop(index)
        self._queue_changed()
        return text

    def save_draft(self) -> None:
        """Store `draft`, and before it the messages that wait: a crash returns both to the composer."""
        self._save(lambda: self._store.save_draft(self.id, self.unsent))

    def handle(self, event: Event) -> None:
        """Fold in an event of the running request; one of any other request is ignored."""
        reply = self.reply
        if reply is None or getattr(event, "request_id", None) != reply.request_id:
            return
        match event:
            case Accepted():
                reply.prompt_tokens = event.prompt_tokens
                if event.divergence:
                    reply.divergence = event.divergence
                    reply.reread_tokens = self._branch.token_count - event.divergence.token_index
                if reply.begun:
                    reply.text = event.continued_text
                self._save(lambda: self._branch.accept(event))
                self._changed("reply")
            case Progress():
                reply.phase, reply.reason = event.phase, event.reason
                reply.computed_tokens, reply.metrics = event.computed_tokens, reply.measured(event.metrics)
                if self.fork and event.phase != "queued":
                    self.fork.measure(event.metrics)
                self._changed("reply")
            case TokenDelta():
                reply.phase = "decode"
                reply.text += event.text
                reply.token_ids.extend(event.token_ids)
                self._draft_reply(reply)
                self._changed("reply")
            case Finished():
                reply.text, reply.token_ids = event.text, list(event.token_ids)
                reply.metrics = reply.measured(event.metrics)
                if self.fork and event.metrics.ttft_s is not None:
                    self.fork.measure(event.metrics)
                self._end(reply, "stopped" if event.finish_reason == "aborted" else "complete", event.finish_reason)
            case Failed(refused=True) if not (reply.text or reply.begun):
                self._take_back(reply, event)
            case Failed():
                self._end(reply, "failed", error=event.error)

    def close(self) -> None:
        """Stop what runs without waiting for the engine. Raises StoreError while something cannot be saved."""
        self.interrupt()
        self._branch.save()

    def interrupt(self) -> None:
        """Stop what runs without waiting for the engine; what waits goes on waiting."""
        if self.reply:
            self._client.abort(self.reply.request_id)
            self._end(self.reply, "stopped", "aborted", send_next=False)

    def _adopt_model(self) -> None:
        if self.conversation.model != self._model:
            self.conversation = self._store.update_conversation(self.id, model=self._model)

    def _generate(self, at: int | None = None) -> None:
        """Append the draft of a reply, or put it beside the message at an index, and ask the engine for it."""
        self._request(Reply(self._branch.append("assistant", "", "streaming", at).id))

    def _request(self, reply: Reply) -> None:
        """Ask the engine for the reply at the end of the branch."""
        self.refusal, self.context_full = "", False
        self.reply = reply
        self._drafted_at = self._clock()
        reply.request_id = self._client.submit(
            GenerationRequest(
                messages=self._branch.context(self.conversation.system_prompt),
                sampling=self.conversation.sampling,
                owner=self.id,
                priority=int(self.visible),
                pin_system=self._pin_system,
            )
        )
        self._changed("messages")

    def _draft_reply(self, reply: Reply) -> None:
        if self._clock() - self._drafted_at >= DRAFT_INTERVAL_S:
            self._drafted_at = self._clock()
            self._save(lambda: self._branch.draft(reply))

    def _end(
        self,
        reply: Reply,
        status: Status,
        finish_reason: FinishReason | None = None,
        error: str = "",
        send_next: bool = True,
    ) -> None:
        self.reply = None
        self._save(lambda: self._branch.end(reply, status, finish_reason, error))
        self.unread = not self.visible
        self.context_full = finish_reason == "context_full"
        self._changed("ended")
        if not self.queued or not send_next:
            return
        if status == "failed":  # the next one would fail too: the user decides
            self._return_queue()
            return
        try:
            self.send(self.queued[0])
        except StoreError as failure:
            self._return_queue()
            self._report(str(failure))
        else:
            del self.queued[0]
            self._queue_changed()

    def _take_back(self, reply: Reply, failure: Failed) -> None:
        """Return a message that can never be answered to the composer: in the branch, it would fail every later one.
        One that has another reply already stays where it is."""
        self.reply = None
        self.refusal, self.context_full = failure.error, failure.too_long
        asked, failed = self.messages[-2:]
        if len(self._branch.siblings(failed)) == 1:
            self.queued.insert(0, asked.text)
        self._return_queue()
        self._save(lambda: self._branch.end(reply, "failed", None, failure.error))
        self._save(self._branch.take_back)
        if self.conversation.auto_title and not self.messages:
            self._save(lambda: self._set_title("", auto=True))
        self.unread = not self.visible
        self._changed("messages")
        self._changed("refused")

    def _return_queue(self) -> None:
        self.draft = self.behind_queue(self.draft)
        self.queued.clear()
        self._changed("draft")
        self._queue_changed()

    def _queue_changed(self) -> None:
        self.save_draft()
        self._changed("queue")

    def _set_title(self, title: str, auto: bool) -> None:
        self.conversation = self._store.update_conversation(self.id, title=title, auto_title=auto)
        self._changed("title")

    def _save(self, write: Callable[[], None]) -> None:
        """Write, and what could not be written before: a reply that cannot be saved now still goes on."""
        try:
            write()
            self._branch.save()
        except StoreError as failure:
            self._report(str(failure))
        else:
            self._report("")

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._changed("trouble")

    def _changed(self, change: Change) -> None:
        self._on_change(self, change)


def title_of(text: str) -> str:
    """The first line with words in it, cut at a word."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    return line[: TITLE_LENGTH - 1].rsplit(" ", 1)[0].rstrip(",;:.-") + "…"
