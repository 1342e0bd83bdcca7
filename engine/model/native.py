"""The decoder on the CPU's native kernels, over packed weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

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
from kernels.cpu.packing import TILE
from kernels.cpu.weights import DecoderShape


def obstacle(model: ModelConfig, block_size: int, device: torch.device, kv_dtype: torch.dtype) -> str | None:
    """Why the native kernels cannot run a model, or None."""
    if device.type != "cpu":
        return f"they are for the CPU, not for {device}"
    if kv_dtype not in (torch.bfloat16, torch.float32):
        return "the KV cache must be in bfloat16 or float32"
    sizes = {"block_size": block_size, "head_dim": model.head_dim, "intermediate_size": model.intermediate_size}
    for name, size in sizes.items():
        if size % TILE:
            return f"{name} is {size}, no multiple of {TILE}"
    try:
        import numba  # noqa: F401
    except ImportError as error:
        return f"Numba cannot be imported ({error})"
    return None


class NativeDecoder:
    """The same forward pass as `engine.model.decoder.Decoder`'s."""

    def __init__(
        self,
        folder: Path,
        model: ModelConfig,
        tensors: ModelTensors,
        weights: str,
        report: Callable[[str, float], None],
    ) -> None:
        """Compile the kernels and pack the weights, or find both on disk. `weights`: auto, int8 or int4.

        Raises ConfigError when KVCHAT_CPU_TIER asks for what this CPU is not, ModelError for a bad checkpoint.
        """
        try:
            self._kernels = cpu.load(
                cache_dir() / "kernels",
                lambda: report("compiling the CPU kernels for this machine, once, in about 15 seconds", 0.0),
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._embedding = tensors.embedding
        packed = PackedWeights(folder, weights, cache_dir() / "packed")
        self._weights = packed.load(model, tensors, lambda fraction: report("packing the weights, once", fraction))
        self._model = model

    def attach(self, rope: Rope, cache: Sequence[Tensor], threads: int) -> None:
        """Get ready to run over the layers of a cache."""
        model = self._model
        self._rope = rope
        self._step = self._kernels(
            DecoderShape(
                hidden=model.hidden_size,
                n_head=model.n_head,
                n_kv_head=model.n_kv_head,
                head_dim=model.head_dim,
                inner=model.intermediate_size,
                vocab=model.vocab_size,
                activation=model.activation,
                norm_eps=model.norm_eps,
            ),
            self._weights,
            model.windows,
            cache,
            threads,
        )

    def forward(self, step: Step) -> Tensor:
        """Write the step's keys and values and return the logits asked for, [N, vocab] float32, which stay as they
        are until the next call."""
        hidden = F.embedding(torch.tensor(step.token_ids), self._embedding).float()
        cos, sin = self._rope.cos_sin(torch.tensor(step.positions), torch.float32)
        return self._step.run(hidden, cos, sin, step.slots, step.spans, step.logit_rows)

    @property
    def weight_bytes(self) -> int:
        return sum(linear.tiles.nbytes for linear in self._weights.linears())

    @property
    def format(self) -> str:
        """int8, int4 or "int4 + int8"."""
        return " + ".join(f"int{bits}" for bits in sorted({linear.bits for linear in self._weights.linears()}))
