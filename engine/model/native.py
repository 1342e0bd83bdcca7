"""The decoder on the CPU's native kernels, over packed weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import ConfigError
from engine.locate import cache_dir
from engine.model.config import ModelConfig
from engine.model.decoder import Step
from engine.model.packed import PackedWeights
from engine.model.rope import Rope
from engine.model.weights import ModelTensors
from kernels import cpu
from kernels.contract import LayerCache
from kernels.cpu.packing import TILE
from kernels.cpu.weights import DecoderShape, NativeWeights
from kernels.kv_format import Groups, KVFormat

if TYPE_CHECKING:
    from kernels.cpu.native import NativeDecoder as Kernels


def obstacle(model: ModelConfig, block_size: int, device: torch.device, format: KVFormat) -> str | None:
    """Why the native kernels cannot run a model, or None."""
    if device.type != "cpu":
        return f"they are for the CPU, not for {device}"
    if format.keys == torch.float16:
        return "the KV cache must be in bfloat16, float32, int8 or int4"
    sizes = {"block_size": block_size, "head_dim": model.head_dim, "intermediate_size": model.intermediate_size}
    for name, size in sizes.items():
        # Values of 4 bits lie in pairs of 16.
        halves = name == "head_dim" and isinstance(format.values, Groups) and format.values.bits == 4
        unit = 2 * TILE if halves else TILE
        if size % unit:
            return f"{name} is {size}, no multiple of {unit}"
    try:
        import numba  # noqa: F401
    except ImportError as error:
        return f"Numba cannot be imported ({error})"
    return None


class NativeModel(NamedTuple):
    """What a native decoder is made of."""

    kernels: type[Kernels]
    weights: NativeWeights
    embedding: Tensor
    """[vocab, hidden], in the dtype it is stored in."""
    threads: int

    def decoder(self, config: ModelConfig, rope: Rope, cache: Sequence[LayerCache]) -> NativeDecoder:
        return NativeDecoder(config, self, rope, cache)

    @property
    def weight_bytes(self) -> int:
        """Of the packed weights, which a step reads."""
        return sum(linear.tiles.nbytes for linear in self.weights.linears())

    @property
    def format(self) -> str:
        """int8, int4 or "int4 + int8"."""
        return " + ".join(f"int{bits}" for bits in sorted({linear.bits for linear in self.weights.linears()}))


def load_native(
    folder: Path,
    model: ModelConfig,
    tensors: ModelTensors,
    weights: str,
    threads: int,
    report: Callable[[str, float], None],
) -> NativeModel:
    """Compile the kernels and pack the weights, or find both on disk. `weights`: auto, int8 or int4.

    Raises ConfigError when KVCHAT_CPU_TIER asks for what this CPU is not, ModelError for a bad checkpoint.
    """
    try:
        kernels = cpu.load(
            cache_dir() / "kernels",
            lambda: report("compiling the CPU kernels (once)", 0.0),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    embedding = tensors.embedding
    packed = PackedWeights(folder, weights, cache_dir() / "packed")
    layers = packed.load(model, tensors, lambda fraction: report("packing the weights (once)", fraction))
    return NativeModel(kernels, layers.in_one_piece(), embedding, threads)


class NativeDecoder:
    """The same forward pass as `engine.model.decoder.Decoder`'s."""

    def __init__(self, config: ModelConfig, model: NativeModel, rope: Rope, cache: Sequence[LayerCache]) -> None:
        self._embedding, self._rope = model.embedding, rope
        shape = DecoderShape(
            hidden=config.hidden_size,
            n_head=config.n_head,
            n_kv_head=config.n_kv_head,
            head_dim=config.head_dim,
            inner=config.intermediate_size,
            vocab=config.vocab_size,
            activation=config.activation,
            norm_eps=config.norm_eps,
        )
        self._kernels = model.kernels(shape, model.weights, config.windows, cache, model.threads)

    def forward(self, step: Step) -> Tensor:
        """Write the step's keys and values into the cache and return the logits of the rows asked for, [N, vocab]
        float32, which stay as they are until the next call."""
        hidden = F.embedding(torch.tensor(step.token_ids), self._embedding).float()
        cos, sin = self._rope.cos_sin(torch.tensor(step.positions), torch.float32)
        return self._kernels.run(hidden, cos, sin, step.slots, step.spans, step.logit_rows)
