"""How fast each cache format decodes, and when a conversation in it takes another turn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

from engine.api import GenerationRequest, Message, SamplingParams, TokenDelta
from engine.engine import Engine

STEPS = 32
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


def decode_rates(engines: Sequence[Engine], prompt: tuple[int, ...], rounds: int) -> list[list[float]]:
    """Tokens per second of each engine behind the prompt, in turns: one measurement a round."""
    sampling = SamplingParams(temperature=0, max_tokens=(rounds + 2) * STEPS, ignore_eos=True)
    requests = []
    for engine in engines:
        requests.append(engine.submit(GenerationRequest(prompt, sampling)))
        while not any(isinstance(event, TokenDelta) for event in engine.step()):
            pass
    rates: list[list[float]] = [[] for _ in engines]
    for number in range(rounds + 1):
        for engine, mine in zip(engines, rates, strict=True):
            started = perf_counter()
            for _ in range(STEPS):
                engine.step()
            if number:  # the first round warms the caches
                mine.append(STEPS / (perf_counter() - started))
    for engine, request in zip(engines, requests, strict=True):
        engine.abort(request)
        while engine.has_work:
            engine.step()
    return rates


def ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios: what slows a round down slows both."""
    return median(a / b for a, b in zip(rates, others, strict=True))
