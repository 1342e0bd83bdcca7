"""A conversation that began as a copy of another one's beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Metrics
from kvchat.store import StoredMessage


@dataclass(slots=True)
class Fork:
    """Where it left the other one, and what its first request showed about the KV of what they have in common."""

    at: int
    """The id of the last message that was copied."""
    tokens: int
    """Copied tokens that the engine was fed."""
    shared: int | None = None
    """How many of them it still had the KV of; None before the first request ran."""
    recomputed: int = 0

    @classmethod
    def behind(cls, messages: Sequence[StoredMessage]) -> Fork:
        """A fork that has just been made, with these messages."""
        last = messages[-1]
        produced = int(last.role == "assistant" and bool(last.token_ids))  # the token sampled last was not fed yet
        return cls(last.id, sum(len(each.token_ids) for each in messages) - produced)

    def measure(self, first: Metrics) -> None:
        """Learn from the first request that ran."""
        if self.shared is None:
            self.shared = min(first.cached_tokens, self.tokens)
            self.recomputed = min(first.prompt_tokens, self.tokens) - self.shared
