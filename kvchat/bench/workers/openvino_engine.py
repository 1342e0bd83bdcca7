"""OpenVINO GenAI: its continuous batching pipeline, which its LLMPipeline uses as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino  # type: ignore[import-not-found]
import openvino_genai  # type: ignore[import-not-found]

from .stepping import SteppingWorker

UNLIMITED = 1 << 31


class Worker(SteppingWorker):
    def __init__(self, model: str, threads: int) -> None:
        scheduling = openvino_genai.SchedulerConfig()
        # As LLMPipeline sets them for a single user; a cache without a fixed size grows as needed.
        scheduling.max_num_batched_tokens = UNLIMITED
        scheduling.enable_prefix_caching = True
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            model, scheduling, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )
        self._handles: list[Any] = []
        self._submitted = 0

    def about(self) -> dict[str, Any]:
        return {"version": openvino_genai.__version__}

    def start(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        settings = openvino_genai.GenerationConfig()
        settings.do_sample, settings.ignore_eos, settings.max_new_tokens = False, True, max_tokens
        self._handles = []
        for prompt in prompts:
            self._submitted += 1
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            self._handles.append(self._pipeline.add_request(self._submitted, ids, settings))

    def step(self) -> list[int]:
        self._pipeline.step()
        return [
            index
            for index, handle in enumerate(self._handles)
            if handle.can_read()
            for output in handle.read().values()
            for _ in output.generated_ids
        ]

    def stop(self) -> None:
        for handle in self._handles:
            handle.cancel()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
