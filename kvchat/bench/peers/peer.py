"""What a comparison asks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Prompt = Sequence[int]

QUESTION = "What is the capital of France?"
ONE_SHOT_TOKENS = 8


class PeerError(Exception):
    """An engine is not here, cannot be started or cannot be measured; one line."""


class Peer(Protocol):
    """One engine with one model. Every method raises PeerError when the engine fails."""

    name: str
    version: str

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        """Tokens per second of all sequences together, in the `steps` steps that follow their prefill."""

    def prefill(self, prompt: Prompt) -> float:
        """Prompt tokens per second."""

    def first_token_behind(self, first: Prompt, second: Prompt) -> float:
        """Seconds to the first token of `second` when a conversation that began with the same tokens had its reply."""

    def one_shot(self) -> float:
        """Seconds that a process takes which loads the model, answers QUESTION with ONE_SHOT_TOKENS, and ends."""

    def peak_memory(self, prompt: Prompt, steps: int) -> int:
        """Most resident bytes of a fresh process that loads the model and decodes `steps` tokens behind `prompt`."""

    def close(self) -> None:
        """End its processes."""
