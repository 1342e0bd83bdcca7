"""Packed linear layers of a model, kept on disk: packing takes longer than loading."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.model.beside import Beside, model_files
from engine.model.config import ModelConfig
from engine.model.weights import LINEARS, ModelTensors
from kernels.cpu import packing
from kernels.cpu.weights import NativeLayer, NativeLinear, NativeWeights

log = logging.getLogger(__name__)


class PackedWeights:
    """The packed weights of one model folder in one format; "auto" is 4 bits for a weight that they hold exactly, as
    those that came from a 4-bit GGUF mostly are, and 8 for others; "int4" keeps the output head in 8.

    They are read from a file beside the model, or in `spare_folder` where that cannot be written, and packed anew
    when it is missing, damaged, or the model, the format or the layout is another.
    """

    def __init__(self, folder: Path, format: str, spare_folder: Path) -> None:
        self._format = format
        # 4 bits in the output head cost SmolLM2-135M 5 % of perplexity, and save little of the memory.
        self._head_format = "int8" if format == "int4" else format
        self._identity = _identity(folder, format)
        self._file = _file(folder, format, spare_folder)
        self._stored = self._read()
        self._new: dict[str, Tensor] = {}

    def load(self, config: ModelConfig, tensors: ModelTensors, on_progress: Callable[[float], None]) -> NativeWeights:
        """`on_progress` is told the fraction of layers packed, after each that was not stored."""
        layers = []
        for layer in range(config.n_layer):
            linears = {}
            for field in LINEARS:
                bias = tensors.bias(layer, field)
                linears[field] = self._linear(
                    f"{layer}.{field}", partial(tensors.weight, layer, field), None if bias is None else bias.float()
                )
            layers.append(NativeLayer(**tensors.norms(layer, torch.float32), **linears))  # type: ignore[arg-type]
            if self._new:
                on_progress((layer + 1) / config.n_layer)
        weights = NativeWeights(
            layers, tensors.norm.float(), self._linear("head", lambda: tensors.head, None, self._head_format)
        )
        if self._new:
            tensors.check_all_taken()
            # Where that is impossible the next start packs again.
            self._file.write(lambda path: save_file(self._new, path, {"identity": self._identity}))
        return weights

    def _linear(
        self, name: str, weight: Callable[[], Tensor], bias: Tensor | None, format: str | None = None
    ) -> NativeLinear:
        for bits in (4, 8):
            if (tiles := self._stored.get(f"{name}.{bits}")) is not None:
                break
        else:
            tiles, bits = packing.pack(weight(), format or self._format)
            self._new[f"{name}.{bits}"] = tiles
        return NativeLinear(tiles, bits, bias)

    def _read(self) -> dict[str, Tensor]:
        for path in self._file.paths:
            try:
                with safe_open(path, framework="pt") as file:
                    if (file.metadata() or {}).get("identity") == self._identity:
                        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            except FileNotFoundError:
                pass
            except (OSError, SafetensorError) as error:
                log.warning("packed weights in %s cannot be read, packing again: %s", path, error)
        return {}


def stored_bytes(folder: Path, format: str, spare_folder: Path) -> int | None:
    """What the packed weights of a model take, read out of the head of their file; None when there is no good one."""
    for path in _file(folder, format, spare_folder).paths:
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("identity") == _identity(folder, format):
                    return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            pass  # the engine packs again, and says why
    return None


def _file(folder: Path, format: str, spare_folder: Path) -> Beside:
    return Beside(folder, f"packed-{format}.tiles", spare_folder)


def _identity(folder: Path, format: str) -> str:
    """Another one whenever packing would give other bytes."""
    # By the times too: tiles of weights that were changed in place would be wrong without a word.
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in model_files(folder)]
    return json.dumps([packing.LAYOUT, format, files])
