"""transformers `generate`, timed from its own loop by a streamer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import takewhile
from time import perf_counter
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.generation.streamers import BaseStreamer

from engine.device import native_dtype


class _Clock(BaseStreamer):
    """Notes when each step's tokens are there. The prompt is put first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(perf_counter())

    def end(self) -> None:
        pass


class Worker:
    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._dtype = native_dtype(torch.device("cpu"))
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=self._dtype).eval()
        self._model.generation_config.eos_token_id = None  # generates on past any end token
        self._model.generation_config.pad_token_id = 0

    def about(self) -> dict[str, Any]:
        dtype = str(self._dtype).removeprefix("torch.")
        return {"version": f"{transformers.__version__}, torch {torch.__version__}", "dtype": dtype}

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """Tokens per second of all sequences together; the prompts are of one length."""
        times = self._generate(prompts, steps + 1)
        return len(prompts) * steps / (times[-1] - times[1])

    def prefill(self, prompt: Sequence[int]) -> float:
        started = perf_counter()
        return len(prompt) / (self._generate([prompt], 1)[1] - started)

    def first_token_behind(self, first: Sequence[int], second: Sequence[int]) -> float:
        """Seconds to the first token, with a copy of the cache of what the two share: the way that its documentation
        shows for a prefix used again."""
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
        cache = DynamicCache(config=self._model.config)
        self._generate([first[:shared]], 1, cache)
        started = perf_counter()
        return self._generate([second], 1, deepcopy(cache))[1] - started

    def _generate(self, prompts: Sequence[Sequence[int]], tokens: int, cache: Any = None) -> list[float]:
        clock = _Clock()
        ids = torch.tensor(prompts)
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=cache,
            max_new_tokens=tokens,
            do_sample=False,
            streamer=clock,
        )
        return clock.times
