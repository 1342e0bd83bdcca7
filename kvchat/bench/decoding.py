"""How fast engines decode behind a prompt, measured in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from engine.api import GenerationRequest, SamplingParams, TokenDelta
from engine.engine import Engine

STEPS = 32
PREFILLS = 0.5
"""The part of the time that the prompts take, by and large."""


def decode_rates(
    engines: Sequence[Engine],
    prompt: tuple[int, ...],
    rounds: int,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> list[list[float]]:
    """Tokens per second of each engine behind the prompt, in turns: one measurement a round."""
    sampling = SamplingParams(temperature=0, max_tokens=(rounds + 2) * STEPS, ignore_eos=True)
    requests = []
    for done, engine in enumerate(engines):
        on_progress(PREFILLS * done / len(engines))
        requests.append(engine.submit(GenerationRequest(prompt, sampling)))
        while not any(isinstance(event, TokenDelta) for event in engine.step()):
            pass
    rates: list[list[float]] = [[] for _ in engines]
    for number in range(rounds + 1):
        on_progress(PREFILLS + (1 - PREFILLS) * number / (rounds + 1))
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
