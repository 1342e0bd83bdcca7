"""What an open conversation is at the moment: all that can be asked about it."""

from __future__ import annotations

import msgspec

from engine.api import Metrics
from kvchat.branch import Branch, Reply
from kvchat.fork import Fork
from kvchat.store import Conversation, StoredMessage
from kvchat.writing import written


class ConversationState:
    """The state that a ConversationController changes."""

    def __init__(self, conversation: Conversation, branch: Branch) -> None:
        self.conversation = conversation
        self.reply: Reply | None = None
        self.queued: list[str] = []
        """Messages written while a reply runs; the next one is sent when it ends."""
        self.draft = ""
        """What stands in the composer, or goes back there after an edit."""
        self.edited = ""
        """What is to be sent in place of a message; empty while it is the message itself."""
        self.visible = False
        """Whether the user looks at it: its requests go first."""
        self.unread = False
        """A reply ended while nobody looked."""
        self.trouble = ""
        """Why something could not be saved, one line; empty when all is well."""
        self.refusal = ""
        """Why the engine can never answer the message that was sent last, which went back to the composer, one line;
        empty when it can."""
        self.context_full = False
        """The last reply was cut, or the last message refused, because the context has no room left."""
        self.fork: Fork | None = None
        """Where this was forked, while the program that did it runs."""
        self._branch = branch

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def title(self) -> str:
        return self.conversation.title

    @property
    def messages(self) -> list[StoredMessage]:
        """Root first; while a reply runs its text is in `reply`, not here."""
        return self._branch.messages

    @property
    def can_retry(self) -> bool:
        """Whether the last reply is missing, failed or stopped."""
        if self.reply or not self.messages:
            return False
        last = self.messages[-1]
        return last.role == "user" or last.status in ("failed", "stopped")

    @property
    def can_regenerate(self) -> bool:
        """Whether there is a message to reply to once more."""
        return self.reply is None and bool(self.messages)

    @property
    def can_continue(self) -> bool:
        """Whether the last reply was stopped, cut or failed behind its first token, so that it can go on from there."""
        return self.reply is None and self._branch.can_resume

    @property
    def can_undelete(self) -> bool:
        """Whether a deletion here can be taken back."""
        return self.reply is None and self._branch.can_undelete

    def place(self, message: StoredMessage) -> tuple[int, int]:
        """The place of a message among those that follow the same one, from 1, and how many these are."""
        siblings = self._branch.siblings(message)
        return siblings.index(message.id) + 1, len(siblings)

    @property
    def last_parting(self) -> StoredMessage | None:
        """The last message that has another in its place, on another branch."""
        return next((each for each in reversed(self.messages) if self.place(each)[1] > 1), None)

    @property
    def context_tokens(self) -> int:
        """Tokens of the context that this conversation fills."""
        return self.reply.context_tokens if self.reply and self.reply.prompt_tokens else self._branch.token_count

    @property
    def token_ids(self) -> list[tuple[int, ...]]:
        """Those of each message; none of one that the model did not read."""
        return self._branch.token_ids

    @property
    def metrics(self) -> Metrics | None:
        """Of the running reply, else of the last one."""
        if self.reply:
            return self.reply.metrics
        return next((message.metrics for message in reversed(self.messages) if message.metrics), None)

    @property
    def measured_messages(self) -> list[StoredMessage]:
        """The messages; a running reply with what it cost so far."""
        reply, messages = self.reply, self.messages
        if reply is None or reply.metrics is None:
            return list(messages)
        running = msgspec.structs.replace(messages[-1], metrics=reply.metrics, divergence=reply.divergence)
        return [*messages[:-1], running]

    @property
    def sent(self) -> list[str]:
        """What the user sent, first to last."""
        return [message.text for message in self.messages if message.role == "user"]

    @property
    def last_reply(self) -> str:
        """The last reply, as far as it got, or nothing."""
        if self.reply and self.reply.text:
            return self.reply.text
        return next((each.text for each in reversed(self.messages) if each.role == "assistant" and each.text), "")

    @property
    def unsent(self) -> str:
        """All that was written and not sent."""
        return self.behind_queue(self.edited, self.draft)

    def behind_queue(self, *texts: str) -> str:
        """The messages that wait, as they are written, and behind them these texts."""
        return "\n\n".join(filter(None, [written("\n\n".join(self.queued)), *texts]))
