"""Random tokens: prompts that no cache has seen."""

from __future__ import annotations

import random


class Draw:
    """The same seed draws the same tokens."""

    def __init__(self, seed: str, vocab_size: int) -> None:
        self._random = random.Random(seed)
        # The lowest ids are control tokens and bytes, and the highest ones are often added control tokens.
        self._tokens = range(vocab_size // 8, vocab_size // 2)

    def __call__(self, length: int) -> list[int]:
        return self._random.choices(self._tokens, k=length)
