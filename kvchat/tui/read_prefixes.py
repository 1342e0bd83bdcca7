"""What the running engine has read, so that its KV is cached unless the memory was needed since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

TokenIds = tuple[int, ...]


class ReadPrefixes:
    """Remembers beginnings of conversations by a hash of the token ids up to the end of each message: what forks and
    branches share is shared here, too, as it is in the engine."""

    def __init__(self) -> None:
        self._read: set[int] = set()

    def add(self, system_prompt: str, messages: Sequence[TokenIds]) -> None:
        """The engine read these messages, the first with the system prompt before it."""
        self._read.add(hash(system_prompt))
        self._read.update(_hashes(messages))

    def knows(self, system_prompt: str) -> bool:
        """Whether a conversation that begins with it was read."""
        return hash(system_prompt) in self._read

    def clear(self) -> None:
        """The engine is gone, and all it read."""
        self._read.clear()

    def tokens(self, messages: Sequence[TokenIds]) -> int:
        """How many tokens at the beginning of these messages were read."""
        read = 0
        for token_ids, prefix in zip(messages, _hashes(messages), strict=True):
            if prefix not in self._read:
                break
            read += len(token_ids)
        return read


def _hashes(messages: Sequence[TokenIds]) -> Iterable[int]:
    prefixes = accumulate(messages, lambda before, token_ids: hash((before, token_ids)), initial=0)
    next(prefixes)
    return prefixes
