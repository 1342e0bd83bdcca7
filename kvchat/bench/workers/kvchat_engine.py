"""kvchat's own engine, through its public interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import kvchat
from engine import Engine, EngineConfig, GenerationRequest, SamplingParams
from engine.api import Failed, TokenDelta
from engine.errors import EngineError
from engine.runner import usable_cores

from .bandwidth import read_bandwidth
from .stepping import SteppingWorker


class Worker(SteppingWorker):
    """Settings are those of EngineConfig."""

    def __init__(self, **settings: Any) -> None:
        config = EngineConfig(**settings)
        self._threads = config.threads or usable_cores()
        self._engine = Engine(config)
        self._requests: list[str] = []

    def about(self) -> dict[str, Any]:
        info = self._engine.info
        return {
            "version": f"{kvchat.__version__}, torch {torch.__version__}, {info.weights}, KV {info.kv_dtype}",
            "threads": self._threads,
            "context_length": info.context_length,
            "weight_bytes": info.weight_bytes,
            "kv_token_bytes": info.kv_token_bytes,
        }

    def bandwidth(self) -> float:
        """What this machine reads from memory, in bytes per second."""
        return read_bandwidth(self._threads)

    def start(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self._requests = [self._engine.submit(GenerationRequest(tuple(prompt), params)) for prompt in prompts]

    def step(self) -> list[int]:
        made = []
        for event in self._engine.step():
            if isinstance(event, Failed):
                raise EngineError(event.error)
            if isinstance(event, TokenDelta):
                made += [self._requests.index(event.request_id)] * len(event.token_ids)
        return made

    def stop(self) -> None:
        for request in self._requests:
            self._engine.abort(request)
        while self._engine.has_work:
            self._engine.step()
