"""Decodes as CUDA graphs: what a step launches is recorded once for each batch size and replayed in one call, since
launching some ten kernels a layer one by one from Python takes longer than a small model computes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from engine.model.decoder import Decoder, Inputs, Step

if TYPE_CHECKING:
    from kernels.gpu.backend import TritonKernels

UNWRITTEN = -1
"""The slot of a row that pads the batch."""


def ladder(sequences: int) -> list[int]:
    """Batch sizes to record so that any up to `sequences` has one of at most twice, above 16 at most 8 more, its
    size."""
    sizes = [1, 2, 4, 8, *range(16, sequences, 8), sequences]
    return sorted({min(size, sequences) for size in sizes})


class ReservedStep:
    """The inputs of a decode step of at most so many sequences, in memory that stays where it is."""

    def __init__(self, decoder: Decoder, sequences: int, blocks: int) -> None:
        """For a decoder on Triton kernels."""
        config, kernels = decoder.config, cast("TritonKernels", decoder.kernels)
        self._sequences = sequences
        # Even, so that each row begins at a multiple of 16 bytes, which Triton compiles for.
        width = sequences + sequences % 2
        self._host = torch.zeros(4, width, dtype=torch.int64)
        self._device = self._host.to(decoder.device, copy=True)
        self._plans = {
            window: kernels.reserve_decodes(sequences, blocks, decoder.cache[0], config.n_head, window)
            for window in set(config.windows)
        }
        token_ids, positions, slots, logit_rows = self._device[:, :sequences]
        plans = {window: plan.plan for window, plan in self._plans.items()}
        self.inputs = Inputs(token_ids, positions, slots, logit_rows, plans)
        self.fill(Step([], [], [], [], []))

    def fill(self, step: Step) -> None:
        """Rows that the step does not have are of token 0, see nothing and are written nowhere."""
        padding = (0, 0, UNWRITTEN, 0)
        for row, values, pad in zip(
            self._host, (step.token_ids, step.positions, step.slots, step.logit_rows), padding, strict=True
        ):
            row[: self._sequences] = torch.tensor(values + [pad] * (self._sequences - len(values)))
        self._device.copy_(self._host)
        for plan in self._plans.values():
            plan.fill(step.spans)


class GraphDecoder:
    """A decoder whose decodes are recorded; a step with a prefill chunk in it is computed as ever."""

    def __init__(self, decoder: Decoder, sequences: int, blocks: int, report: Callable[[str, float], None]) -> None:
        """For batches of at most so many sequences of at most so many blocks."""
        self._decoder = decoder
        self._sizes = ladder(sequences)
        self._recorded: dict[int, tuple[ReservedStep, torch.cuda.CUDAGraph, Tensor]] = {}
        # Only one graph runs at a time, so all can use the same memory: the largest comes first and takes it.
        pool = torch.cuda.graph_pool_handle()
        for done, size in enumerate(reversed(self._sizes)):
            report("recording decode steps", done / len(self._sizes))
            reserved, graph = ReservedStep(decoder, size, blocks), torch.cuda.CUDAGraph()
            decoder.compute(reserved.inputs)  # compiles what is not compiled yet, which a recording cannot
            with torch.cuda.graph(graph, pool=pool):
                logits = decoder.compute(reserved.inputs)
            self._recorded[size] = reserved, graph, logits
        report("recording decode steps", 1.0)

    def forward(self, step: Step) -> Tensor:
        """As `Decoder.forward`; the logits stay as they are until the next call."""
        size = self._size(step)
        if size is None:
            return self._decoder.forward(step)
        reserved, graph, logits = self._recorded[size]
        reserved.fill(step)
        graph.replay()
        return logits[: len(step.logit_rows)]

    def replay(self, sequences: int) -> None:
        """The recording for so many sequences once more, over the inputs that it has."""
        _, graph, _ = self._recorded[self._sizes[bisect_left(self._sizes, sequences)]]
        graph.replay()

    def _size(self, step: Step) -> int | None:
        """Of the recording to use, if there is one."""
        rows = len(step.spans)
        if len(step.token_ids) > rows or rows > self._sizes[-1]:
            return None
        return self._sizes[bisect_left(self._sizes, rows)]
