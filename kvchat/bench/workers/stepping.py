"""How an engine that computes in steps is timed; the same for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

REPLY_TOKENS = 8
SPARE_TOKENS = 256
"""What the first of many sequences may generate while the last is still in its prefill."""


class SteppingWorker:
    """An engine driven step by step, greedily and past any end token."""

    def start(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        """Queue the prompts, all at once."""
        raise NotImplementedError

    def step(self) -> list[int]:
        """Compute one step; for each token it made the index of its prompt."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what `start` began and wait until the engine is idle."""
        raise NotImplementedError

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """Tokens per second of all sequences together, over `steps` steps in which each of them decodes and no
        prompt is computed any more."""
        self.start(prompts, steps + SPARE_TOKENS)
        try:
            begun: set[int] = set()
            while len(begun) < len(prompts):
                begun.update(self.step())
            tokens, started = 0, perf_counter()
            for _ in range(steps):
                made = self.step()
                if len(set(made)) < len(prompts):
                    raise RuntimeError("a sequence made no token in a step: they do not all fit at the same time")
                tokens += len(made)
            return tokens / (perf_counter() - started)
        finally:
            self.stop()

    def prefill(self, prompt: Sequence[int]) -> float:
        """Prompt tokens per second: the time to the first token over the prompt's length."""
        return len(prompt) / self._first_token(prompt)

    def first_token_behind(self, first: Sequence[int], second: Sequence[int]) -> float:
        """Seconds to the first token of a conversation that begins like one before it, which has had its reply."""
        self.start([first], REPLY_TOKENS)
        made = 0
        while made < REPLY_TOKENS:
            made += len(self.step())
        self.stop()
        return self._first_token(second)

    def _first_token(self, prompt: Sequence[int]) -> float:
        started = perf_counter()
        self.start([prompt], 1)
        while not self.step():
            pass
        elapsed = perf_counter() - started
        self.stop()
        return elapsed
