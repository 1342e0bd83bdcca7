"""How much of a GPU the KV pool may take: what is free once the weights are there and the largest steps have run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import KVCache
from engine.model.config import ModelConfig
from engine.model.decoder import READ_ROWS, Step, TorchModel
from engine.model.graphs import UNWRITTEN
from engine.model.rope import Rope
from kernels.contract import Span
from kernels.kv_format import KVFormat

RESERVE = 256 << 20
"""Bytes left to CUDA itself, which takes memory for every kernel and graph it loads."""


def measure_workspace(
    config: EngineConfig, model: ModelConfig, weights: TorchModel, rope: Rope, format: KVFormat, context_length: int
) -> int:
    """Bytes that no step of this engine needs more of, beside weights and pool. Runs the largest steps, over a pool of
    one block. Raises ConfigError when the GPU has not even that, or cannot run the kernels."""
    from triton.runtime.errors import OutOfResources

    device = weights.weights.norm.device
    cache = KVCache(model, 1, config.block_size, format, device)
    decoder = weights.decoder(model, rope, cache.layers)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        with torch.inference_mode():
            for step in largest_steps(config, context_length):
                decoder.forward(step)
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"{device} has too little memory: the weights fit, a step of {config.max_batch_tokens:,} tokens does not; "
            "lower max_batch_tokens or max_sequences"
        ) from None
    except OutOfResources as error:
        raise ConfigError(
            f"{device} cannot run the kernels for these settings ({error}); set dtype and kv_dtype to auto"
        ) from None
    step_bytes = torch.cuda.max_memory_reserved(device) - before
    torch.cuda.empty_cache()
    # Recorded decodes keep memory of their own.
    return 2 * step_bytes + RESERVE


def largest_steps(config: EngineConfig, context_length: int) -> Iterator[Step]:
    """At the end of the longest context: prefill alone, and as many sequences as may run. Nothing is written, and all
    blocks are the first one: no step reads more."""
    rows = min(max(config.max_batch_tokens, READ_ROWS), context_length)
    yield _step([Span(rows, context_length, ())], config.block_size, min(rows, READ_ROWS))
    decodes = [Span(1, context_length, ())] * (config.max_sequences - 1)
    rows = min(config.max_batch_tokens - len(decodes), context_length)
    yield _step([*decodes, Span(rows, context_length, ())], config.block_size, config.max_sequences)


def _step(spans: list[Span], block_size: int, logit_rows: int) -> Step:
    tables = [span._replace(block_table=[0] * -(-span.context // block_size)) for span in spans]
    rows = sum(span.rows for span in spans)
    positions = [position for span in spans for position in range(span.context - span.rows, span.context)]
    return Step([0] * rows, positions, [UNWRITTEN] * rows, tables, list(range(rows - logit_rows, rows)))
