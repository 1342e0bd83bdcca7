"""Settings of one engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from engine.errors import ConfigError


class EngineConfig(msgspec.Struct, frozen=True):
    """What to load and how much to spend on it. Raises ConfigError on a value out of range."""

    model: str | Path
    """A name under the models folder, or the path of a folder with config.json, *.safetensors and tokenizer.json."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N. auto: the first GPU if there is one that the kernels run on, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 where the device computes in it natively, else float32."""
    weights: Literal["auto", "bf16", "int8", "int4"] = "auto"
    """int8, int4: packed in so many bits for the CPU's native kernels, the output head always in 8 with int4; bf16: in
    the compute dtype, by torch. auto: with dtype auto, each weight in 4 bits where they hold it exactly and else in 8,
    on a CPU that can; with another dtype, bf16."""
    kv_dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = "auto"
    """What keys and values are stored in; auto: the compute dtype. int8 and int4: integers in groups, in the format
    that `kvchat calibrate` found best for the model."""
    kv_memory: int | None = None
    """Bytes of the whole KV pool; None: a quarter of what is free after the weights, at most 4 GiB; on a GPU nine
    tenths of what is free beside the weights and the largest step."""
    block_size: int = 16
    max_batch_tokens: int = 512
    """Tokens computed in one step, decodes included; a longer prompt is prefilled in chunks."""
    max_sequences: int = 16
    """Sequences running at the same time; more wait."""
    context_length: int | None = None
    """None: what the model was trained for."""
    prefix_caching: bool = True
    pin_fraction: float = 0.25
    """Share of the pool that pinned prefixes may hold."""
    threads: int | None = None
    """None: the physical cores this process may use."""

    def __post_init__(self) -> None:
        cores = os.cpu_count() or 1
        checks = (
            ("kv_memory", self.kv_memory is None or self.kv_memory > 0, "above 0 bytes"),
            ("block_size", 1 <= self.block_size <= 256, "between 1 and 256 tokens"),
            ("max_sequences", self.max_sequences >= 1, "1 or more"),
            (
                "max_batch_tokens",
                self.max_batch_tokens > self.max_sequences,
                f"above max_sequences ({self.max_sequences})",
            ),
            ("context_length", self.context_length is None or self.context_length >= 2, "2 or more"),
            ("pin_fraction", 0 <= self.pin_fraction <= 0.9, "between 0 and 0.9"),
            (
                "threads",
                self.threads is None or 1 <= self.threads <= cores,
                f"between 1 and {cores} here",
            ),
        )
        for name, fine, expected in checks:
            if not fine:
                raise ConfigError(f"{name} must be {expected}, not {getattr(self, name)!r}")
