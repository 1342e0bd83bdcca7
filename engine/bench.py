"""Times whole steps on a GPU, of models with random weights: `python -m engine.bench cuda` prints a JSON list a line,
the fields of a `kernels.bench.figure.Figure`; `python -m kernels.bench --device cuda` runs it and makes a table of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from engine.api import SamplingParams
from engine.config import EngineConfig
from engine.device import find_device, native_dtype
from engine.gpu_memory import measure_workspace
from engine.kv_cache import KVCache, count_blocks, free_memory
from engine.model.config import ModelConfig, RopeConfig
from engine.model.decoder import Decoder, TorchModel, load_torch
from engine.model.graphs import GraphDecoder
from engine.model.loader import Checkpoint
from engine.model.rope import Rope
from engine.model.weights import ModelTensors
from engine.runner import Chunk, plan_step
from engine.sampler import SequenceSampler, sample
from kernels import select
from kernels.bench.figure import Figure
from kernels.contract import Kernels
from kernels.kv_format import KVFormat

COPY_BYTES = 1 << 30
BLOCK_SIZE = 16
REPLAYS = 10


class Sizes(NamedTuple):
    sequences: Sequence[int]
    contexts: Sequence[int]
    steps: int
    """Decoded at each of these."""
    chunk: int
    """Tokens of prefill in one step."""

    @property
    def longest(self) -> int:
        return max(self.contexts) + 2 * self.steps


SIZES = Sizes(sequences=(1, 8, 32), contexts=(512, 4096, 32768), steps=16, chunk=512)


def shape(hidden: int, inner: int, n_layer: int, head_dim: int, vocab: int, tied: bool) -> ModelConfig:
    """Of a Llama 3, its context length apart: 32 query and 8 key/value heads."""
    return ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        n_layer=n_layer,
        n_head=32,
        n_kv_head=8,
        head_dim=head_dim,
        activation="silu",
        norm_eps=1e-5,
        rope=RopeConfig(500000.0, "default", {}, SIZES.longest),
        context_length=SIZES.longest,
        windows=(None,) * n_layer,
        tied_embeddings=tied,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )


MODELS = {
    "1B": shape(2048, 8192, 16, 64, 128256, tied=True),
    "8B": shape(4096, 14336, 32, 128, 128256, tied=False),
}


class RandomTensors:
    """Stands for a checkpoint that has every tensor asked for."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device

    def __contains__(self, name: str) -> bool:
        return name != "lm_head.weight"  # which a tied model takes if it is there

    def take(self, *parts: tuple[str, tuple[int, ...]]) -> Tensor:
        """Small enough for sums to stay in range."""
        rows, *rest = (sum(shape[0] for _, shape in parts), *parts[0][1][1:])
        return torch.randn(rows, *rest, dtype=self._dtype, device=self._device) * 0.02

    def check_all_taken(self) -> None:
        pass


def _random(dtype: torch.dtype, device: torch.device) -> Checkpoint:
    return cast(Checkpoint, RandomTensors(dtype, device))


@dataclass(frozen=True, slots=True)
class Loaded:
    name: str
    config: ModelConfig
    weights: TorchModel
    cache: KVCache
    launched: Decoder
    recorded: Decoder | GraphDecoder
    device: torch.device


def load(
    name: str, config: ModelConfig, kernels: Kernels, dtype: torch.dtype, device: torch.device, sizes: Sizes
) -> Loaded:
    """On a GPU as the engine does it; on a CPU over a pool for the smallest sizes, and nothing is recorded."""
    tensors = ModelTensors(config, _random(dtype, device))
    weights = load_torch(config, tensors, kernels, dtype, lambda text, fraction: None)
    rope, format = Rope(config.rope, config.head_dim, sizes.longest, device), KVFormat(dtype, dtype)
    engine = EngineConfig(
        model=name, max_sequences=max(sizes.sequences), max_batch_tokens=max(sizes.chunk, max(sizes.sequences) + 1)
    )
    per_sequence = -(-sizes.longest // BLOCK_SIZE)
    blocks = max(sizes.sequences) * per_sequence
    if device.type == "cuda":
        workspace = measure_workspace(engine, config, weights, rope, format, sizes.longest)
        blocks = min(blocks, count_blocks(engine, config, format, device, workspace))
    cache = KVCache(config, blocks, BLOCK_SIZE, format, device)
    for layer in cache.layers:
        for plane in layer:
            plane.blocks.zero_()
    launched = weights.decoder(config, rope, cache.layers)
    recorded: Decoder | GraphDecoder = launched
    if device.type == "cuda":
        recorded = GraphDecoder(launched, engine.max_sequences, per_sequence, lambda text, fraction: None)
    return Loaded(name, config, weights, cache, launched, recorded, device)


def measure(model: Loaded, sizes: Sizes, bandwidth: float) -> Iterator[Figure]:
    """`bandwidth` in bytes/s is what a step is measured against, which reads the weights and the cache once."""
    prompt = min(max(sizes.contexts), 8 * sizes.chunk)
    took = _seconds(lambda: _prefill(model, prompt, sizes.chunk), model.device)
    yield Figure(f"{model.name}: prefill of {prompt:,} tokens", prompt / took, "tokens/s")
    for sequences in sizes.sequences:
        batch = Batch(model, sequences, sizes.contexts[0], sizes.steps)
        label = f"{model.name}: a decode step of {sequences} x {sizes.contexts[0]:,}"
        launched = _seconds(lambda: batch.decode(model.launched), model.device) / sizes.steps  # noqa: B023
        yield Figure(f"{label}, launched one by one", launched * 1e3, "ms")
        recorded = _seconds(lambda: batch.decode(model.recorded), model.device) / sizes.steps  # noqa: B023
        on_gpu = _gpu_seconds(model.recorded, sequences) if isinstance(model.recorded, GraphDecoder) else None
        yield Figure(f"{label}, recorded", recorded * 1e3, "ms", on_gpu and on_gpu * 1e3, "the GPU's own time")
    for context in sizes.contexts:
        for sequences in sizes.sequences:
            if not Batch.fits(model, sequences, context, sizes.steps):
                continue
            batch = Batch(model, sequences, context, sizes.steps)
            took = _seconds(lambda: batch.decode(model.recorded), model.device) / sizes.steps  # noqa: B023
            kv = sequences * context * model.cache.block_bytes / BLOCK_SIZE
            ceiling = sequences * bandwidth / (model.weights.weight_bytes + kv)
            yield Figure(f"{model.name}: {sequences} x {context:,}, decoding", sequences / took, "tokens/s", ceiling)


class Batch:
    """Sequences of one length, whose caches hold zeros."""

    def __init__(self, model: Loaded, sequences: int, context: int, steps: int) -> None:
        self._device, self._context, self._steps = model.device, context, steps
        each = self.blocks(context, steps)
        self._tables = [list(range(first, first + each)) for first in range(0, sequences * each, each)]
        params = SamplingParams(seed=1)
        self._samplers = [SequenceSampler(params, (), (), model.config.vocab_size) for _ in range(sequences)]
        self._draw = model.weights.kernels.draw

    @staticmethod
    def blocks(context: int, steps: int) -> int:
        return -(-(context + steps) // BLOCK_SIZE)

    @classmethod
    def fits(cls, model: Loaded, sequences: int, context: int, steps: int) -> bool:
        return sequences * cls.blocks(context, steps) <= model.cache.num_blocks

    @torch.inference_mode()
    def decode(self, decoder: Decoder | GraphDecoder) -> None:
        """From planning to token ids on the host, step after step, as the engine does."""
        tokens = [0] * len(self._tables)
        for position in range(self._context, self._context + self._steps):
            logits = decoder.forward(plan_step(self._chunks(tokens, position), BLOCK_SIZE))
            tokens = sample(logits, self._samplers, self._draw)

    def _chunks(self, tokens: Sequence[int], position: int) -> list[Chunk]:
        return [Chunk([token], position, table, True) for token, table in zip(tokens, self._tables, strict=True)]


@torch.inference_mode()
def _prefill(model: Loaded, prompt: int, chunk: int) -> None:
    table = list(range(-(-prompt // BLOCK_SIZE)))
    for start in range(0, prompt, chunk):
        rows = range(min(chunk, prompt - start))
        model.launched.forward(plan_step([Chunk(rows, start, table, True)], BLOCK_SIZE))


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """The second of two runs; on a CPU the first."""
    if device.type == "cuda":
        work()
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def copy_bandwidth(device: torch.device) -> float:
    """bytes/s, read and written."""
    source, target = torch.ones(2, COPY_BYTES, dtype=torch.uint8, device=device)
    return 2 * COPY_BYTES / _seconds(lambda: cast(None, target.copy_(source)), device)


def _gpu_seconds(recorded: GraphDecoder, sequences: int) -> float:
    """That the GPU needs for the decode step replayed last, sampling apart, when it does not wait for the host."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPLAYS):
        recorded.replay(sequences)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / REPLAYS


def main() -> None:
    device = find_device(sys.argv[1])
    dtype = native_dtype(device)
    bandwidth = copy_bandwidth(device)
    for name, config in MODELS.items():
        weight_bytes, free = ModelTensors(config, _random(dtype, device)).count * dtype.itemsize, free_memory(device)
        if weight_bytes > 0.8 * free:
            print(f"{name} is left out: {weight_bytes:,} bytes of weights, {free:,} free", file=sys.stderr)
            continue
        for figure in measure(load(name, config, select(device, dtype), dtype, device, SIZES), SIZES, bandwidth):
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
