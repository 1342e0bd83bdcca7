"""When a conversation in another cache format takes another turn."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import GenerationRequest, Message, SamplingParams
from engine.engine import Engine

REPLY_TOKENS = 48
TURNS = (
    "Hello! Who are you?",
    "What is a good name for a grey cat?",
    "Tell me one fact about the sea.",
    "Why is the sky blue?",
    "What do bees make?",
    "Name three colours of the rainbow.",
    "How do I boil an egg?",
    "What is the capital of France?",
    "And of Italy?",
    "Write a short sentence about winter.",
    "Which animal is the fastest on land?",
    "What is a prime number?",
    "Give me a word that rhymes with light.",
    "What should I read on a train?",
    "How many days has a leap year?",
    "Explain what a library is to a child.",
    "What is the largest planet?",
    "Why do leaves fall in autumn?",
    "What does a baker do in the morning?",
    "Suggest a simple soup.",
    "What is the opposite of loud?",
    "How does a compass work?",
    "Name a musical instrument with strings.",
    "What is bread made of?",
    "Tell me about the moon.",
    "What is a good habit for sleeping well?",
    "How do birds find their way?",
    "What is the first thing I asked you?",
    "Summarise what we talked about.",
    "Goodbye!",
)


def replay(engine: Engine, turns: Sequence[str]) -> list[tuple[int, ...]]:
    """A greedy conversation; the token ids of each reply."""
    messages: list[Message] = []
    sampling = SamplingParams(temperature=0, max_tokens=REPLY_TOKENS)
    replies = []
    for turn in turns:
        [done] = engine.generate([GenerationRequest(messages=(*messages, Message("user", turn)), sampling=sampling)])
        messages += [Message("user", turn), Message("assistant", done.text)]
        replies.append(done.token_ids)
    return replies


def first_difference(replies: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> int | None:
    """The first turn, from 1, in which two conversations differ."""
    return next((turn for turn, (a, b) in enumerate(zip(replies, others, strict=True), 1) if a != b), None)
